"""The server's death ends the gate with a code that is not 0, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tests.contract.gate.process import LONG_S, GateProcess, dead, process_state
from tests.eventually import eventually


def test_sigkill_of_the_server_makes_the_gate_fail(gate: GateProcess) -> None:
    gate.start()
    os.kill(gate.in_phase("ready")["pid"], signal.SIGKILL)
    assert gate.exit_code() == 128 + signal.SIGKILL
    assert gate.phases()[-1] == "failed"
    assert "signal 9" in gate.log()[-1]["last_error"]


@pytest.mark.parametrize(("code", "expected"), [(0, 70), (3, 3)])
def test_a_server_that_exits_by_itself_makes_the_gate_fail(gate: GateProcess, code: int, expected: int) -> None:
    gate.start(command=[sys.executable, "-c", f"raise SystemExit({code})"])
    assert gate.exit_code() == expected
    assert f"exited with {code}" in gate.log()[-1]["last_error"]


def test_a_server_that_exits_0_after_ready_makes_the_gate_fail(gate: GateProcess) -> None:
    gate.start()
    os.kill(gate.in_phase("ready")["pid"], signal.SIGTERM)  # the fake finishes in good order, with 0
    assert gate.exit_code() == 70
    assert gate.phases()[-1] == "failed"


def test_orphans_are_reaped_and_the_status_of_the_server_is_kept(gate: GateProcess) -> None:
    gate.start("--family")
    server = gate.in_phase("ready")["pid"]
    orphan = gate.number("orphan")
    eventually(lambda: parent(orphan) == gate.pid, LONG_S)
    gate.set("orphan.may_die")
    eventually(lambda: process_state(orphan) == "", LONG_S)  # a zombie would still be listed
    assert gate.state()["phase"] == "ready"
    os.kill(server, signal.SIGUSR1)
    assert gate.exit_code() == 128 + signal.SIGUSR1


def test_the_processes_of_the_server_die_with_it(gate: GateProcess) -> None:
    gate.start("--family")
    server = gate.in_phase("ready")["pid"]
    sleeper = gate.number("sleeper")
    assert not dead(sleeper)
    os.kill(server, signal.SIGKILL)
    gate.exit_code()
    eventually(lambda: dead(sleeper), LONG_S)


@pytest.mark.parametrize("flags", [["--family"], ["--family", "--deaf"]])
def test_the_processes_of_the_server_die_at_a_stop(gate: GateProcess, flags: list[str]) -> None:
    gate.start(*flags, GATE_DRAIN_S="2")
    gate.in_phase("ready")
    sleeper = gate.number("sleeper")
    gate.signal(signal.SIGTERM)
    assert gate.exit_code() == 0
    eventually(lambda: dead(sleeper), LONG_S)


def test_the_server_dies_when_the_gate_is_killed(gate: GateProcess) -> None:
    gate.start("--deaf")
    server = gate.in_phase("ready")["pid"]
    gate.signal(signal.SIGKILL)
    gate.exit_code()
    eventually(lambda: dead(server), LONG_S)


def parent(pid: int) -> int:
    """Return the parent's pid."""
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])
