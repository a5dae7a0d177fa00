"""How real vLLM stops and dies, and that the stand-in does the same: each scene is played on both.

What the real server does on a stop without a drain time is a race (engine 0.26.0: cut answers, errors or a hang). The
stand-in has a knob for each way and is held against the one that was seen.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from tests.contract.stub.conftest import StartStub
from tests.contract.stub.process import Stub
from tests.contract.stub.recordings import shape
from tests.engine.conftest import COMPARED
from tests.engine.real import TINY, Real
from tests.eventually import eventually

# A stream that outlasts the checks, and one that never ends by itself: real vLLM makes some 500 tokens a second here.
LONG: dict[str, Any] = {"max_tokens": 6000, "ignore_eos": True, "temperature": 0}
ENDLESS = {**LONG, "max_tokens": 30_000}
FLAGS = f"{TINY} --max-model-len 32768 --max-num-seqs 4"
HUNG_AFTER_S = 20.0
STUB = {
    "STUB_MODEL": "tiny", "STUB_TOKENIZER": "bytes", "STUB_MAX_MODEL_LEN": 32_768, "STUB_DECODE_TOKENS_PER_S": 500,
}  # fmt: skip
Server = Real | Stub
StartReal = Callable[..., Real]
Seen = dict[str, Any]


def exit_code(server: Server) -> int | None:
    return server.exit_code() if isinstance(server, Real) else server.process.poll()


def ended(server: Server, within_s: float) -> int | str:
    """The status it ended with, or that it is still there."""
    try:
        return eventually(lambda: (exit_code(server),) if exit_code(server) is not None else None, within_s)[0]
    except AssertionError:
        return "still there"


def last_events(response: Any) -> list[Any]:
    """The last two events of a stream, understood; `cut` when it ends without an end."""
    try:
        text = response.read().decode()
    except OSError:  # a time-out: open and silent
        return ["silent"]
    blocks = [block.removeprefix("data: ") for block in text.split("\n\n") if block.strip()]
    return [block if block == "[DONE]" else json.loads(block) for block in blocks[-2:]]


def said(event: Any) -> Any:
    """What counts of an event: an error word by word, the end of a choice, else its shape."""
    if isinstance(event, dict) and "error" in event:
        return event
    if isinstance(event, dict) and event.get("choices"):
        return {"finish_reason": event["choices"][0]["finish_reason"], "shape": shape(event)}
    return event


def drained(server: Server) -> Seen:
    """SIGTERM with a drain time while a stream runs."""
    connection, response = server.stream(**LONG)
    first = response.readline()
    server.terminate()
    refused = eventually(server.refuses_connections, 10)
    running = exit_code(server) is None
    events = last_events(response)
    connection.close()
    return {
        "first": first[:6],
        "refused while the stream ran": refused and running,
        "end": [said(event) for event in events],
        "exit": ended(server, 60),
    }


def test_a_drain_refuses_new_connections_and_finishes_the_stream(start_real: StartReal, start_stub: StartStub) -> None:
    real = drained(start_real(f"{FLAGS} --shutdown-timeout 60"))
    stub = drained(start_stub(**STUB, STUB_SHUTDOWN_TIMEOUT_S=60))
    assert real["refused while the stream ran"] and real["end"][-1] == "[DONE]" and real["exit"] == 0, real
    assert stub == real
    COMPARED["scenes of signals"] += 1


def stopped(server: Server) -> Seen:
    """SIGTERM without a drain time while a stream runs."""
    connection, response = server.stream(**ENDLESS)
    response.readline()
    connection.sock.settimeout(HUNG_AFTER_S)  # type: ignore[union-attr]
    server.terminate()
    events = last_events(response)
    way = "hang" if events == ["silent"] else "error" if "error" in events[0] else "abort"
    found = {"way": way, "end": [said(event) for event in events]}
    return {**found, "exit": ended(server, 1 if way == "hang" else 30)}


def test_a_stop_without_a_drain_time_ends_in_one_of_the_three_ways_that_the_stand_in_plays(
    start_real: StartReal, start_stub: StartStub
) -> None:
    real = stopped(start_real(FLAGS))
    stub = stopped(start_stub(**STUB, STUB_SIGTERM=real["way"]))
    assert stub == real
    COMPARED[f"scenes of signals: a race, this time {real['way']}"] += 1


def killed(server: Server, kill: Callable[[], object]) -> Seen:
    """The engine dies while a stream runs."""
    connection, response = server.stream(**ENDLESS)
    response.readline()
    kill()
    events = last_events(response)
    connection.close()
    return {"end": [said(event) for event in events], "exit": ended(server, 30)}


def test_the_death_of_the_engine_is_an_error_in_the_stream_and_exit_status_0(
    start_real: StartReal, start_stub: StartStub
) -> None:
    vllm, stand_in = start_real(FLAGS), start_stub(**STUB)
    real = killed(vllm, lambda: vllm.signal("KILL", "EngineCore"))
    stub = killed(stand_in, lambda: stand_in.fault({"die": True}))
    assert real["exit"] == 0 and "error" in real["end"][0], real
    assert stub == real
    COMPARED["scenes of signals"] += 1


def test_an_idle_server_ends_with_status_0_on_sigterm(start_real: StartReal, start_stub: StartStub) -> None:
    for server in (start_real(f"{FLAGS} --shutdown-timeout 60"), start_stub(**STUB, STUB_SHUTDOWN_TIMEOUT_S=60)):
        server.terminate()
        assert ended(server, 30) == 0
    COMPARED["scenes of signals"] += 1


def swallowed(server: Server, loads: Callable[[], bool]) -> Seen:
    """SIGTERM while the model is loaded, and another one later."""
    eventually(loads, 240, every_s=0.1)
    server.terminate()
    end = time.monotonic() + 3
    while time.monotonic() < end:
        if exit_code(server) is not None:
            return {"first": exit_code(server)}
        time.sleep(0.1)
    server.terminate()
    return {"first": "swallowed", "second": "ended" if ended(server, 45) != "still there" else "swallowed"}


def test_a_sigterm_during_the_load_is_swallowed_and_a_second_one_ends_it(
    start_real: StartReal, start_stub: StartStub
) -> None:
    vllm = start_real(FLAGS, wait=False)
    real = swallowed(vllm, lambda: "Starting to load model" in vllm.log())
    stand_in = start_stub(wait=False, **STUB, STUB_LOAD_S=3.5)
    stub = swallowed(stand_in, lambda: "shards" in stand_in.log.read_text())
    assert real == {"first": "swallowed", "second": "ended"}
    assert stub == real
    COMPARED["scenes of signals"] += 1
