"""A server that owes tokens and brings none is killed; one that is only slow, or busy compiling, is not."""

from __future__ import annotations

import pytest

from tests.contract.gate.process import KEY, LONG_S, GateProcess, Stream, dead, set_faults, start_stub
from tests.eventually import eventually

AUTHORIZED = {"Authorization": f"Bearer {KEY}"}
COMPILES = (
    "[TileLang:tilelang.jit.kernel:INFO] (kernel.py:133): TileLang begins to compile kernel `mhc` with `out_idx`\n"
)


def failed(gate: GateProcess, server: int) -> str:
    """Wait for the end of a gate that gives up; return why it did."""
    assert gate.exit_code() == 70
    assert dead(server)
    assert gate.phases()[-1] == "failed"
    return str(gate.log()[-1]["last_error"])


def counted(gate: GateProcess, name: str) -> int:
    """Return how often the fake server noted something."""
    path = gate.folder / name
    return path.stat().st_size if path.exists() else 0


def test_a_stream_whose_tokens_stop_is_a_hang_though_health_is_good(gate: GateProcess) -> None:
    gate.set("hold_streams")
    gate.start("--deaf", GATE_HANG_S="1", GATE_PROBE_S="3600")
    server = gate.in_phase("ready")["pid"]
    stream = Stream(gate.server_port)
    why = failed(gate, server)
    assert "the server hangs: no token for 1 s" in why and "requests without a token: 1" in why
    assert not stream.whole()


@pytest.mark.parametrize("metrics", ["ok", "idle", "none", "hang"])
def test_an_idle_server_that_does_not_answer_the_probe_is_a_hang(gate: GateProcess, metrics: str) -> None:
    gate.start("--deaf", GATE_HANG_S="2", GATE_PROBE_S="1")
    server = gate.in_phase("ready")["pid"]
    gate.set("completion", "hang")
    gate.set("metrics", metrics)
    assert "POST /v1/completions: timed out" in failed(gate, server)


def test_a_server_that_answers_probes_with_errors_only_is_a_hang_too(gate: GateProcess) -> None:
    gate.start(GATE_HANG_S="2", GATE_PROBE_S="1")
    server = gate.in_phase("ready")["pid"]
    gate.set("completion", "500")
    assert "POST /v1/completions: 500" in failed(gate, server)


def test_a_hung_engine_that_counts_no_request_is_found_by_the_probe(gate: GateProcess) -> None:
    gate.set("hold_streams")
    gate.set("metrics", "idle")
    gate.start(GATE_HANG_S="2", GATE_PROBE_S="1")
    server = gate.in_phase("ready")["pid"]
    Stream(gate.server_port)
    gate.set("completion", "hang")
    failed(gate, server)


@pytest.mark.parametrize("metrics", ["ok", "none", "hang"])
def test_an_idle_server_is_asked_now_and_then_and_stays_ready(gate: GateProcess, metrics: str) -> None:
    gate.set("metrics", metrics)
    gate.start(GATE_HANG_S="20", GATE_PROBE_S="0.2")
    gate.in_phase("ready")
    eventually(lambda: counted(gate, "probes") >= 3, LONG_S)
    state = gate.state()
    assert state["phase"] == "ready" and state["last_error"] is None


def test_a_busy_server_is_not_probed(gate: GateProcess) -> None:
    gate.set("gap", "0.25")
    gate.start(GATE_HANG_S="20", GATE_PROBE_S="3")
    gate.in_phase("ready")
    stream = Stream(gate.server_port)
    eventually(stream.begun, LONG_S)
    before = counted(gate, "probes")
    assert stream.whole()  # for 5 s
    assert counted(gate, "probes") == before


def test_tokens_that_come_slowly_are_no_hang(gate: GateProcess) -> None:
    gate.set("gap", "0.5")
    gate.start(GATE_HANG_S="3", GATE_PROBE_S="3600")
    gate.in_phase("ready")
    stream = Stream(gate.server_port)
    assert stream.whole()  # for 10 s
    assert gate.state()["phase"] == "ready"


def test_a_stall_is_shown_half_way_to_the_limit_and_taken_back(gate: GateProcess) -> None:
    gate.set("hold_streams")
    gate.start(GATE_HANG_S="8", GATE_PROBE_S="3600")
    gate.in_phase("ready")
    stream = Stream(gate.server_port)
    eventually(lambda: "no token for more than 4 s" in (gate.state()["last_error"] or ""), LONG_S)
    gate.unset("hold_streams")
    assert stream.whole()
    eventually(lambda: gate.state()["last_error"] is None, LONG_S)
    assert gate.state()["phase"] == "ready"


def test_kernels_that_are_compiled_are_no_hang_until_their_lines_stop(gate: GateProcess) -> None:
    gate.set("hold_streams")
    gate.start(GATE_HANG_S="2", GATE_PROBE_S="3600")
    server = gate.in_phase("ready")["pid"]
    gate.set("says", COMPILES)
    Stream(gate.server_port)
    eventually(lambda: counted(gate, "said") >= 60, LONG_S)  # 6 s
    assert gate.state()["phase"] == "ready"
    gate.unset("says")
    failed(gate, server)


def test_a_stop_outlives_the_hang_limit_because_the_drain_has_its_own(gate: GateProcess) -> None:
    gate.set("hold_streams")
    gate.start(GATE_HANG_S="2", GATE_PROBE_S="3600", GATE_NOTICE_S="3600")
    gate.in_phase("ready")
    stream = Stream(gate.server_port)
    eventually(stream.begun, LONG_S)
    gate.signal(15)
    eventually(lambda: gate.in_phase("draining")["phase_s"] > 4, LONG_S)
    gate.unset("hold_streams")
    assert stream.whole()
    assert gate.state()["phase"] == "draining"


@pytest.mark.parametrize("busy", [False, True])
def test_the_stand_in_engine_that_hangs_is_killed_idle_or_busy(gate: GateProcess, busy: bool) -> None:
    faults = start_stub(gate, GATE_HANG_S="3", GATE_PROBE_S="3600" if busy else "1", STUB_DEFAULT_MAX_TOKENS="9999")
    server = gate.in_phase("ready")["pid"]
    if busy:
        stream = Stream(gate.server_port, AUTHORIZED)
        eventually(lambda: len(stream.lines) > 3, LONG_S)
    set_faults(faults, hang=True)
    assert "the server hangs: no token for 3 s" in failed(gate, server)


def test_a_stall_of_the_stand_in_engine_below_the_limit_is_no_hang(gate: GateProcess) -> None:
    faults = start_stub(gate, GATE_HANG_S="12", GATE_PROBE_S="3600")
    gate.in_phase("ready")
    set_faults(faults, jit_stall=4)
    stream = Stream(gate.server_port, AUTHORIZED)
    eventually(lambda: stream.lines[-1:] == ["data: [DONE]"], LONG_S)
    assert gate.state()["phase"] == "ready"
