"""A replica is ready when its server has answered a real completion, and not before."""

from __future__ import annotations

import os
import signal

import pytest

from tests.contract.gate.process import KEY, LONG_S, GateProcess, dead
from tests.eventually import eventually

READY_HEADER = "x-envoy-immediate-health-check-fail"


def test_a_server_that_answers_makes_the_gate_ready_after_every_phase(gate: GateProcess) -> None:
    gate.start()
    state = gate.in_phase("ready")
    assert state["pid"] == gate.number("started")
    assert state["last_error"] is None and state["loaded"] is None
    assert gate.phases() == ["loading", "warming", "ready"]
    status, headers, _ = gate.get("/ready")
    assert status == 200 and READY_HEADER not in headers


def test_the_gate_answers_and_is_not_ready_while_the_server_loads(gate: GateProcess) -> None:
    gate.set("hold_load")
    gate.start()
    gate.number("started")
    for _ in range(20):
        status, headers, _ = gate.get("/ready")
        assert status == 503 and headers[READY_HEADER] == "true"
    assert gate.state()["phase"] == "loading"
    assert "GET /health" in eventually(lambda: gate.state()["last_error"], LONG_S)
    gate.unset("hold_load")
    gate.in_phase("ready")


@pytest.mark.parametrize(("completion", "told"), [("500", "500"), ("text", "whole completion"), ("cut", "abort")])
def test_health_200_is_not_enough_when_completions_fail(gate: GateProcess, completion: str, told: str) -> None:
    gate.set("completion", completion)
    gate.start()
    eventually(lambda: told in (gate.state()["last_error"] or ""), LONG_S)
    assert gate.state()["phase"] == "warming"
    assert gate.get("/ready")[0] == 503
    gate.set("completion", "ok")
    assert gate.in_phase("ready")["last_error"] is None


@pytest.mark.parametrize("completion", ["hang", "500"])
def test_a_server_that_never_completes_is_killed_at_the_start_timeout(gate: GateProcess, completion: str) -> None:
    gate.set("completion", completion)
    gate.start("--deaf", GATE_START_TIMEOUT_S="5")
    server = gate.number("started")
    assert gate.exit_code() == 70
    assert dead(server)
    assert gate.phases() == ["loading", "warming", "failed"]
    assert "not ready 5 s after the start" in gate.log()[-1]["last_error"]


def test_a_server_that_never_listens_is_killed_at_the_start_timeout(gate: GateProcess) -> None:
    gate.set("hold_load")
    gate.start("--deaf", GATE_START_TIMEOUT_S="1")
    server = gate.number("started")
    assert gate.exit_code() == 70
    assert dead(server)
    assert "GET /health: Connection refused" in gate.log()[-1]["last_error"]


def test_a_wrong_key_is_not_ready_and_is_told_without_the_key(gate: GateProcess) -> None:
    gate.set("other_key", "another")
    gate.start()
    eventually(lambda: "401" in (gate.state()["last_error"] or ""), LONG_S)
    assert gate.get("/ready")[0] == 503
    gate.signal(signal.SIGTERM)
    assert gate.exit_code() == 0
    assert KEY.encode() not in (gate.folder / "stderr").read_bytes()


def test_the_key_reaches_the_server_in_its_environment_and_nothing_else(gate: GateProcess) -> None:
    gate.start()
    server = gate.in_phase("ready")["pid"]

    def proc(pid: int, name: str) -> bytes:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()

    assert f"VLLM_API_KEY={KEY}".encode() in proc(server, "environ").split(b"\0")
    assert KEY.encode() not in proc(gate.pid, "environ")
    assert KEY.encode() not in proc(server, "cmdline") + proc(gate.pid, "cmdline")


def test_a_proxy_of_the_environment_does_not_step_between_gate_and_server(gate: GateProcess) -> None:
    gate.start(http_proxy="http://127.0.0.1:9", HTTP_PROXY="http://127.0.0.1:9", no_proxy="")
    gate.in_phase("ready")


def test_the_output_of_the_server_is_forwarded_untouched(gate: GateProcess) -> None:
    gate.start("--prints")
    gate.in_phase("ready")
    assert (gate.folder / "stdout").read_bytes() == b"out \xff\x00 without newline"
    assert b"(Engine) \x1b[1mbold\x1b[0m\n" in (gate.folder / "stderr").read_bytes()


def test_the_server_leads_a_session_of_its_own(gate: GateProcess) -> None:
    gate.start()
    server = gate.in_phase("ready")["pid"]
    assert os.getsid(server) == os.getpgid(server) == server != os.getsid(gate.pid)
