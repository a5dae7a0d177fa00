"""Each answer that the gateway makes itself: status, OpenAI's form, a code to act on, Retry-After where it helps."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.contract.gateway import wire
from tests.contract.gateway.harness import CHAT, COUNT, KEY, MESSAGES, SOON_S, Answer, Gateway
from tests.eventually import eventually

AUTH = f"authorization: Bearer {KEY}\r\n".encode()
SELDOM = ("interval: 0.5s", "interval: 60s")  # health checks that notice nothing during a test
BAD_KEYS = [
    "",
    "Bearer",
    "Bearer ",
    "Bearer wrong",
    f"Basic {KEY}",
    KEY,
    f"Bearer  {KEY} x",
    f"Bearer {KEY},x",
    "Bearer " + "x" * 5000,
]


def check(answer: Answer, status: int, kind: str, code: str, retry_after: str | None = None) -> None:
    """All that a client may rely on."""
    assert answer.status == status, answer
    assert (answer.error["type"], answer.error["code"]) == (kind, code)
    assert answer.headers.get("retry-after") == retry_after


def check_messages(answer: Answer, status: int, kind: str, retry_after: str | None = None) -> None:
    """The same where Anthropic's API is spoken; its clients act on status, type and Retry-After."""
    assert answer.status == status, answer
    assert answer.messages_error["type"] == kind
    assert answer.headers.get("retry-after") == retry_after


def started(gateway: Gateway, **changes: tuple[str, str]) -> Gateway:
    gateway.write(**changes)
    gateway.start_replicas()
    gateway.start()
    return gateway


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"NONSENSE\r\n\r\n", "bad_request"),
        (b"GET /v1/models HTTP/1.1\r\n" + AUTH + b"\r\n", "bad_request"),  # no Host
        (b"GET /v1/models HTTP/1.1\r\nhost: a\r\nx_y: 1\r\n" + AUTH + b"\r\n", "bad_header"),
        (b"GET /v1%2fmodels HTTP/1.1\r\nhost: a\r\n" + AUTH + b"\r\n", "bad_path"),
        (b"GET /v1%5Cmodels HTTP/1.1\r\nhost: a\r\n" + AUTH + b"\r\n", "bad_path"),
        (b"GET /v1/models HTTP/1.1\r\nhost: a\r\nx: \x00\r\n" + AUTH + b"\r\n", "bad_request"),
    ],
)
def test_a_request_that_is_no_http_is_a_400(shared: Gateway, data: bytes, code: str) -> None:
    check(wire.send(shared.port, data), 400, "invalid_request_error", code)


def test_a_missing_and_a_wrong_key_are_401s_with_different_codes(shared: Gateway) -> None:
    check(shared.ask("GET", "/v1/models", key=""), 401, "authentication_error", "missing_api_key")
    for value in BAD_KEYS:
        answer = shared.ask("GET", "/v1/models", key="", headers={"authorization": value})
        check(answer, 401, "authentication_error", "invalid_api_key")


@pytest.mark.parametrize("path", [MESSAGES, COUNT, f"{MESSAGES}/batches", f"{MESSAGES}?beta=true"])
def test_a_missing_and_a_wrong_key_are_authentication_errors_in_anthropics_form(shared: Gateway, path: str) -> None:
    missing = shared.ask("POST", path, {"model": "m"}, key="")
    check_messages(missing, 401, "authentication_error")
    assert "x-api-key" in missing.messages_error["message"]
    check_messages(shared.ask("POST", path, {}, key="", headers={"x-api-key": "wrong"}), 401, "authentication_error")
    check_messages(shared.ask("POST", path, {}, key="wrong"), 401, "authentication_error")


def test_headers_over_the_limit_are_a_431_and_long_ones_below_it_pass(shared: Gateway) -> None:
    assert shared.ask("GET", "/v1/models", headers={"x-long": "x" * 30_000}).status == 200
    many = b"".join(b"x-%d: 1\r\n" % number for number in range(101))
    for extra in (b"x-long: " + b"x" * 61_440 + b"\r\n", many):
        answer = wire.send(shared.port, b"GET /v1/models HTTP/1.1\r\nhost: a\r\n" + AUTH + extra + b"\r\n")
        check(answer, 431, "invalid_request_error", "headers_too_large")


