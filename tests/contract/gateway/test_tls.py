"""HTTPS on the public port: both protocols on one listener, certificates that change while streams run, expiry told."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
from httpx import Client

from control.adapters import certificates, files
from control.adapters.certificates import Pair
from control.adapters.gateway_client import GatewayClient
from control.core import wiring
from tests.contract.gateway import wire
from tests.contract.gateway.harness import CHAT, KEY, SOON_S, Gateway
from tests.eventually import eventually

NAMES = ("localhost", "127.0.0.1")


def pair(days: int = 0) -> Pair:
    """A new one, made some days ago."""
    return certificates.self_signed(NAMES, datetime.now(timezone.utc) - timedelta(days=days))


def put(gateway: Gateway, of: Pair) -> None:
    """As the control program does: both files in a new folder, then the link is swapped."""
    folder = gateway.folder / "tls"
    home = folder / of.digest
    home.mkdir(parents=True)
    (home / wiring.TLS_CERTIFICATE).write_text(of.certificate)
    (home / wiring.TLS_KEY).write_text(of.key)
    files.publish_link(folder / wiring.TLS_CURRENT, of.digest)


@pytest.fixture
def served(new_gateway: Callable[..., Gateway]) -> tuple[Gateway, Pair]:
    """A gateway with TLS, and its certificate."""
    gateway, first = new_gateway(tls={"mode": "self_signed"}), pair()
    gateway.write()
    put(gateway, first)
    gateway.start_replicas()
    gateway.start()
    return gateway, first


def context(of: Pair) -> ssl.SSLContext:
    """Trusts this certificate only."""
    return ssl.create_default_context(cadata=of.certificate)


def shown(gateway: Gateway) -> str:
    """The certificate that a new connection is shown."""
    return ssl.get_server_certificate(("127.0.0.1", gateway.port))


def test_one_port_serves_http1_and_http2_over_tls(served: tuple[Gateway, Pair]) -> None:
    gateway, own = served
    url, headers = f"https://localhost:{gateway.port}/v1/models", {"authorization": f"Bearer {KEY}"}
    with Client(verify=context(own), trust_env=False) as client:
        answer = client.get(url, headers=headers)
    assert (answer.status_code, answer.http_version) == (200, "HTTP/1.1")
    assert answer.headers["strict-transport-security"] == "max-age=31536000"
    tls = context(own)
    tls.set_alpn_protocols(["h2", "http/1.1"])
    raw = socket.create_connection(("127.0.0.1", gateway.port), timeout=20)
    with tls.wrap_socket(raw, server_hostname="localhost") as connection:
        assert connection.selected_alpn_protocol() == "h2"
        http2 = wire.Http2(gateway.port, connection)
        found = http2.get(
            1, (":method", "GET"), (":scheme", "https"), (":path", "/v1/models"), (":authority", "a"), *headers.items()
        )
        assert found[0] == "end" and b"replica" in found[1]
        http2.close()


def test_our_own_client_speaks_only_to_who_shows_the_published_certificate(served: tuple[Gateway, Pair]) -> None:
    gateway, own = served
    url = f"https://127.0.0.1:{gateway.port}"
    assert GatewayClient(url, own.certificate).health() == 200
    assert GatewayClient(url, own.certificate).models(KEY).status == 200
    assert GatewayClient(url, pair().certificate).health() is None
    assert GatewayClient(url).health() is None


def test_old_versions_of_tls_and_plain_http_are_refused(served: tuple[Gateway, Pair]) -> None:
    gateway, own = served
    old = context(own)
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", gateway.port)) as raw, pytest.raises((ssl.SSLError, OSError)):
        old.wrap_socket(raw, server_hostname="localhost")
    with pytest.raises((http.client.HTTPException, OSError)):
        gateway.ask("GET", "/v1/models")


def test_a_new_certificate_is_shown_at_once_and_a_stream_over_the_old_one_ends_whole(
    served: tuple[Gateway, Pair],
) -> None:
    gateway, first = served
    connection = http.client.HTTPSConnection("localhost", gateway.port, context=context(first), timeout=60)
    body = json.dumps({"stream": True, "act": "step", "max_tokens": 3})
    connection.request("POST", CHAT, body, {"authorization": f"Bearer {KEY}"})
    eventually(lambda: gateway.stat("cluster.vllm.upstream_rq_active") == 1, SOON_S)
    for _ in range(3):
        new = pair()
        put(gateway, new)
        eventually(lambda new=new: shown(gateway).strip() == new.certificate.strip(), SOON_S)  # type: ignore[misc]
    for replica in gateway.replicas:
        for _ in range(3):
            replica.step()
    assert connection.getresponse().read().endswith(b"[DONE]\n\n")
    connection.close()


def test_a_pair_that_does_not_fit_leaves_the_last_good_one_and_is_counted(served: tuple[Gateway, Pair]) -> None:
    gateway, first = served
    put(gateway, Pair(pair().certificate, pair().key))
    eventually(lambda: gateway.stat("sds.server_certificate.update_rejected") + refused(gateway) > 0, SOON_S)
    assert shown(gateway).strip() == first.certificate.strip()
    good = pair()
    put(gateway, good)
    eventually(lambda: shown(gateway).strip() == good.certificate.strip(), SOON_S)


def refused(gateway: Gateway) -> int:
    text = gateway.admin("GET", "/stats?filter=server_certificate")[1]
    return sum(
        int(line.rpartition(": ")[2])
        for line in text.splitlines()
        if "key_rotation_failed" in line or "update_rejected" in line
    )


def test_the_metrics_tell_when_the_certificate_expires(served: tuple[Gateway, Pair]) -> None:
    gateway, _ = served
    assert gateway.stat("server.days_until_first_cert_expiring") in (89, 90)
    put(gateway, pair(days=80))
    eventually(lambda: gateway.stat("server.days_until_first_cert_expiring") in (9, 10), SOON_S)
