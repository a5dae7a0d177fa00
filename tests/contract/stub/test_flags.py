"""Flags of the real server that change answers, and those that a release does not have."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.contract.stub.conftest import StartStub
from tests.contract.stub.process import Stub
from tests.contract.stub.recordings import FOLDER, events, shape
from tests.contract.stub.test_process import run_with
from tests.eventually import eventually

CHAT = "/v1/chat/completions"
USAGE_FLAGS = "--enable-force-include-usage --enable-per-request-metrics"


def usage_recordings() -> list[tuple[str, str, str]]:
    """Path, body and answer of each recorded request."""
    parts = re.split(r"^## ", (FOLDER / "usage.txt").read_text(), flags=re.MULTILINE)[1:]
    found = []
    for part in parts:
        asked, _, rest = part.partition("\n")
        path, _, body = asked.partition(" ")
        answer = rest.split("\n\n\n")[0] if '"stream"' in body else rest.splitlines()[0]
        found.append((path, body, answer.split("\ntruncate 4:")[0]))
    return found


RECORDED = usage_recordings()


def kept(path: str, answer: str) -> Any:
    """What is compared: the distinct forms of events, or of the one body."""
    if not answer.startswith("{"):
        seen = [event if isinstance(event, str) else shape(event) for event in events(answer)]
        return [item for index, item in enumerate(seen) if item not in seen[:index]]
    return shape(json.loads(answer))


@pytest.mark.parametrize(
    ("path", "body", "answer"), RECORDED, ids=[f"{path} {body[30:]}" for path, body, _ in RECORDED]
)
def test_usage_in_every_event_and_timings_have_the_recorded_form(
    path: str, body: str, answer: str, start_stub: StartStub
) -> None:
    stub = start_stub(STUB_MODEL="tiny", STUB_FLAGS=USAGE_FLAGS, STUB_DECODE_TOKENS_PER_S=1000)
    assert kept(path, stub.request("POST", path, body)[2].decode()) == kept(path, answer)


def test_the_recorded_requests_about_usage_are_all_there() -> None:
    assert len(RECORDED) == 10


def test_load_counts_requests_in_hand_only_with_its_flag(start_stub: StartStub) -> None:
    def load(stub: Stub) -> int:
        return json.loads(stub.request("GET", "/load")[2])["server_load"]

    for flags, expected in (("--enable-server-load-tracking", 8), ("", 0)):
        stub = start_stub(STUB_MAX_NUM_SEQS=2, STUB_DECODE_TOKENS_PER_S=5, STUB_FLAGS=flags)
        connections = [stub.stream(max_tokens=5000)[0] for _ in range(8)]
        assert eventually(lambda stub=stub: stub.metric("vllm:num_requests_waiting") == 6, 5)
        assert load(stub) == expected
        for connection in connections:
            connection.close()
        assert eventually(lambda stub=stub: load(stub) == 0, 5)


def test_a_request_id_is_given_back_or_made_with_its_flag(start_stub: StartStub) -> None:
    stub = start_stub(STUB_FLAGS="--enable-request-id-headers", VLLM_API_KEY="k")
    own = {"x-request-id": "mine"}
    assert [stub.request("GET", path, headers=own)[1]["x-request-id"] for path in ("/health", "/v1/models")] == [
        "mine"
    ] * 2
    made = [stub.request("GET", "/nope", headers={})[1]["x-request-id"] for _ in range(2)]
    assert len(set(made)) == 2
    assert all(re.fullmatch("[0-9a-f]{32}", name) for name in made)
    assert "x-request-id" not in start_stub().request("GET", "/health", headers=own)[1]


def test_flags_that_the_release_lacks_end_the_start_with_status_2() -> None:
    cases = {
        ("0.26.0", "--max-num-queued-reqs 6"): "stub: error: unrecognized arguments: --max-num-queued-reqs\n",
        ("0.26.0", "--enable-scale-out"): "stub: error: unrecognized arguments: --enable-scale-out\n",
        ("0.32.0", "--max-num-queued-reqs x"): (
            "stub: error: argument --max-num-queued-reqs: invalid int value: 'x'\n"
        ),
        ("0.33.0", "--swap-space=4"): "stub: error: unrecognized arguments: --swap-space=4\n",
    }
    for (release, flags), said in cases.items():
        result = run_with(STUB_RELEASE=release, STUB_FLAGS=flags)
        assert (result.returncode, result.stderr) == (2, said)


def test_a_queue_limit_of_later_releases_refuses_with_503_and_counts_it(start_stub: StartStub) -> None:
    stub = start_stub(STUB_RELEASE="0.32.0", STUB_FLAGS="--max-num-queued-reqs=2", STUB_DECODE_TOKENS_PER_S=5)
    connections = [stub.stream(max_tokens=5000)[0] for _ in range(2)]
    assert eventually(lambda: stub.metric("vllm:num_requests_running") == 2, 5)
    status, answer = stub.post(CHAT, {"messages": [{"role": "user", "content": "x"}]})
    assert (status, answer["error"]["type"]) == (503, "Service Unavailable")
    assert stub.metric("vllm:admission_rejections_total", reason="max_num_queued_reqs") == 1
    assert [connection.close() for connection in connections] == [None, None]


def test_a_queued_stream_of_later_releases_is_kept_alive_with_comments(start_stub: StartStub) -> None:
    flags = "--sse-keep-alive-interval 1"
    assert run_with(STUB_FLAGS=flags).returncode == 2
    stub = start_stub(STUB_RELEASE="0.32.0", STUB_FLAGS=flags, STUB_MAX_NUM_SEQS=1, STUB_DECODE_TOKENS_PER_S=20)
    _, first = stub.stream(max_tokens=50)  # 2.5 s
    _, second = stub.stream(max_tokens=2)
    assert first.read().count(b"keep-alive") == 0
    body = second.read()
    assert body.startswith(b": keep-alive\n\n")
    assert b"keep-alive" not in body[body.index(b"data: ") :]


def test_the_default_release_never_refuses_for_a_full_queue(start_stub: StartStub) -> None:
    stub = start_stub(STUB_MAX_NUM_SEQS=4, STUB_DECODE_TOKENS_PER_S=2000)
    answers = [stub.stream(max_tokens=20)[1] for _ in range(24)]
    assert [answer.status for answer in answers] == [200] * 24
    assert all(answer.read().endswith(b"[DONE]\n\n") for answer in answers)


def test_each_release_says_its_version_and_has_its_metrics(start_stub: StartStub) -> None:
    newer = {"admission_rejections", "prompt_tokens_cached_by_source", "request_num_preemptions"}
    for release in ("0.26.0", "0.32.0", "0.33.0"):
        stub = start_stub(STUB_RELEASE=release)
        assert json.loads(stub.request("GET", "/version")[2]) == {"version": release}
        page = stub.request("GET", "/metrics")[2].decode()
        assert {name for name in newer if f"vllm:{name}" in page} == (set() if release == "0.26.0" else newer)
        assert "vllm:tool_call_parser_invocations" not in page
    v4 = start_stub(STUB_MODE="deepseek_v4").request("GET", "/metrics")[2].decode()
    assert v4.count("vllm:tool_call_parser_invocations_total{") == 12
