"""Bodies are judged by the policy service, on every route that has one, and nothing passes while it cannot be asked."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from policy.judge import Rules

from tests.contract.gateway import wire
from tests.contract.gateway.harness import CHAT, COUNT, KEY, MESSAGES, SOON_S, UPSTREAM_KEY, Answer, Gateway
from tests.contract.gateway.judged import Recorder, judged
from tests.contract.policy.process import Policy
from tests.eventually import eventually

CASES = Path(__file__).parents[2] / "fixtures/cases"
MIB = 1 << 20
LIMIT = 32 * MIB  # of the policy standard
GOOD: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
# A body that each route refuses, and the field at fault.
WRONG = [
    (CHAT, {**GOOD, "temperature": 3}, "temperature"),
    ("/v1/completions", {"model": "m", "prompt": "hi", "max_tokens": "5"}, "max_tokens"),
    ("/v1/responses", {"model": "m", "input": "hi", "temperature": -1}, "temperature"),
    (MESSAGES, {**GOOD, "temperature": 3}, None),
    (COUNT, {"model": "m", "messages": "hi"}, None),
    ("/tokenize", {"model": "m", "prompt": 5}, "prompt"),
    ("/detokenize", {"model": "m", "tokens": "x"}, "tokens"),
]


def bodies() -> list[tuple[str, bytes]]:
    """The field cases: one body a file, or one a line."""
    found = []
    for path in sorted(CASES.glob("F*")):
        if path.name in ("F14.txt", "F22.json"):  # a program; a list with expectations
            continue
        lines = [path.read_bytes()] if path.suffix == ".json" else path.read_bytes().splitlines()
        found += [(f"{path.stem}.{number}", line) for number, line in enumerate(lines)]
    found += [
        (f"F22.{n}", json.dumps(c["body"]).encode()) for n, c in enumerate(json.loads((CASES / "F22.json").read_text()))
    ]
    head = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"metadata":'
    found += [(f"F14.{depth}", head + b"[" * depth + b"]" * depth + b"}") for depth in (100, 1000, 100_000)]
    return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Policy standard; tests leave it as it was."""
    with judged(tmp_path_factory.mktemp("judged")) as gateway:
        yield gateway


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Gateway]:
    """One whose service may be broken."""
    with judged(tmp_path / "own") as gateway:
        yield gateway


def service(gateway: Gateway) -> Policy:
    assert gateway.policy is not None
    return gateway.policy


def chat(gateway: Gateway, body: object = GOOD, **headers: str) -> Answer:
    return gateway.ask("POST", CHAT, body, headers={"content-type": "application/json", **headers})


def exactly(size: int) -> bytes:
    """A good body of so many bytes (E04)."""
    empty = json.dumps({**GOOD, "messages": [{"role": "user", "content": ""}]})
    return empty.replace('""', f'"{"x" * (size - len(empty))}"', 1).encode()