def test_a_request_that_does_not_arrive_is_a_408(new_gateway: Callable[..., Gateway]) -> None:
    gateway = new_gateway()
    text = gateway.rendered()["lds.yaml"]
    assert "request_headers_timeout: 10s" in text and "request_timeout: 300s" in text
    started(
        gateway,
        lds=(
            "request_headers_timeout: 10s\n              request_timeout: 300s",
            "request_headers_timeout: 1s\n              request_timeout: 2s",
        ),
    )
    for part in (
        b"GET /v1/models HT",
        b"POST %s HTTP/1.1\r\nhost: a\r\n%scontent-length: 9\r\n\r\n{" % (CHAT.encode(), AUTH),
    ):
        check(wire.send(gateway.port, part), 408, "timeout_error", "request_timeout")


def test_without_a_ready_replica_it_is_503_no_replica(new_gateway: Callable[..., Gateway]) -> None:
    gateway = new_gateway(count=1)
    gateway.write()
    gateway.start_replicas(ready=False)
    gateway.start(healthy=0)
    check(gateway.complete(), 503, "service_unavailable_error", "no_replica", "5")
    for path in (MESSAGES, COUNT):
        check_messages(gateway.ask("POST", path, {}), 503, "overloaded_error", "5")
    assert gateway.replicas[0].requests == []


def test_a_replica_that_refuses_connections_is_503_replica_unreachable(new_gateway: Callable[..., Gateway]) -> None:
    gateway = started(new_gateway(count=1), cds=SELDOM)
    gateway.replicas[0].kill()  # alone, so never ejected
    check(gateway.complete(), 503, "service_unavailable_error", "replica_unreachable", "2")


def test_a_replica_that_refuses_connections_is_an_overloaded_error_of_anthropics(
    new_gateway: Callable[..., Gateway],
) -> None:
    gateway = started(new_gateway(count=1), cds=SELDOM)
    gateway.replicas[0].kill()
    check_messages(gateway.ask("POST", MESSAGES, {}), 503, "overloaded_error", "2")


def test_a_request_that_a_replica_lost_is_503_and_is_not_run_again(shared: Gateway) -> None:
    before = [len(replica.requests) for replica in shared.replicas]
    answer = shared.ask("POST", CHAT, {"act": "lose"})
    check(answer, 503, "service_unavailable_error", "replica_lost", "1")
    assert sum(len(replica.requests) for replica in shared.replicas) == sum(before) + 1
    eventually(lambda: len(shared.healthy()) == 2, SOON_S)
    check_messages(shared.ask("POST", MESSAGES, {"act": "lose"}), 503, "api_error", "1")


def test_a_replicas_own_503_is_tried_elsewhere_and_then_passed_on_as_it_is(shared: Gateway) -> None:
    eventually(lambda: len(shared.healthy()) == 2, SOON_S)  # the test before may have had one ejected
    before = [len(replica.requests) for replica in shared.replicas]
    answer = shared.ask("POST", CHAT, {"act": "refuse"})
    assert (answer.status, answer.json) == (503, {"error": {"message": "busy", "code": 503}})
    assert answer.headers["x-request-id"]
    tried = [len(replica.requests) - old for replica, old in zip(shared.replicas, before, strict=True)]
    assert all(tried), tried


def test_an_answer_that_is_no_http_is_a_502(shared: Gateway) -> None:
    check(shared.ask("POST", CHAT, {"act": "garbage"}), 502, "service_unavailable_error", "bad_replica_answer")
    check_messages(shared.ask("POST", MESSAGES, {"act": "garbage"}), 502, "api_error")


