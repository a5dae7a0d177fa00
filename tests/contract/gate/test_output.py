"""The server's output passes the gate byte by byte, tells it the phase of the start, and never holds the server up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.contract.gate.process import LONG_S, GateProcess, dead, start_stub
from tests.eventually import eventually

ROOT = Path(__file__).parents[3]
RECORDING = ROOT / "tests" / "fixtures" / "vllm-0.26.0" / "start-cold.log"
BAR = "\r(EngineCore pid=9) Loading safetensors checkpoint shards: {percent:3d}% Completed | {there}/46 [00:01<00:02]"
SHARDS = "".join(BAR.format(percent=100 * there // 46, there=there) for there in range(32))
NOISE = {
    "no line ends": b"\x00\xff" * 300_000,
    "more than all": b"shards: 99% Completed | 31/46\nLoading safetensors checkpoint shards: 99% Completed | 47/46\n",
    "huge number": b"Loading safetensors checkpoint shards: 99% Completed | 99999999999999999999/1\n",
    "empty lines": b"\r\n" * 50_000,
}


def plays(gate: GateProcess, content: bytes) -> None:
    """Let the server write this to stderr, and backwards to stdout, before it listens."""
    (gate.folder / "plays").write_bytes(content)


def test_the_recorded_start_is_told_phase_by_phase_and_only_forwards(gate: GateProcess) -> None:
    plays(gate, RECORDING.read_bytes())
    gate.set("hold_load")
    gate.start()
    gate.in_phase("capturing")
    assert gate.get("/ready")[0] == 503
    gate.unset("hold_load")
    gate.in_phase("ready")
    assert gate.phases() == ["loading", "compiling", "capturing", "warming", "ready"]


def test_the_shards_of_the_weights_are_counted_as_a_progress_bar_draws_them(gate: GateProcess) -> None:
    plays(gate, SHARDS.encode())
    gate.set("hold_load")
    gate.start()
    assert eventually(lambda: gate.state()["loaded"] == [30, 46], LONG_S)  # a bar is complete when the next begins
    assert gate.state()["phase"] == "loading"


def test_the_stand_in_engine_tells_its_shards(gate: GateProcess) -> None:
    start_stub(gate, STUB_LOAD_S="3")
    first = eventually(lambda: gate.state()["loaded"], LONG_S)
    eventually(lambda: gate.state()["loaded"] == [46, 46], LONG_S)
    assert first[1] == 46
    gate.in_phase("ready")


def test_every_byte_passes_on_its_own_stream(gate: GateProcess) -> None:
    content = RECORDING.read_bytes() + b"".join(NOISE.values())
    plays(gate, content)
    gate.start()
    gate.in_phase("ready")
    whole = (gate.folder / "stdout").read_bytes() == content[::-1], gate.output_of_server() == content
    assert whole == (True, True)


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
def test_a_line_that_only_resembles_a_known_one_is_ignored(gate: GateProcess, noise: bytes) -> None:
    plays(gate, noise)
    gate.start()
    assert gate.in_phase("ready")["loaded"] is None
    assert gate.phases() == ["loading", "warming", "ready"]


def test_output_that_nobody_takes_is_dropped_and_counted_and_holds_up_nobody(gate: GateProcess) -> None:
    plays(gate, b"0123456789abcde\n" * 500_000)  # 8 MB twice, into a pipe that holds 64 KiB
    inside, outside = os.pipe()
    try:
        gate.start(output=outside)
        gate.in_phase("ready")
        gate.set("says", "at last\n")
        taken = b""
        while b"at last" not in taken or taken.count(b'"output_dropped"') < 2:  # each stream tells its own loss
            taken += os.read(inside, 1 << 16)
    finally:
        os.close(inside)
        os.close(outside)
    assert gate.state()["phase"] == "ready"
    assert taken.startswith(b"0123456789abcde\n") or taken[:1] in b"\n{"


def test_an_outside_that_is_gone_takes_nothing_with_it(gate: GateProcess) -> None:
    inside, outside = os.pipe()
    gate.set("hold_load")
    gate.start("--prints", output=outside)
    os.close(outside)
    os.close(inside)
    server = gate.number("started")
    gate.unset("hold_load")
    gate.in_phase("ready")
    gate.signal(15)
    assert gate.exit_code() == 0
    assert dead(server)


def test_the_last_words_of_a_server_come_before_the_gates_own(gate: GateProcess) -> None:
    words = b"".join(b"Traceback line %d\n" % number for number in range(20_000))
    plays(gate, words)
    gate.start("--dies")
    assert gate.exit_code() == 3
    written = (gate.folder / "stderr").read_bytes()
    assert written.index(b"Traceback line 19999\n") < written.index(b"exited with 3")
    whole = gate.output_of_server() == words
    assert whole
