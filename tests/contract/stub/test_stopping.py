"""SIGTERM, row by row of what was seen of the real server; each row is chosen by a setting."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

import pytest

from tests.contract.stub.conftest import StartStub
from tests.contract.stub.process import JSON, Stub
from tests.contract.stub.recordings import events
from tests.contract.stub.test_process import assert_lost
from tests.eventually import eventually

CHAT = "/v1/chat/completions"


def two_requests(stub: Stub) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
    """A stream and a whole answer, both running."""
    _, stream = stub.stream(max_tokens=5000)
    whole = stub.connection()
    whole.request("POST", CHAT, '{"messages":[{"role":"user","content":"x"}],"max_tokens":5000}', JSON)
    assert eventually(lambda: stub.metric("vllm:num_requests_running") == 2, 5)
    return stream, whole


def test_abort_ends_streams_in_good_form_and_cuts_whole_answers(start_stub: StartStub) -> None:
    stub = start_stub(STUB_SIGTERM="abort", STUB_DECODE_TOKENS_PER_S=50)
    stream, whole = two_requests(stub)
    stub.terminate()
    seen = events(stream.read().decode())
    assert (seen[-1], seen[-2]["choices"][0]["finish_reason"]) == ("[DONE]", "abort")
    answer = whole.getresponse()
    body: dict[str, Any] = json.loads(answer.read())
    assert (answer.status, body["choices"][0]["finish_reason"]) == (200, "abort")
    assert body["usage"]["completion_tokens"] < 5000
    assert stub.process.wait(10) == 0


def test_error_ends_streams_with_an_error_event_and_whole_answers_with_500(start_stub: StartStub) -> None:
    stub = start_stub(STUB_SIGTERM="error", STUB_DECODE_TOKENS_PER_S=50)
    stream, whole = two_requests(stub)
    stub.terminate()
    assert_lost(stream.read())
    assert whole.getresponse().status == 500
    assert stub.process.wait(10) == 0


@pytest.mark.parametrize("settings", [{"SIGTERM": "hang"}, {"DRAIN_END": "hang", "SHUTDOWN_TIMEOUT_S": 0.2}])
def test_a_hang_leaves_streams_open_and_silent_and_the_port_closed(
    start_stub: StartStub, settings: dict[str, object]
) -> None:
    named = {f"STUB_{name}": value for name, value in settings.items()}
    stub = start_stub(STUB_DECODE_TOKENS_PER_S=50, **named)
    stream, _ = two_requests(stub)
    stub.terminate()
    assert eventually(lambda: "Waiting for connections" in stub.log.read_text(), 5)
    assert eventually(stub.refuses_connections, 2)
    stream.fp.raw._sock.settimeout(1.5)  # what was on its way, then silence
    with pytest.raises(TimeoutError):
        stream.read()
    stub.terminate()
    assert stub.process.poll() is None


def test_a_server_that_swallows_sigterm_ends_by_sigkill_only(start_stub: StartStub) -> None:
    stub = start_stub(STUB_SIGTERM="swallow")
    for count in (1, 2, 3):
        stub.terminate()
        assert eventually(lambda count=count: stub.log.read_text().count("swallowed") == count, 5)
    assert stub.request("GET", "/health")[0] == 200
    loading = start_stub(wait=False, STUB_SIGTERM="swallow", STUB_LOAD_S=60)
    assert eventually(lambda: "shards" in loading.log.read_text(), 10)
    loading.terminate()
    loading.terminate()
    assert eventually(lambda: "swallowed" in loading.log.read_text(), 5)
    assert loading.process.poll() is None


def test_a_load_that_sigterm_met_is_stuck_for_good_and_a_second_one_ends_it(start_stub: StartStub) -> None:
    stub = start_stub(wait=False, STUB_SIGTERM_LOAD="stuck", STUB_LOAD_S=0.7)
    assert eventually(lambda: "shards" in stub.log.read_text(), 10)
    stub.terminate()
    assert eventually(lambda: "swallowed" in stub.log.read_text(), 5)
    began = time.monotonic()
    assert eventually(lambda: time.monotonic() - began > 1.2 and stub.refuses_connections(), 5)
    stub.terminate()
    assert stub.process.wait(10) == -2


def test_a_load_can_die_of_sigterm_as_it_does_while_importing(start_stub: StartStub) -> None:
    stub = start_stub(wait=False, STUB_SIGTERM_LOAD="die", STUB_LOAD_S=60)
    assert eventually(lambda: "shards" in stub.log.read_text(), 10)
    stub.terminate()
    assert stub.process.wait(10) == -15


def test_the_process_may_stay_some_time_after_its_last_stream(start_stub: StartStub) -> None:
    stub = start_stub(STUB_EXIT_LAG_S=1.5)
    _, stream = stub.stream(max_tokens=5)
    stub.terminate()
    assert stream.read().endswith(b"[DONE]\n\n")
    assert eventually(stub.refuses_connections, 2)
    assert stub.process.poll() is None
    assert stub.process.wait(10) == 0


def test_later_releases_drain_with_an_open_port_that_refuses_new_requests(start_stub: StartStub) -> None:
    stub = start_stub(STUB_RELEASE="0.32.0", STUB_DECODE_TOKENS_PER_S=20)
    _, stream = stub.stream(max_tokens=30)
    assert eventually(lambda: stub.metric("vllm:num_requests_running") == 1, 5)
    stub.terminate()
    assert eventually(lambda: "Shutting down" in stub.log.read_text(), 5)
    assert stub.request("GET", "/health")[0] == 200
    status, answer = stub.post(CHAT, {"messages": [{"role": "user", "content": "x"}]})
    assert (status, answer["error"]["message"]) == (500, "cannot schedule new futures after shutdown")
    assert stream.read().count(b"\n\n") == 32
    assert stub.process.wait(10) == 0
