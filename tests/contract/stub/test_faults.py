"""Faults on the control port: each can be set, is listed, does what it says, and can be cleared."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.contract.stub.conftest import StartStub
from tests.contract.stub.process import Stub
from tests.eventually import eventually

CHAT = "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3}


def faults(stub: Stub) -> Mapping[str, Any]:
    return json.loads(stub.request("GET", "/faults", port=stub.control_port)[2])


@pytest.fixture
def stub(start_stub: StartStub) -> Stub:
    return start_stub(STUB_DECODE_TOKENS_PER_S=100, STUB_TOKENIZER="bytes")


def test_what_is_set_is_listed_and_cleared_together(stub: Stub) -> None:
    calm = faults(stub)
    assert calm == {
        "loading": False, "slow_load": 0, "hang": False, "unavailable": False, "unhealthy": False, "cut": None,
        "jit_stall": 0, "die": False,
    }  # fmt: skip
    wanted = {"hang": True, "unavailable": True, "unhealthy": True, "cut": 4, "jit_stall": 1.5}
    assert stub.fault(wanted) == 200
    assert faults(stub) == {**calm, **wanted}
    assert stub.fault({"clear": True}) == 200
    assert faults(stub) == calm
    assert stub.post(CHAT, HELLO)[0] == 200


def test_wrong_faults_are_refused_with_what_there_is(stub: Stub) -> None:
    wrong = [{"hang": 1}, {"cut": -1}, {"cut": True}, {"jit_stall": "x"}, {"unavailable": None}, {"clear": False}, []]
    for fault in wrong:
        status, _, answer = stub.request("POST", "/faults", json.dumps(fault), port=stub.control_port)
        assert status == 400, fault
        assert "expected" in json.loads(answer)["error"]
    assert b"no such fault; there are slow_load, hang" in stub.request(
        "POST", "/faults", '{"explode":true}', port=stub.control_port
    )[2]  # fmt: skip
    assert stub.request("GET", "/faults")[0] == 404  # the public port has no such door


def test_a_hung_engine_stops_old_and_new_requests_while_health_stays_good(stub: Stub) -> None:
    _, old = stub.stream(max_tokens=60)
    assert eventually(lambda: stub.metric("vllm:generation_tokens_total") > 1, 5)
    assert stub.fault({"hang": True}) == 200
    tokens = stub.metric("vllm:generation_tokens_total")
    _, new = stub.stream(max_tokens=2)
    assert new.status == 200
    assert eventually(lambda: stub.metric("vllm:num_requests_running") == 2, 5)
    assert [stub.request("GET", path)[0] for path in ("/health", "/v1/models", "/metrics")] == [200] * 3
    assert stub.metric("vllm:generation_tokens_total") == tokens
    assert stub.fault({"hang": False}) == 200
    assert old.read().endswith(b"[DONE]\n\n")
    assert new.read().count(b"\n\n") == 4


def test_an_unavailable_server_answers_503_to_requests_and_stays_healthy(stub: Stub) -> None:
    assert stub.fault({"unavailable": True}) == 200
    for path, body in ((CHAT, HELLO), ("/v1/completions", {"prompt": "x"}), ("/v1/responses", {"input": "x"})):
        status, answer = stub.post(path, body)
        assert (status, answer["error"]["type"]) == (503, "Service Unavailable")
    assert stub.post("/v1/messages", {**HELLO, "model": "stub"})[0] == 503
    assert stub.request("GET", "/health")[0] == 200
    assert stub.fault({"unavailable": False, "unhealthy": True}) == 200
    assert (stub.post(CHAT, HELLO)[0], stub.request("GET", "/health")[0]) == (200, 503)


def test_a_cut_stream_ends_without_its_end_after_so_many_events(stub: Stub) -> None:
    assert stub.fault({"cut": 4}) == 200
    _, answer = stub.stream(max_tokens=50)
    with pytest.raises(http.client.IncompleteRead) as cut:
        answer.read()
    assert cut.value.partial.count(b"\n\n") == 4
    assert eventually(lambda: stub.metric("vllm:num_requests_running") == 0, 5)
    assert stub.post(CHAT, HELLO)[0] == 200  # only streams are cut
    assert stub.fault({"cut": None}) == 200
    assert stub.stream(max_tokens=50)[1].read().endswith(b"[DONE]\n\n")


def test_a_new_shape_stalls_everybody_once_for_each_class_of_length(stub: Stub) -> None:
    def longest_wait(length: int) -> float:
        before = stub.metric("vllm:time_to_first_token_seconds_sum")
        assert stub.post("/v1/completions", {"prompt": "x" * length, "max_tokens": 1})[0] == 200
        return stub.metric("vllm:time_to_first_token_seconds_sum") - before

    assert longest_wait(100) < 0.5
    assert stub.fault({"jit_stall": 0.7}) == 200
    _, running = stub.stream(messages=[{"role": "user", "content": "y"}], max_tokens=300)
    assert eventually(lambda: stub.metric("vllm:num_requests_running") == 1, 5)
    assert [longest_wait(length) > 0.6 for length in (100, 110, 1000, 1010, 100)] == [True, False, True, False, False]
    assert running.read().endswith(b"[DONE]\n\n")
    # The stream that ran meanwhile felt three stalls: its own and two of others.
    slow = "vllm:inter_token_latency_seconds_bucket"
    assert stub.metric(slow, le="+Inf") - stub.metric(slow, le="0.5") >= 2


def test_faults_may_be_set_while_it_loads(start_stub: StartStub) -> None:
    stub = start_stub(wait=False, STUB_LOAD_S=60)
    assert eventually(lambda: stub.fault({"unavailable": True, "slow_load": 0.2}) == 200, 10)
    assert eventually(lambda: stub.request("GET", "/health")[0] == 200, 10)
    assert stub.post(CHAT, HELLO)[0] == 503
