"""Only so many requests run, the others wait, and a client that goes away frees its place."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import aiohttp

from tests.contract.stub.conftest import StartStub
from tests.contract.stub.process import Stub
from tests.counts import SOAK
from tests.eventually import eventually

STREAMS, TOKENS = (2000, 60) if SOAK else (200, 6)


def running_and_waiting(stub: Stub) -> tuple[float, float]:
    return stub.metric("vllm:num_requests_running"), stub.metric("vllm:num_requests_waiting")


def becomes(stub: Stub, running: int, waiting: int) -> Callable[[], bool]:
    return lambda: running_and_waiting(stub) == (running, waiting)


def test_of_eight_requests_on_two_places_two_run_and_six_wait(start_stub: StartStub) -> None:
    stub = start_stub(STUB_MAX_NUM_SEQS=2, STUB_DECODE_TOKENS_PER_S=50)
    streams = [stub.stream(max_tokens=50) for _ in range(8)]
    assert eventually(becomes(stub, 2, 6), 5)
    assert stub.metric("vllm:num_requests_waiting_by_reason", reason="capacity") == 6
    assert stub.metric("vllm:kv_cache_usage_perc") > 0
    assert [answer.read().count(b"\n\n") for _, answer in streams] == [52] * 8
    assert running_and_waiting(stub) == (0, 0)
    assert stub.metric("vllm:request_queue_time_seconds_count") == 8
    assert stub.metric("vllm:request_queue_time_seconds_sum") > 8  # 0+0+1+1+2+2+3+3 seconds, if no time were lost


def test_a_stream_gets_its_status_while_it_still_waits_and_its_first_event_only_when_it_runs(
    start_stub: StartStub,
) -> None:
    stub = start_stub(STUB_MAX_NUM_SEQS=1, STUB_DECODE_TOKENS_PER_S=5)
    first, _ = stub.stream(max_tokens=1000)
    second, answer = stub.stream(max_tokens=2)
    assert answer.status == 200
    assert eventually(becomes(stub, 1, 1), 5)
    first.close()
    assert answer.read().count(b"\n\n") == 4
    second.close()


def test_a_client_that_goes_away_frees_its_place_and_moves_no_counter(start_stub: StartStub) -> None:
    stub = start_stub(STUB_MAX_NUM_SEQS=2, STUB_DECODE_TOKENS_PER_S=10)
    connections = [stub.stream(max_tokens=5000)[0] for _ in range(3)]
    assert eventually(becomes(stub, 2, 1), 5)
    connections[2].close()  # the one that waits
    assert eventually(becomes(stub, 2, 0), 5, every_s=0.01)
    connections[0].close()  # one that runs
    assert eventually(becomes(stub, 1, 0), 5, every_s=0.01)
    connections[1].close()
    assert eventually(becomes(stub, 0, 0), 5, every_s=0.01)
    assert stub.metric("vllm:request_success_total") == 0
    assert stub.metric("vllm:e2e_request_latency_seconds_count") == 0
    assert eventually(lambda: stub.metric("http_requests_total", status="2xx") == 3, 5)


def test_a_client_that_goes_away_without_a_stream_frees_its_place_too(start_stub: StartStub) -> None:
    stub = start_stub(STUB_DECODE_TOKENS_PER_S=10)
    connection = stub.connection()
    body = '{"messages":[{"role":"user","content":"x"}],"max_tokens":5000}'
    connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
    assert eventually(becomes(stub, 1, 0), 5)
    connection.close()
    assert eventually(becomes(stub, 0, 0), 5, every_s=0.01)


def test_prompts_are_read_in_turn_at_the_speed_that_is_set(start_stub: StartStub) -> None:
    stub = start_stub(STUB_PREFILL_TOKENS_PER_S=1000, STUB_TOKENIZER="bytes")
    streams = [stub.stream(messages=[{"role": "user", "content": "x" * 496}], max_tokens=1) for _ in range(3)]
    assert all(answer.read().endswith(b"[DONE]\n\n") for _, answer in streams)
    assert stub.metric("vllm:prompt_tokens_total") == 1500
    # 0.5 s each, one after another: their first tokens are due after 0.5, 1.0 and 1.5 s
    assert stub.metric("vllm:time_to_first_token_seconds_bucket", le="0.5") <= 1
    assert stub.metric("vllm:time_to_first_token_seconds_sum") > 2.9


async def _whole_streams(port: int, count: int, tokens: int) -> int:
    """Open many streams at once; how many came whole."""
    body = {"messages": [{"role": "user", "content": "hello"}], "stream": True, "max_tokens": tokens}

    async def one(session: aiohttp.ClientSession) -> bool:
        async with session.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body) as answer:
            return (await answer.read()).count(b"\n\n") == tokens + 2

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=280)) as session:
        return sum(await asyncio.gather(*(one(session) for _ in range(count))))


def test_many_slow_streams_all_come_whole(start_stub: StartStub) -> None:
    """200 streams at 2 tokens a second; 2,000 with FLASHBOX_SOAK=1, which must leave the process time to spare."""
    stub = start_stub(STUB_MAX_NUM_SEQS=STREAMS, STUB_DECODE_TOKENS_PER_S=2, STUB_PREFILL_TOKENS_PER_S=1_000_000)
    cpu, began = stub.metric("process_cpu_seconds_total"), time.monotonic()
    assert asyncio.run(_whole_streams(stub.port, STREAMS, TOKENS)) == STREAMS
    wall = time.monotonic() - began
    share = (stub.metric("process_cpu_seconds_total") - cpu) / wall
    print(f"{STREAMS} streams of {TOKENS} tokens: {wall:.1f} s, {share:.0%} of a core")
    assert stub.metric("vllm:generation_tokens_total") == STREAMS * TOKENS
    assert share < 0.9