@pytest.mark.parametrize(("name", "body"), bodies(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_field_case_gets_the_verdict_of_the_pure_rules(served: Gateway, name: str, body: bytes) -> None:
    rules = Rules.parse(json.dumps(served.policy_rules()).encode())
    violation = rules.judge(CHAT, body).violation
    answer = chat(served, body)
    if violation is None:
        assert answer.status == 200, answer
        return
    error = answer.json["error"]
    assert (answer.status, error["code"], error["param"]) == (violation.status, violation.code, violation.param)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"] == error["request_id"] != ""


@pytest.mark.parametrize(("path", "body", "param"), WRONG)
def test_every_route_refuses_a_wrong_body_in_its_own_form(
    served: Gateway, path: str, body: dict[str, Any], param: str | None
) -> None:
    reached = len(served.replicas[0].requests)
    answer = served.ask("POST", path, body)
    assert answer.status == 400
    if path in (MESSAGES, COUNT):
        assert answer.messages_error["type"] == "invalid_request_error"
    else:
        assert answer.json["error"]["param"] == param
        assert answer.json["error"]["type"] == "invalid_request_error"
    assert len(served.replicas[0].requests) == reached


def test_a_get_without_a_body_is_not_judged(served: Gateway) -> None:
    before = service(served).metric("policy_requests_total")
    assert served.ask("GET", "/v1/models").status == 200
    assert service(served).metric("policy_requests_total") == before


@pytest.mark.parametrize("size", [32768, 32769, MIB, MIB + 1, 4 * MIB, LIMIT - 1, LIMIT])  # E04
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_up_to_the_limit_arrives_byte_for_byte(served: Gateway, size: int, chunked: bool) -> None:
    body = exactly(size)
    assert len(body) == size
    answer = chat(served, iter([body[: size // 3], body[size // 3 :]]) if chunked else body)
    assert answer.status == 200, answer
    seen = served.replicas[0].requests[-1]
    assert (seen["bytes"], seen["sha256"]) == (size, hashlib.sha256(body).hexdigest())
    assert any(line.lower() == f"content-length: {size}" for line in seen["headers"]) is not chunked


def test_one_byte_above_the_limit_is_413_that_names_it(served: Gateway) -> None:
    body = exactly(LIMIT + 1)
    head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\nauthorization: Bearer {KEY}\r\n\r\n"
    early = wire.send(served.port, head.encode())  # before a byte of the body
    late = chat(served, iter([body[:MIB], body[MIB:]]))
    for answer in (early, late):
        assert answer.status == 413, answer
        assert answer.json["error"]["code"] == "request_too_large" and str(LIMIT) in answer.json["error"]["message"]


@pytest.mark.parametrize("first", [True, False])  # E13
def test_the_only_bad_field_is_seen_wherever_it_stands_in_two_megabytes(served: Gateway, first: bool) -> None:
    long = {**GOOD, "messages": [{"role": "user", "content": "x" * 2_000_000}]}
    bad = {"temperature": 3}
    answer = chat(served, {**bad, **long} if first else {**long, **bad})
    assert (answer.status, answer.json["error"]["param"]) == (400, "temperature")


def test_a_compressed_body_reaches_the_replica_plain_with_its_true_length(served: Gateway) -> None:
    plain = exactly(3 * MIB)
    assert chat(served, gzip.compress(plain), **{"content-encoding": "gzip"}).status == 200
    seen = served.replicas[0].requests[-1]
    assert (seen["bytes"], seen["sha256"]) == (len(plain), hashlib.sha256(plain).hexdigest())
    assert not any(line.lower().startswith("content-encoding") for line in seen["headers"])
    assert chat(served, b"x", **{"content-encoding": "br"}).status == 415


def test_the_log_knows_what_was_asked_and_refused(served: Gateway) -> None:
    answers = chat(served, {**GOOD, "stream": True}), chat(served, {**GOOD, "n": 10_000})
    found = [
        eventually(
            lambda a=a: [x for x in served.lines("access") if x["request_id"] == a.headers["x-request-id"]], SOON_S
        )  # type: ignore[misc]
        for a in answers
    ]
    good, bad = found[0][0], found[1][0]
    assert (good["model"], good["max_tokens"], good["stream"], good["verdict"]) == ("m", 5, True, "ok")
    assert (bad["verdict"], bad["param"], bad["status"]) == ("refused", "n", 400) and bad["rule"]


def check_unavailable(answer: Answer) -> None:
    assert (answer.status, answer.error["code"]) == (503, "policy_unavailable"), answer
    assert answer.headers["retry-after"] == "2"


def test_a_killed_service_is_503_streams_go_on_and_it_recovers_by_itself(own: Gateway) -> None:
    with stream(own) as (connection, replica):
        pids = service(own).workers().values()
        service(own).process.send_signal(signal.SIGSTOP)  # its supervisor would start them again at once
        for worker in (0, 1):
            service(own).kill(worker)
        assert len(pids) == 2
        check_unavailable(eventually(lambda: (a := chat(own)).status == 503 and a, SOON_S))
        answer = own.ask("POST", MESSAGES, GOOD)
        assert answer.messages_error["type"] == "overloaded_error" and answer.headers["retry-after"] == "2"
        assert own.ask("GET", "/v1/models").status == 200  # nothing to judge
        service(own).process.send_signal(signal.SIGCONT)
        eventually(lambda: chat(own).status == 200, SOON_S)
        for _ in range(3):
            replica.step()
        assert connection.getresponse().read().endswith(b"[DONE]\n\n")


def test_a_frozen_service_is_503_in_seconds_streams_go_on_and_it_recovers_by_itself(own: Gateway) -> None:
    with stream(own) as (connection, replica):
        service(own).process.send_signal(signal.SIGSTOP)
        for worker in (0, 1):
            service(own).kill(worker, signal.SIGSTOP)
        first = chat(own)
        check_unavailable(first)
        line = eventually(
            lambda: [x for x in own.lines("access") if x["request_id"] == first.headers["x-request-id"]], SOON_S
        )[0]
        assert line["duration_ms"] < 5000
        eventually(lambda: own.stat("cluster.policy.membership_healthy") == 0, SOON_S)
        check_unavailable(chat(own))
        for worker in (0, 1):
            service(own).kill(worker, signal.SIGCONT)
        service(own).process.send_signal(signal.SIGCONT)
        eventually(lambda: chat(own).status == 200, SOON_S)
        for _ in range(3):
            replica.step()
        assert connection.getresponse().read().endswith(b"[DONE]\n\n")


class stream:
    """A stream in flight that goes on step by step."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)

    def __enter__(self) -> tuple[http.client.HTTPConnection, Any]:
        body = json.dumps({**GOOD, "stream": True, "max_tokens": 3, "act": "step"})
        self._connection.request("POST", CHAT, body, {"authorization": f"Bearer {KEY}"})
        eventually(lambda: self._gateway.stat("cluster.vllm.upstream_rq_active") == 1, SOON_S)
        return self._connection, self._gateway.replicas[0]

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def test_when_one_of_its_processes_dies_no_request_is_refused(own: Gateway) -> None:
    service(own).process.send_signal(signal.SIGSTOP)
    with ThreadPoolExecutor(4) as pool:
        early = [pool.submit(chat, own) for _ in range(40)]
        service(own).kill(1)
        late = [pool.submit(chat, own) for _ in range(200)]
        answers = [future.result() for future in early + late]
    service(own).process.send_signal(signal.SIGCONT)
    lost = [answer for answer in answers[40:] if answer.status != 200]
    assert lost == []
    # What it was just judging is lost with it; no more than it could have in hand.
    assert sum(answer.status != 200 for answer in answers[:40]) <= 4


# ---- what the service is told, and what it may say


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[tuple[Gateway, Recorder]]:
    """A gateway in front of a service that records."""
    recorder = Recorder(truncated="turns=3", truncated_turns=3)
    gateway = Gateway(tmp_path, count=1)
    gateway.policy = recorder  # type: ignore[assignment]
    with gateway.serving():
        yield gateway, recorder


def test_the_service_is_told_what_judging_needs_and_no_credential(recorded: tuple[Gateway, Recorder]) -> None:
    gateway, recorder = recorded
    headers = {"cookie": "c=planted", "x-api-key": "planted", "x-other": "planted", "content-type": "application/json"}
    answer = gateway.ask("POST", CHAT + "?key=planted", GOOD, headers=headers)
    assert answer.status == 200
    told = recorder.told[0]
    names = {header.key for header in told.request_headers.headers.headers}
    assert names == {":path", "content-type", "content-length", "x-request-id"}
    assert b"planted" not in told.SerializeToString() and KEY.encode() not in told.SerializeToString()
    assert told.metadata_context.filter_metadata["flashbox.auth"].fields["client"].string_value == "alice"


def test_dropped_turns_are_told_in_a_header_and_only_then(recorded: tuple[Gateway, Recorder], served: Gateway) -> None:
    assert recorded[0].ask("POST", CHAT, GOOD).headers["x-flashbox-truncated"] == "turns=3"
    assert "x-flashbox-truncated" not in chat(served).headers


# ---- counting tokens for the service


def internal(gateway: Gateway, peer: str, path: str = "/tokenize", method: str = "POST") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.internal_port, timeout=20, source_address=(peer, 0))
    try:
        connection.request(method, path, "{}", {"authorization": "Bearer planted"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_only_the_policy_service_may_count_tokens_and_it_needs_no_key(served: Gateway) -> None:
    assert internal(served, "127.0.0.1") == 200  # its address in these tests
    assert f"authorization: Bearer {UPSTREAM_KEY}" in served.replicas[0].requests[-1]["headers"]
    reached = len(served.replicas[0].requests)
    for path in ("/tokenize", "/tokenize?x", "//tokenize", "/%74okenize", "/tokenize/"):
        assert internal(served, "127.0.0.9", path) in (403, 404)
    assert internal(served, "127.0.0.1", method="GET") == 404
    assert internal(served, "127.0.0.9", "/ready", "GET") == 200
    assert len(served.replicas[0].requests) == reached


def test_rules_replaced_while_it_runs_hold_for_the_next_requests(own: Gateway) -> None:
    strict = own.policy_rules()
    assert chat(own, {**GOOD, "temperature": 0}).status == 200
    text = json.dumps(strict).replace('"minimum": 0, "maximum": 2', '"minimum": 0.01, "maximum": 2')
    assert text != json.dumps(strict)
    service(own).write({**json.loads(text), "version": "other"})
    eventually(lambda: chat(own, {**GOOD, "temperature": 0}).status == 400, SOON_S)
