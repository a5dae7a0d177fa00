"""The metrics page has the recorded families, and its numbers move when vLLM's do."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.contract.stub.conftest import StartStub
from tests.contract.stub.process import Stub
from tests.contract.stub.recordings import FOLDER
from tests.eventually import eventually

_SAMPLE = re.compile(r"^([\w:]+)(?:\{(.*)\})? \S+$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# Labels whose values are part of the page's form. (`le` depends on the context length, which is server C's here.)
_FIXED_VALUES = {"le", "finished_reason", "reason", "sleep_state", "source", "engine", "generation", "model_name"}
CHAT = "/v1/chat/completions"


def comments(page: str) -> list[str]:
    """The HELP and TYPE lines in their order."""
    return [line for line in page.splitlines() if line.startswith("#")]


def samples(page: str) -> Iterable[tuple[str, tuple[tuple[str, str], ...]]]:
    """Names and labels of all samples; label values only where they are form."""
    for line in page.splitlines():
        if line and not line.startswith("#"):
            match = _SAMPLE.match(line)
            assert match, line
            labels = _LABEL.findall(match[2] or "")
            yield match[1], tuple((key, value if key in _FIXED_VALUES else "*") for key, value in labels)


def test_the_page_has_every_recorded_family_with_its_help_type_labels_and_buckets(recorded_server: Stub) -> None:
    hello = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    assert recorded_server.post(CHAT, hello)[0] == 200
    status, headers, raw = recorded_server.request("GET", "/metrics")
    ours, recorded = raw.decode(), (FOLDER / "metrics.txt").read_text()
    assert (status, headers["content-type"]) == (200, "text/plain; version=1.0.0; charset=utf-8")
    assert comments(ours) == comments(recorded)
    assert set(samples(ours)) == set(samples(recorded))


def test_numbers_are_written_as_the_recorded_page_writes_them(recorded_server: Stub) -> None:
    page = recorded_server.request("GET", "/metrics")[2].decode()
    values = [line.rsplit(" ", 1)[1] for line in page.splitlines() if not line.startswith("#")]
    odd = [value for value in values if not re.fullmatch(r"\d+\.\d+(e[+-]\d\d)?|\d(\.\d+)?e[+-]\d\d", value)]
    assert odd == []


def test_first_tokens_are_counted_at_once_and_queue_time_at_the_end(start_stub: StartStub) -> None:
    stub = start_stub(STUB_MAX_NUM_SEQS=1, STUB_DECODE_TOKENS_PER_S=20)
    first, first_answer = stub.stream(max_tokens=40)
    second, second_answer = stub.stream(max_tokens=1)
    assert eventually(lambda: stub.metric("vllm:time_to_first_token_seconds_count") == 1, 10)
    running = stub.metric("vllm:num_requests_running"), stub.metric("vllm:num_requests_waiting")
    assert (*running, stub.metric("vllm:request_queue_time_seconds_count")) == (1, 1, 0)
    assert first_answer.read().endswith(b"data: [DONE]\n\n")
    assert second_answer.read().endswith(b"data: [DONE]\n\n")
    assert stub.metric("vllm:request_queue_time_seconds_count") == 2
    assert stub.metric("vllm:request_success_total", finished_reason="length") == 2
    assert stub.metric("vllm:generation_tokens_total") == 41
    assert stub.metric("vllm:inter_token_latency_seconds_count") == 39
    first.close()
    second.close()


def test_http_requests_are_counted_by_handler_without_the_watching_routes(start_stub: StartStub) -> None:
    stub = start_stub(STUB_DECODE_TOKENS_PER_S=1000)
    stub.post("/tokenize", {"prompt": "a"})
    stub.post(CHAT, {})
    stub.request("GET", "/nope")
    stub.request("GET", "/health")
    stub.request("GET", CHAT)
    count = "http_requests_total"
    assert stub.metric(count, handler="/tokenize", method="POST", status="2xx") == 1
    assert stub.metric(count, handler=CHAT, method="POST", status="4xx") == 1
    assert stub.metric(count, handler="none", method="GET", status="4xx") == 2
    assert stub.metric(count) == 4


def test_every_route_that_answers_moves_the_same_counters(start_stub: StartStub) -> None:
    stub = start_stub(STUB_MODEL="m", STUB_DECODE_TOKENS_PER_S=1000, STUB_TOKENIZER="bytes")
    messages = [{"role": "user", "content": "x"}]
    bodies = {
        "/v1/chat/completions": {"messages": messages, "max_tokens": 4},
        "/v1/completions": {"prompt": "x", "max_tokens": 4},
        "/v1/responses": {"input": "x", "max_output_tokens": 4},
        "/v1/messages": {"model": "m", "messages": messages, "max_tokens": 4},
        "/invocations": {"messages": messages, "max_tokens": 4},
        "/inference/v1/generate": {"token_ids": [9], "sampling_params": {"max_tokens": 4}},
    }
    for done, (path, body) in enumerate(bodies.items(), 1):
        assert stub.post(path, body)[0] == 200
        assert stub.metric("http_requests_total", handler=path, method="POST", status="2xx") == 1
        assert stub.metric("vllm:generation_tokens_total") == 4 * done
        assert stub.metric("vllm:request_success_total", finished_reason="length") == done
        assert stub.metric("vllm:request_queue_time_seconds_count") == done
    assert stub.post("/v1/messages/count_tokens", bodies["/v1/messages"])[0] == 200
    assert stub.metric("vllm:generation_tokens_total") == 4 * len(bodies)