def test_more_requests_than_allowed_are_503_over_capacity(new_gateway: Callable[..., Gateway]) -> None:
    gateway = started(new_gateway(max_requests=1))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(gateway.ask, "POST", CHAT, {"stream": True, "max_tokens": 100})
        eventually(lambda: gateway.stat("cluster.vllm.upstream_rq_active") == 1, SOON_S)
        check(gateway.complete(), 503, "overloaded_error", "over_capacity", "1")
        check_messages(gateway.ask("POST", MESSAGES, {}), 503, "overloaded_error", "1")
        assert running.result().body.endswith(b"[DONE]\n\n")
    assert gateway.complete().status == 200


def test_a_silent_replica_is_a_504_after_the_idle_time(new_gateway: Callable[..., Gateway]) -> None:
    gateway = started(new_gateway(idle_timeout_s=1))
    check(gateway.ask("POST", CHAT, {"act": "hang"}), 504, "timeout_error", "timeout")
    check_messages(gateway.ask("POST", MESSAGES, {"act": "hang"}), 504, "timeout_error")
    whole = gateway.ask("POST", CHAT, {"stream": True, "max_tokens": 100})  # 2 s of events outlive an idle time of 1 s
    assert whole.body.endswith(b"[DONE]\n\n")
    with pytest.raises(http.client.HTTPException):  # after the first byte a stream can only be cut
        gateway.ask("POST", CHAT, {"stream": True, "act": "stall"})


def test_the_longest_duration_is_a_504_of_its_own(new_gateway: Callable[..., Gateway]) -> None:
    gateway = started(new_gateway(max_stream_s=1))
    check(gateway.ask("POST", CHAT, {"act": "hang"}), 504, "timeout_error", "max_duration")
    check_messages(gateway.ask("POST", MESSAGES, {"act": "hang"}), 504, "timeout_error")


@pytest.mark.parametrize("script", ["function envoy_on_request(handle) error('broken') end", "local nothing = 1"])
def test_a_key_check_that_fails_lets_nobody_in(gateway: Gateway, script: str) -> None:
    text = gateway.rendered()["ecds_auth.yaml"]
    head, _, _ = text.partition("inline_string: |\n")
    gateway.publish("ecds_auth.yaml", f"{head}inline_string: |\n          {script}\n")
    eventually(lambda: gateway.complete().status == 503, SOON_S)
    reached = sum(len(replica.requests) for replica in gateway.replicas)
    check(gateway.complete(), 503, "service_unavailable_error", "gateway_misconfigured", "5")
    check(gateway.complete(key=""), 503, "service_unavailable_error", "gateway_misconfigured", "5")
    check_messages(gateway.ask("POST", MESSAGES, {}), 503, "api_error", "5")
    assert sum(len(replica.requests) for replica in gateway.replicas) == reached


def test_without_the_replicas_key_it_is_the_gateways_fault_not_the_callers(new_gateway: Callable[..., Gateway]) -> None:
    gateway = new_gateway()
    gateway.write()
    (gateway.dynamic / "sds.yaml").write_text("resources: []\n")
    gateway.start_replicas()
    gateway.start()
    check(gateway.complete(), 503, "service_unavailable_error", "gateway_misconfigured", "5")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /v1/models HTTP/1.0\r\nhost: a\r\n" + AUTH + b"\r\n", 426),
        (b"GET /v1/models HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n" + AUTH + b"\r\n", 403),
    ],
)
def test_any_other_refusal_has_the_same_form(shared: Gateway, data: bytes, status: int) -> None:
    check(wire.send(shared.port, data), status, "invalid_request_error", "bad_request")


def test_a_client_that_leaves_frees_its_replica(shared: Gateway) -> None:
    with socket.create_connection(("127.0.0.1", shared.port)) as connection:
        body: Any = b'{"act": "hang"}'
        head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n".encode()
        connection.sendall(head + AUTH + b"\r\n" + body)
        eventually(lambda: shared.stat("cluster.vllm.upstream_rq_active") == 1, SOON_S)
    eventually(lambda: shared.stat("cluster.vllm.upstream_rq_active") == 0, SOON_S)
