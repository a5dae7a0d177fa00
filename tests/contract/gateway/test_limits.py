"""Limits of requests: exact counts for keys and addresses, what survives which push, and what clients are told."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from control.core import limits
from tests.contract.gateway import limited
from tests.contract.gateway.harness import (
    CHAT,
    COUNT,
    KEY,
    MESSAGES,
    SOON_S,
    Answer,
    Gateway,
    api_key,
    ask,
    gateway_settings,
)
from tests.contract.gateway.limited import ask_from, check_burst, minute, second, serve
from tests.eventually import eventually

NewGateway = Callable[..., Gateway]
ROUTES = [
    ("POST", CHAT, {"max_tokens": 1}),
    ("POST", CHAT, {"max_tokens": 1, "stream": True}),
    ("POST", "/v1/completions", {"max_tokens": 1}),
    ("POST", "/v1/completions", {"max_tokens": 1, "stream": True}),
    ("POST", "/v1/responses", {}),
    ("POST", "/v1/responses", {"stream": True, "max_tokens": 1}),
    ("POST", MESSAGES, {"max_tokens": 1}),
    ("POST", MESSAGES, {"max_tokens": 1, "stream": True}),
    ("POST", COUNT, {}),
    ("POST", "/tokenize", {}),
    ("POST", "/detokenize", {}),
    ("GET", "/v1/models", None),
    ("POST", "/v1/no/such/route", {}),
]
HEADERS = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after")


def told(answer: Answer) -> tuple[int | None, ...]:
    """Limit, remaining, reset, Retry-After."""
    return tuple(int(answer.headers[name]) if name in answer.headers else None for name in HEADERS)


# ---- exact counts


def test_on_every_route_a_key_sends_exactly_its_limit_streams_or_not(new_gateway: NewGateway) -> None:
    keys = [limited.key(f"k{number}", per_minute=20) for number in range(len(ROUTES))]
    gateway = serve(new_gateway(), *(key for _, key in keys))
    for (method, path, body), (text, _) in zip(ROUTES, keys, strict=True):
        counted = limited.count(8, lambda: gateway.ask(method, path, body, key=text))  # noqa: B023
        check_burst(counted, *minute(20))
        if "no/such" not in path:
            assert {answer.status for answer in counted.answers} == {200, 429}, path


def test_all_routes_together_share_one_limit(new_gateway: NewGateway) -> None:
    text, key = limited.key("alice", per_minute=35)
    gateway = serve(new_gateway(), key)
    begin = time.monotonic()
    answers = [gateway.ask(method, path, body, key=text) for method, path, body in ROUTES]
    check_burst(limited.Count(answers, time.monotonic() - begin), *minute(35))


@pytest.mark.parametrize("limit", [1, 2, 5, 9, 10, 600])
def test_a_burst_and_what_comes_after_it_stay_within_the_minute(new_gateway: NewGateway, limit: int) -> None:
    text, key = limited.key("alice", per_minute=limit)
    gateway = serve(new_gateway(count=1), key)
    bucket, cost = minute(limit)
    begin, admitted, tried = time.monotonic(), 0, 0
    wanted = bucket.capacity // cost + (12 if limit == 600 else 0)  # 9 come in a second
    while (admitted < wanted or tried < wanted + 5) and time.monotonic() - begin < SOON_S:
        admitted += gateway.ask("GET", "/v1/models", key=text).status == 200
        tried += 1
        assert admitted <= limited.at_most(bucket, cost, time.monotonic() - begin)
    assert admitted >= wanted


@pytest.mark.parametrize("limit", [1, 3, 8])
def test_a_burst_of_a_second_is_the_limit(new_gateway: NewGateway, limit: int) -> None:
    text, key = limited.key("alice", per_second=limit)
    gateway = serve(new_gateway(count=1), key)
    counted = limited.count(limit * 20 + 20, lambda: gateway.ask("GET", "/v1/models", key=text))
    check_burst(counted, *second(limit))
    eventually(lambda: gateway.ask("GET", "/v1/models", key=text).status == 200, SOON_S)


def test_requests_at_the_same_moment_are_counted_one_by_one(new_gateway: NewGateway) -> None:
    text, key = limited.key("alice", per_minute=100)
    gateway = serve(new_gateway(), key)
    begin = time.monotonic()
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: gateway.complete(key=text), range(60)))
    check_burst(limited.Count(answers, time.monotonic() - begin), *minute(100))
    assert {answer.status for answer in answers} == {200, 429}


def test_two_keys_do_not_touch_each_other_and_one_without_limits_has_none(new_gateway: NewGateway) -> None:
    alice, of_alice = limited.key("alice", per_minute=1)
    bob, of_bob = limited.key("bob", per_minute=1)
    carol, of_carol = limited.key("carol")
    gateway = serve(new_gateway(), of_alice, of_bob, of_carol)
    assert [gateway.complete(key=alice).status for _ in range(3)] == [200, 429, 429]
    assert [gateway.complete(key=bob).status for _ in range(3)] == [200, 429, 429]
    free = [gateway.complete(key=carol) for _ in range(40)]
    assert {(answer.status, *told(answer)) for answer in free} == {(200, None, None, None, None)}


def test_many_keys_do_not_push_one_another_out_of_their_buckets(new_gateway: NewGateway) -> None:
    keys = [limited.key(f"k{number}", per_second=1, per_minute=1) for number in range(50)]
    gateway = serve(new_gateway(count=1), *(key for _, key in keys))
    for status in (200, 429):
        assert {gateway.ask("GET", "/v1/models", key=text).status for text, _ in keys} == {status}


def test_the_policys_limits_hold_for_a_key_without_its_own(new_gateway: NewGateway) -> None:
    gateway = serve(new_gateway(limits={"requests_per_second": 0, "requests_per_minute": 35}))
    check_burst(limited.count(9, gateway.complete), *minute(35))


def test_what_the_second_refuses_takes_nothing_from_the_minute(new_gateway: NewGateway) -> None:
    text, key = limited.key("alice", per_second=1, per_minute=600)
    gateway = serve(new_gateway(count=1), key)
    counted = limited.count(30, lambda: gateway.ask("GET", "/v1/models", key=text))
    check_burst(counted, *second(1))
    name = "limit_key_minute.http_local_rate_limit"
    assert gateway.stat(f"{name}.enabled") == gateway.stat(f"{name}.ok") == counted.admitted
    assert gateway.stat("limit_key_second.http_local_rate_limit.enforced") == len(counted.refused)


# ---- what a push does to buckets


def test_a_changed_limit_is_live_and_the_bucket_of_another_key_is_as_before(new_gateway: NewGateway) -> None:
    alice, of_alice = limited.key("alice", per_minute=1)
    bob, of_bob = limited.key("bob", per_minute=1)
    gateway = serve(new_gateway(), of_alice, of_bob)
    assert [gateway.complete(key=key).status for key in (alice, alice, bob, bob)] == [200, 429, 200, 429]
    gateway.publish_keys(replace(of_alice, requests_per_minute=0), of_bob)
    eventually(lambda: gateway.complete(key=alice).status == 200, SOON_S)
    assert gateway.complete(key=bob).status == 429


def test_a_key_keeps_the_share_of_its_bucket_when_its_limit_changes(new_gateway: NewGateway) -> None:
    text, key = limited.key("alice", per_minute=6000)
    gateway = serve(new_gateway(count=1), key)
    bucket, cost = minute(6000)
    begin = time.monotonic()
    for _ in range(300):  # half of what it may send at once
        assert gateway.ask("GET", "/v1/models", key=text).status == 200
    gateway.publish_keys(replace(key, requests_per_minute=100))
    changed = eventually(lambda: _with_limit(gateway, text, 100), SOON_S)
    share = 1 - 300 * cost / bucket.capacity + bucket.fill * (time.monotonic() - begin) / 60 / bucket.capacity
    _, remaining, _, _ = told(changed)
    assert remaining is not None and remaining <= math.floor(share * bucket.capacity / limits.minute_cost(100))


def _with_limit(gateway: Gateway, key: str, limit: int) -> Answer | None:
    answer = gateway.ask("GET", "/v1/models", key=key)
    return answer if told(answer)[0] == limit else None


def test_limits_survive_every_push_but_one_of_their_own_file_and_of_the_listener(new_gateway: NewGateway) -> None:
    alice, of_alice = limited.key("alice", per_minute=1)
    gateway = serve(new_gateway(limits={"ip_requests_per_minute": 5000}), of_alice)
    assert [gateway.complete(key=alice).status for _ in range(2)] == [200, 429]
    gateway.settings = gateway_settings(idle_timeout_s=200, max_requests=77, limits={"ip_requests_per_minute": 4000})
    for name in ("rds.yaml", "cds.yaml"):
        limited.publish(gateway, name)
        assert gateway.complete(key=alice).status == 429, name
    gateway.publish_replicas([0])
    eventually(lambda: gateway.healthy() == {"engine-0"}, SOON_S)
    gateway.publish_keys(of_alice, limited.key("bob")[1])
    eventually(lambda: gateway.complete(key="fb-key-of-bob").status == 200, SOON_S)
    limited.publish(gateway, "ecds_limit_ip_minute.yaml")
    assert gateway.complete(key=alice).status == 429


def test_a_push_of_the_listener_gives_each_key_one_burst_and_not_a_minute(new_gateway: NewGateway) -> None:
    """What cannot be had: Envoy makes the filters of a changed listener anew. A tenth of the minute is the price."""
    text, key = limited.key("alice", per_minute=35)
    gateway = serve(new_gateway(), key)
    check_burst(limited.count(6, lambda: gateway.complete(key=text)), *minute(35))
    publishing = time.monotonic()
    gateway.publish("lds.yaml", gateway.rendered()["lds.yaml"].replace("drain_timeout: 5s", "drain_timeout: 6s"))
    bucket, cost = minute(35)
    admitted, least = 0, bucket.capacity // cost
    while admitted < least and time.monotonic() - publishing < SOON_S:
        admitted += gateway.complete(key=text).status == 200
    assert admitted >= least
    admitted += limited.count(5, lambda: gateway.complete(key=text)).admitted
    longest = time.monotonic() - publishing
    assert admitted <= limited.at_most(bucket, cost, longest) + math.ceil(bucket.fill * longest / 60 / cost)


# ---- what clients are told


def test_an_answer_tells_the_limit_that_is_nearer_in_requests(new_gateway: NewGateway) -> None:
    text, key = limited.key("alice", per_second=5, per_minute=600)
    gateway = serve(new_gateway(), key)
    limit, remaining, reset, retry = told(gateway.complete(key=text))
    assert (limit, retry) == (5, None), "60 at once of the minute, 5 of the second"
    assert remaining in (4, 5) and reset in (0, 1)  # it is filled again while the answer is on its way


def test_of_a_smaller_minute_the_minute_is_told(new_gateway: NewGateway) -> None:
    text, key = limited.key("alice", per_second=20, per_minute=50)
    gateway = serve(new_gateway(), key)
    limit, remaining, reset, retry = told(gateway.complete(key=text))
    assert (limit, retry) == (50, None)
    assert remaining in (4, 5) and reset is not None and reset <= 2  # one comes in 1.1 s


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_retry_after_is_when_the_next_request_passes(new_gateway: NewGateway, path: str) -> None:
    text, key = limited.key("alice", per_minute=30)
    gateway = serve(new_gateway(), key)
    bucket, cost = minute(30)
    begin = time.monotonic()
    while (answer := gateway.ask("POST", path, {}, key=text)).status == 200:
        assert time.monotonic() - begin < SOON_S
    limit, remaining, reset, retry = told(answer)
    assert (limit, remaining) == (30, 0)
    longest = math.ceil(cost * 60 / bucket.fill)
    assert retry is not None and reset is not None and 1 <= retry <= longest <= reset
    refused = time.monotonic()
    eventually(lambda: gateway.ask("POST", path, {}, key=text).status == 200, SOON_S)
    assert retry - 1 <= time.monotonic() - refused + 0.5, "it would have passed much sooner"


def test_after_the_only_request_of_a_minute_retry_after_is_that_minute(new_gateway: NewGateway) -> None:
    text, key = limited.key("alice", per_minute=1)
    gateway = serve(new_gateway(), key)
    begin = time.monotonic()
    assert gateway.complete(key=text).status == 200
    answer = gateway.complete(key=text)
    elapsed = time.monotonic() - begin
    assert told(answer) == (1, 0, told(answer)[2], told(answer)[3])
    for value in told(answer)[2:]:
        assert value is not None and 60 - elapsed <= value <= 61


def test_a_refusal_names_its_limit_in_the_callers_form(new_gateway: NewGateway) -> None:
    alice, of_alice = limited.key("alice", per_minute=1)
    bob, of_bob = limited.key("bob", per_second=1, per_minute=600)
    gateway = serve(new_gateway(), of_alice, of_bob)
    gateway.complete(key=alice)
    error = gateway.complete(key=alice).error
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert "API key" in error["message"] and "1 requests per minute" in error["message"]
    error = gateway.ask("POST", MESSAGES, {}, key=alice).messages_error
    assert error["type"] == "rate_limit_error" and "requests per minute" in error["message"]
    answer = eventually(lambda: next((a for a in (gateway.complete(key=bob),) if a.status == 429), None), SOON_S)
    assert answer is not None and "1 requests per second" in answer.error["message"]
    assert not [name for name in answer.headers if name.startswith(("x-flashbox", "x-envoy"))]


def test_the_log_says_which_limit_refused(new_gateway: NewGateway) -> None:
    alice, of_alice = limited.key("alice", per_minute=1)
    gateway = serve(new_gateway(), of_alice)
    answers = [gateway.complete(key=alice) for _ in range(2)]
    first, second = (answer.headers["x-request-id"] for answer in answers)
    lines = {first: None, second: "limit_key_minute"}
    eventually(
        lambda: {line["request_id"]: line["limit"] for line in gateway.lines("access") if line["path"] == CHAT}
        == lines,
        SOON_S,
    )


def test_what_no_limit_was_asked_about_says_nothing_of_limits(new_gateway: NewGateway) -> None:
    gateway = serve(new_gateway())
    assert told(gateway.complete()) == told(gateway.complete(key="wrong")) == (None, None, None, None)


# ---- addresses


def test_two_addresses_have_a_limit_each_whatever_their_key(new_gateway: NewGateway) -> None:
    gateway = serve(new_gateway(limits={"requests_per_minute": 0, "ip_requests_per_minute": 1}))
    for peer in ("127.9.0.1", "127.9.0.2"):
        assert [ask_from(gateway, peer).status for _ in range(3)] == [200, 429, 429]
    assert ask_from(gateway, "127.9.0.1", key="wrong").status == 429, "before the key is looked at"


@pytest.mark.parametrize("limit", [1, 8])
def test_a_burst_of_an_address_is_its_limit_per_second(new_gateway: NewGateway, limit: int) -> None:
    gateway = serve(new_gateway(count=1, limits={"ip_requests_per_second": limit, "ip_requests_per_minute": 0}))
    counted = limited.count(limit * 20, lambda: ask_from(gateway, "127.9.0.1", "GET", "/v1/models"))
    check_burst(counted, limits.address_second(limit), 1)


def test_a_minute_of_an_address_is_strict_and_counts_wrong_keys_and_unknown_paths(new_gateway: NewGateway) -> None:
    gateway = serve(new_gateway(limits={"ip_requests_per_minute": 40}))
    bucket = limits.address_minute(40)
    for peer, key, path in (
        ("127.9.0.1", KEY, CHAT),
        ("127.9.0.2", "wrong", CHAT),
        ("127.9.0.3", "", CHAT),
        ("127.9.0.4", KEY, "/none"),
    ):
        check_burst(limited.count(8, lambda: ask_from(gateway, peer, key=key, path=path)), bucket, 1)  # noqa: B023


def test_health_has_no_limit(new_gateway: NewGateway) -> None:
    gateway = serve(new_gateway(limits={"ip_requests_per_minute": 1, "ip_requests_per_second": 1}))
    assert {gateway.ask("GET", "/health", key="").status for _ in range(30)} == {200}
    assert gateway.complete().status == 200


def test_a_wrong_key_takes_nothing_from_any_key(new_gateway: NewGateway) -> None:
    alice, of_alice = limited.key("alice", per_minute=1)
    gateway = serve(new_gateway(), of_alice)
    assert {gateway.complete(key=f"{alice}!").status for _ in range(5)} == {401}
    assert gateway.complete(key=alice).status == 200


def test_the_refusal_of_an_address_says_so(new_gateway: NewGateway) -> None:
    gateway = serve(new_gateway(limits={"ip_requests_per_minute": 1}))
    begin = time.monotonic()
    gateway.complete()
    for answer, error in (
        (first := gateway.complete(), first.error),
        (other := gateway.ask("POST", MESSAGES, {}), other.messages_error),
    ):
        assert error["type"] == "rate_limit_error"
        assert "client address" in error["message"] and "1 requests per minute" in error["message"]
        limit, remaining, reset, retry = told(answer)
        assert (limit, remaining) == (1, 0) and reset is not None and retry is not None
        assert 60 - (time.monotonic() - begin) <= retry <= 61 and reset <= 61


def test_limits_of_addresses_come_and_go_live(new_gateway: NewGateway) -> None:
    gateway = serve(new_gateway())
    assert {gateway.complete().status for _ in range(5)} == {200}
    for limit, statuses in ((1, {200, 429}), (0, {200})):
        gateway.settings = gateway_settings(limits={"requests_per_minute": 0, "ip_requests_per_minute": limit})
        limited.publish(gateway, "ecds_limit_ip_minute.yaml")
        eventually(lambda: {gateway.complete().status for _ in range(3)} <= statuses, SOON_S)  # noqa: B023
        assert {gateway.complete().status for _ in range(3)} == (statuses - {200} or {200})


# ---- mode observe


def test_observe_counts_and_logs_and_refuses_nothing(new_gateway: NewGateway) -> None:
    alice, of_alice = limited.key("alice", per_second=1, per_minute=1)
    gateway = serve(
        new_gateway(mode="observe", limits={"ip_requests_per_minute": 1, "ip_requests_per_second": 1}), of_alice
    )
    headers = {"x-flashbox-would-refuse": "everything"}
    answers = [gateway.complete(key=alice, headers=headers) for _ in range(4)]
    assert {answer.status for answer in answers} == {200}
    assert gateway.stat("limit_key_minute.http_local_rate_limit.rate_limited") == 3
    assert gateway.stat("limit_ip_minute.http_local_rate_limit.rate_limited") == 3
    assert gateway.stat("limit_key_minute.http_local_rate_limit.enforced") == 0

    def logged() -> list[str | None]:
        lines = [line for line in gateway.lines("access") if line["path"] == CHAT]
        by_id = {line["request_id"]: line["would_refuse"] for line in lines}
        return [by_id[answer.headers["x-request-id"]] for answer in answers]

    first, *others = eventually(logged, SOON_S)
    assert first is None
    for words in others:
        assert words is not None and {"limit_key_minute", "limit_ip_minute"} <= set(words.split(",")), words
    sent = [line for replica in gateway.replicas for request in replica.requests for line in request["headers"]]
    assert not [line for line in sent if line.lower().startswith("x-flashbox")]


# ---- headers that are too long (a 431 is no refusal of the model)


def test_a_431_is_counted_apart_from_what_replicas_answer(new_gateway: NewGateway) -> None:
    gateway = serve(new_gateway(count=1))
    assert ask(gateway.port, "GET", "/v1/models", headers={"x-long": "x" * 61_440}).status == 431
    assert ask(gateway.port, "GET", "/v1/models", headers={f"x-{n}": "1" for n in range(101)}).status == 431
    assert gateway.stat("http.ingress_http.downstream_rq_4xx") == 2
    assert gateway.stat("cluster.vllm.upstream_rq_4xx") == gateway.stat("cluster.vllm.upstream_rq_total") == 0
    assert not gateway.replicas[0].requests


def test_a_key_that_was_changed_is_the_same_bucket(new_gateway: NewGateway) -> None:
    """A new secret under the old name does not refill the name's bucket."""
    alice, of_alice = limited.key("alice", per_minute=1)
    gateway = serve(new_gateway(), of_alice)
    assert gateway.complete(key=alice).status == 200
    gateway.publish_keys(replace(api_key("fb-another", "alice"), requests_per_second=0, requests_per_minute=1))
    eventually(lambda: gateway.complete(key=alice).status == 401, SOON_S)
    assert gateway.complete(key="fb-another").status == 429
