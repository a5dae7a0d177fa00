"""`probe` against the real Envoy: every door is closed, and one that is opened on purpose is found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from control.adapters.probe_client import ProbeClient
from control.core import probes
from tests.contract.gateway.harness import KEY, SOON_S, Gateway
from tests.eventually import eventually

LIMIT = 1_048_576


def results(gateway: Gateway, group: str | None = None, limit: int = LIMIT) -> list[probes.Result]:
    client = ProbeClient(f"http://127.0.0.1:{gateway.port}", KEY)
    listed = probes.all_probes(limit, tls=False, foreign_origins=False)
    return [probes.judge(p, client.send(p.sent)) for p in listed if group in (None, p.group)]


@pytest.fixture
def gateway(new_gateway: Callable[..., Gateway]) -> Gateway:
    made = new_gateway(max_body_mib=1, limits={"requests_per_second": 0, "requests_per_minute": 0})
    made.write()
    made.start_replicas()
    made.start()
    return made


def test_every_door_is_closed(gateway: Gateway) -> None:
    seen = results(gateway)
    assert len(seen) > 100
    assert not [dataclasses.astuple(result) for result in seen if not result.passed]


def test_a_limit_of_the_key_is_waited_for(new_gateway: Callable[..., Gateway]) -> None:
    gateway = new_gateway(max_body_mib=1, limits={"requests_per_second": 20, "requests_per_minute": 0})
    gateway.write()
    gateway.start_replicas()
    gateway.start()
    assert all(result.passed for result in results(gateway, "routes"))


def test_a_route_that_is_opened_on_purpose_is_found(gateway: Gateway) -> None:
    text = gateway.rendered()["rds.yaml"]
    opened = text.replace('{path: "/tokenize"', '{path: "/metrics"').replace("exact: POST", "exact: GET")
    assert opened != text
    gateway.publish("rds.yaml", opened)
    eventually(lambda: [r.what for r in results(gateway, "routes") if not r.passed] == ["GET /metrics"], SOON_S)


def test_a_body_limit_that_is_not_kept_is_found(gateway: Gateway) -> None:
    assert [r.passed for r in results(gateway, "bodies", LIMIT // 2)] == [False, False]


def test_a_gateway_without_the_lock_of_keys_is_found(gateway: Gateway) -> None:
    text = gateway.rendered()["ecds_auth.yaml"]
    opened = text.replace("if digest and", "if digest and").replace(
        'return "missing_api_key"', 'return "ok", "0", {limits={}}'
    )
    assert opened != text
    gateway.publish("ecds_auth.yaml", opened)
    eventually(lambda: any(r.what == "no key" and not r.passed for r in results(gateway, "keys")), SOON_S)
