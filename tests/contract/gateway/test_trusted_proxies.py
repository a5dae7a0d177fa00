"""Whose address counts: the peer's, or what a trusted proxy says of its client (case E05)."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contract.gateway import limited
from tests.contract.gateway.harness import CHAT, SOON_S, Gateway, gateway_settings
from tests.contract.gateway.limited import ask_from, serve
from tests.eventually import eventually

NewGateway = Callable[..., Gateway]
ONE_A_MINUTE = {"requests_per_minute": 0, "ip_requests_per_minute": 1}
CASE: dict[str, Any] = json.loads((Path(__file__).parents[2] / "fixtures/cases/E05.json").read_text())
PROXIES = ["127.192.0.0/16", "127.193.0.1/32"]


def on_loopback(address: str) -> str:
    """The peer of the case as an address that this machine can connect from; 192.0.2.10 is one of PROXIES."""
    parts = address.split(".")
    return ".".join(["127", parts[0], parts[2], parts[3]])


def client_seen(gateway: Gateway) -> str:
    """The address that the replica was told last."""
    (line,) = _last(gateway, "x-forwarded-for")
    return line


def _last(gateway: Gateway, name: str) -> list[str]:
    request = max((request for replica in gateway.replicas for request in replica.requests), key=lambda r: r["at"])
    fields = (line.partition(":") for line in request["headers"])
    return [value.strip() for field, _, value in fields if field.lower() == name]


def test_every_request_of_the_case_is_counted_in_its_bucket(new_gateway: NewGateway) -> None:
    gateway = serve(new_gateway(count=1, trusted_proxies=PROXIES, limits=ONE_A_MINUTE))
    spent: set[str] = set()
    answers = []
    for request in CASE["requests"]:
        peer, bucket = on_loopback(request["peer"]), request["bucket"]
        bucket = peer if bucket == request["peer"] else bucket  # the peer itself is the client
        answer = ask_from(gateway, peer, x_forwarded_for=request["x-forwarded-for"])
        assert answer.status == (429 if bucket in spent else 200), request
        if answer.status == 200:
            assert client_seen(gateway) == bucket, request
        spent.add(bucket)
        answers.append((answer.headers["x-request-id"], bucket))
    assert len(spent) == 5
    eventually(
        lambda: {line["request_id"]: line["client_address"] for line in gateway.lines("access")} == dict(answers),
        SOON_S,
    )


def test_without_trusted_proxies_the_peer_is_the_client_whatever_it_says(new_gateway: NewGateway) -> None:
    gateway = serve(new_gateway(count=1, limits=ONE_A_MINUTE))
    lies: dict[str, str] = {"x_real_ip": "9.9.9.9", "forwarded": "for=9.9.9.9", "x_envoy_external_address": "9.9.9.9"}
    assert ask_from(gateway, "127.9.0.1", x_forwarded_for="198.51.100.7", **lies).status == 200
    assert client_seen(gateway) == "127.9.0.1"
    assert not [name for name in lies if _last(gateway, name.replace("_", "-"))]
    for claim in ("198.51.100.8", "127.9.0.2", "198.51.100.7, 10.0.0.1", "::1", ""):
        assert ask_from(gateway, "127.9.0.1", x_forwarded_for=claim).status == 429, claim
    assert ask_from(gateway, "127.9.0.2", x_forwarded_for="127.9.0.1").status == 200, "nobody spends another's limit"


def test_a_chain_of_proxies_is_followed_from_the_right_to_the_first_stranger(new_gateway: NewGateway) -> None:
    gateway = serve(new_gateway(count=1, trusted_proxies=PROXIES))
    for said, client in (
        ("198.51.100.7, 127.193.0.1", "198.51.100.7"),
        ("203.0.113.9, 198.51.100.7, 127.192.9.9, 127.193.0.1", "198.51.100.7"),
        ("198.51.100.7, 127.193.0.2", "127.193.0.2"),  # not on the list
        ("127.192.0.7, 127.193.0.1", "127.192.0.7"),  # proxies alone: the farthest of them asks for itself
        ("198.51.100.7, garbage", "127.192.0.1"),
        ("2001:db8::7", "2001:db8::7"),
    ):
        assert ask_from(gateway, "127.192.0.1", x_forwarded_for=said).status == 200
        assert client_seen(gateway) == client, said


def test_ipv6_clients_of_one_network_share_a_limit(new_gateway: NewGateway) -> None:
    gateway = serve(new_gateway(count=1, trusted_proxies=PROXIES, limits=ONE_A_MINUTE))
    said = ["2001:db8::7", "2001:db8::ffff:8", "2001:db8:0:1::7", "2001:0db8:0:1:0::9"]
    networks = [ipaddress.ip_network(f"{address}/64", strict=False) for address in said]
    statuses = [ask_from(gateway, "127.192.0.1", x_forwarded_for=address).status for address in said]
    assert statuses == [429 if network in networks[:n] else 200 for n, network in enumerate(networks)]


@pytest.mark.parametrize("proxies", [[], PROXIES])
def test_nobody_steers_the_gateway_with_headers_not_even_a_trusted_proxy(
    new_gateway: NewGateway, proxies: list[str]
) -> None:
    gateway = serve(new_gateway(count=1, trusted_proxies=proxies))
    tricks = {
        "x_request_id": "chosen-by-the-client",
        "x_envoy_max_retries": "50",
        "x_envoy_retry_on": "5xx",
        "x_envoy_upstream_rq_timeout_ms": "1",
        "x_envoy_internal": "true",
        "x_flashbox_affinity": "mine",
        "x_flashbox_would_refuse": "all",
        "x_forwarded_proto": "gopher",
    }
    answer = ask_from(gateway, "127.192.0.1", x_forwarded_for="198.51.100.7", **tricks)
    assert answer.status == 200
    assert answer.headers["x-request-id"] != tricks["x_request_id"]
    sent = {name: _last(gateway, name.replace("_", "-")) for name in tricks}
    assert sent.pop("x_request_id") == [answer.headers["x-request-id"]]
    assert sent.pop("x_forwarded_proto") == ["http"]
    assert not any(sent.values()), sent


def test_trusted_proxies_are_changed_live(new_gateway: NewGateway) -> None:
    gateway = serve(new_gateway(count=1))
    gateway.settings = gateway_settings(trusted_proxies=PROXIES)
    limited.publish(gateway, "lds.yaml")

    def seen() -> bool:
        assert ask_from(gateway, "127.192.0.1", path=CHAT, x_forwarded_for="198.51.100.7").status == 200
        return client_seen(gateway) == "198.51.100.7"

    eventually(seen, SOON_S)
