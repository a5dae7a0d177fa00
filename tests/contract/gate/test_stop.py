"""A stop lets running requests finish, ends what does not, and exits 0."""

from __future__ import annotations

import os
import signal
import socket
import time

import pytest

from tests.contract.gate.process import LONG_S, GateProcess, Stream, dead
from tests.eventually import eventually


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_finishes_running_streams_and_exits_0(gate: GateProcess, number: int) -> None:
    gate.set("hold_streams")
    gate.start()
    server = gate.in_phase("ready")["pid"]
    streams = [Stream(gate.server_port) for _ in range(5)]
    eventually(lambda: all(stream.begun() for stream in streams), LONG_S)
    gate.signal(number)
    gate.in_phase("draining")
    status, headers, _ = gate.get("/ready")
    assert status == 503 and headers["x-envoy-immediate-health-check-fail"] == "true"
    eventually(lambda: refused(gate.server_port), LONG_S)  # the server has its SIGTERM
    assert not dead(server)
    gate.unset("hold_streams")
    assert all(stream.whole() for stream in streams)
    assert gate.exit_code() == 0
    assert gate.phases() == ["loading", "warming", "ready", "draining"]


def test_the_server_serves_on_until_the_notice_is_over(gate: GateProcess) -> None:
    gate.start(GATE_NOTICE_S="3600")
    gate.in_phase("ready")
    gate.signal(signal.SIGTERM)
    gate.in_phase("draining")
    stream = Stream(gate.server_port)
    assert stream.whole()
    assert gate.state()["phase"] == "draining"


@pytest.mark.parametrize("completion", ["ok", "500"])
def test_a_stop_before_ready_kills_at_once(gate: GateProcess, completion: str) -> None:
    gate.set("completion", completion)
    if completion == "ok":
        gate.set("hold_load")
    gate.start("--deaf", GATE_NOTICE_S="3600", GATE_DRAIN_S="3600")
    server = gate.number("started")
    gate.in_phase("loading" if completion == "ok" else "warming")
    gate.signal(signal.SIGTERM)
    assert gate.exit_code() == 0
    assert dead(server)
    assert gate.log()[-1]["child_code"] == -signal.SIGKILL


def test_a_server_that_swallows_sigterm_is_killed_after_the_drain_time(gate: GateProcess) -> None:
    gate.start("--deaf", GATE_DRAIN_S="0.5")
    server = gate.in_phase("ready")["pid"]
    gate.signal(signal.SIGTERM)
    assert gate.exit_code() == 0
    assert dead(server)
    assert "drain_over" in [line["event"] for line in gate.log()]
    assert gate.log()[-1]["child_code"] == -signal.SIGKILL


def test_a_stream_that_outlasts_the_drain_time_does_not_hold_the_stop(gate: GateProcess) -> None:
    gate.set("hold_streams")
    gate.start(GATE_DRAIN_S="0.5")
    gate.in_phase("ready")
    stream = Stream(gate.server_port)
    eventually(stream.begun, LONG_S)
    gate.signal(signal.SIGTERM)
    assert gate.exit_code() == 0
    assert not stream.whole()


def test_a_second_sigterm_is_logged_and_shortens_nothing(gate: GateProcess) -> None:
    gate.set("hold_streams")
    gate.start()
    gate.in_phase("ready")
    stream = Stream(gate.server_port)
    eventually(stream.begun, LONG_S)
    gate.signal(signal.SIGTERM)
    gate.in_phase("draining")
    gate.signal(signal.SIGTERM)
    eventually(lambda: "stop_repeated" in [line["event"] for line in gate.log()], LONG_S)
    gate.unset("hold_streams")
    assert stream.whole()
    assert gate.exit_code() == 0


def test_a_server_that_dies_while_draining_ends_the_stop_with_0(gate: GateProcess) -> None:
    gate.start(GATE_NOTICE_S="3600")
    server = gate.in_phase("ready")["pid"]
    gate.signal(signal.SIGTERM)
    gate.in_phase("draining")
    os.kill(server, signal.SIGKILL)
    assert gate.exit_code() == 0


def test_a_server_that_is_dead_when_the_stop_is_seen_ends_the_stop_with_0(gate: GateProcess) -> None:
    gate.start()
    server = gate.in_phase("ready")["pid"]
    gate.signal(signal.SIGSTOP)  # so that the gate finds both at once ...
    os.kill(server, signal.SIGKILL)
    gate.signal(signal.SIGTERM)
    stopped = time.monotonic()
    eventually(lambda: time.monotonic() > stopped + 1.5, LONG_S)  # ... and, its look being overdue, the death first
    gate.signal(signal.SIGCONT)
    assert gate.exit_code() == 0


SLOW_MODULE = """
import importlib.util, os, sys, sysconfig, time
open(os.environ["SLOW"] + ".begun", "w").close()
while os.path.exists(os.environ["SLOW"]):
    time.sleep(0.01)
path = os.path.join(sysconfig.get_path("stdlib"), "dataclasses.py")
spec = importlib.util.spec_from_file_location("dataclasses", path)
sys.modules["dataclasses"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
"""


def test_a_stop_that_comes_while_the_gate_itself_still_starts_is_not_lost(gate: GateProcess) -> None:
    (gate.folder / "dataclasses.py").write_text(SLOW_MODULE)
    gate.set("slow")
    gate.start(PYTHONPATH=str(gate.folder), SLOW=str(gate.folder / "slow"))
    eventually(lambda: (gate.folder / "slow.begun").exists(), LONG_S)
    gate.signal(signal.SIGTERM)
    gate.unset("slow")
    assert gate.exit_code() == 0
    assert [line["event"] for line in gate.log()] == ["stopped"]
    assert not (gate.folder / "started").exists()


def test_the_server_starts_with_no_signal_blocked(gate: GateProcess) -> None:
    gate.start()
    server = gate.in_phase("ready")["pid"]
    with open(f"/proc/{server}/status") as file:
        (blocked,) = [line.split()[1] for line in file if line.startswith("SigBlk:")]
    assert int(blocked, 16) == 0


def refused(port: int) -> bool:
    """Say whether nobody listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
    except ConnectionRefusedError:
        return True
    return False
