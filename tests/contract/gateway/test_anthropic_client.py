"""Anthropic's own client against the gateway: it finds its key accepted and understands every refusal."""

from __future__ import annotations

import time
from collections.abc import Callable

import anthropic
import pytest

from tests.contract.gateway.harness import KEY, Gateway
from tests.contract.gateway.test_errors import started


def client(gateway: Gateway, key: str = KEY, retries: int = 0) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=f"http://127.0.0.1:{gateway.port}", api_key=key, max_retries=retries)


def refusal(asked: anthropic.Anthropic) -> tuple[anthropic.APIStatusError, str]:
    """What a message gets: the client's exception, and the type in the error's body."""
    with pytest.raises(anthropic.APIStatusError) as raised:
        asked.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "Hi"}])
    body = raised.value.body
    assert isinstance(body, dict)
    assert raised.value.request_id == body["request_id"]
    return raised.value, body["error"]["type"]


def test_a_wrong_key_is_its_authentication_error(shared: Gateway) -> None:
    error, kind = refusal(client(shared, "wrong"))
    assert isinstance(error, anthropic.AuthenticationError) and kind == "authentication_error"


def test_a_route_that_is_not_here_is_its_not_found_error(shared: Gateway) -> None:
    with pytest.raises(anthropic.NotFoundError) as raised:
        client(shared).messages.batches.list()
    assert raised.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]


def test_both_routes_take_its_key_and_reach_a_replica(shared: Gateway) -> None:
    before = sum(len(replica.requests) for replica in shared.replicas)
    asked = client(shared)
    asked.messages.with_raw_response.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "Hi"}])
    asked.messages.with_raw_response.count_tokens(model="m", messages=[{"role": "user", "content": "Hi"}])
    assert sum(len(replica.requests) for replica in shared.replicas) == before + 2


def test_without_a_replica_it_waits_as_it_is_told_and_tries_again(new_gateway: Callable[..., Gateway]) -> None:
    gateway = new_gateway(count=1)
    gateway.write()
    gateway.start_replicas(ready=False)
    gateway.start(healthy=0)
    error, kind = refusal(client(gateway))
    assert (error.status_code, kind) == (503, "overloaded_error")
    begin = time.monotonic()
    refusal(client(gateway, retries=1))
    assert time.monotonic() - begin >= 5  # Retry-After


def test_a_lost_replica_is_an_api_error(new_gateway: Callable[..., Gateway]) -> None:
    gateway = started(new_gateway(idle_timeout_s=1))
    with pytest.raises(anthropic.APIStatusError) as raised:
        client(gateway).post("/v1/messages", cast_to=object, body={"act": "lose"})
    assert (raised.value.status_code, raised.value.body["error"]["type"]) == (503, "api_error")  # type: ignore[index]
    with pytest.raises(anthropic.APIStatusError) as raised:
        client(gateway).post("/v1/messages", cast_to=object, body={"act": "hang"})
    assert (raised.value.status_code, raised.value.body["error"]["type"]) == (504, "timeout_error")  # type: ignore[index]
