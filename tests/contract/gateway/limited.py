"""Counting what limits admit, with bounds from the time that was measured: a slow machine breaks no test."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from control.core import limits
from control.core.model import ApiKey
from tests.contract.gateway.harness import CHAT, KEY, SOON_S, Answer, Gateway, answer_of, api_key
from tests.eventually import eventually


@dataclass
class Count:
    """Requests one after another."""

    answers: list[Answer]
    elapsed_s: float  # from before the first to after the last

    @property
    def admitted(self) -> int:
        return sum(answer.status != 429 for answer in self.answers)

    @property
    def refused(self) -> list[Answer]:
        return [answer for answer in self.answers if answer.status == 429]


def count(tries: int, ask: Callable[[], Answer]) -> Count:
    """Send `tries` requests as fast as they are answered."""
    begin = time.monotonic()
    answers = [ask() for _ in range(tries)]
    return Count(answers, time.monotonic() - begin)


def at_most(bucket: limits.Bucket, cost: int, elapsed_s: float) -> int:
    """The most that a full bucket admits in this time."""
    return int((bucket.capacity + bucket.fill * elapsed_s / bucket.interval_s) // cost)


def minute(limit: int) -> tuple[limits.Bucket, int]:
    """Bucket and cost of a key's minute."""
    return limits.minutes()[limits.minute_shape(limit)], limits.minute_cost(limit)


def second(limit: int) -> tuple[limits.Bucket, int]:
    """Bucket and cost of a key's second."""
    return limits.SECOND, limits.second_cost(limit)


def check_burst(counted: Count, bucket: limits.Bucket, cost: int) -> None:
    """All that the bucket holds was admitted, and no more than it got since; what was refused is left over."""
    assert bucket.capacity // cost <= counted.admitted <= at_most(bucket, cost, counted.elapsed_s), counted
    assert counted.refused, "nothing was refused: the burst was too small to say anything"


def key(name: str, per_second: int | None = 0, per_minute: int | None = 0) -> tuple[str, ApiKey]:
    """A key to send, and the gateway's side of it."""
    text = f"fb-key-of-{name}"
    return text, replace(api_key(text, name), requests_per_second=per_second, requests_per_minute=per_minute)


def serve(gateway: Gateway, *api_keys: ApiKey) -> Gateway:
    """Start it with these keys."""
    gateway.api_keys = api_keys or gateway.api_keys
    gateway.write()
    gateway.start_replicas()
    gateway.start()
    return gateway


def publish(gateway: Gateway, *names: str) -> None:
    """Files of the settings and keys as they are now, each taken before the next."""
    for name in names:
        before = reloads(gateway, name)
        gateway.publish(name, gateway.rendered()[name])
        eventually(lambda name=name, before=before: reloads(gateway, name) > before, SOON_S)  # type: ignore[misc]


def reloads(gateway: Gateway, name: str) -> int:
    """How often Envoy has taken another text of this file."""
    stem = name.removesuffix(".yaml")
    stats = {
        "lds": "listener_manager.lds.update_success",
        "rds": "http.ingress_http.rds.public.config_reload",
        "cds": "cluster_manager.cds.update_success",
        "eds": "cluster.vllm.update_success",
        "sds": r"(http.ingress_http.)?.*sds.upstream_key.update_success",
    }
    return gateway.stat(
        stats.get(stem, f"extension_config_discovery.http_filter.flashbox.{stem.removeprefix('ecds_')}.config_reload")
    )


def ask_from(
    gateway: Gateway, peer: str, method: str = "POST", path: str = CHAT, key: str = KEY, **headers: str
) -> Answer:
    """One request from another source address; `x_forwarded_for` and others are headers."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60, source_address=(peer, 0))
    given: dict[str, Any] = {name.replace("_", "-"): value for name, value in headers.items()}
    if key:
        given["authorization"] = f"Bearer {key}"
    try:
        connection.request(method, path, json.dumps({"model": "m", "max_tokens": 1}), given)
        return answer_of(connection.getresponse())
    finally:
        connection.close()
