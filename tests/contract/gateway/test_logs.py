"""One record a request, the same on stdout and at the collector; and nothing secret in any byte that leaves."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contract.gateway import wire
from tests.contract.gateway.harness import (
    CHAT,
    KEY,
    MESSAGES,
    SOON_S,
    UPSTREAM_KEY,
    Answer,
    Gateway,
    answer_of,
    api_key,
    gateway_settings,
)
from tests.contract.gateway.otlp import Collector
from tests.contract.policy.process import Policy
from tests.eventually import eventually

SLOW_KEY = "fb-planted-key-with-a-limit"
PROMPT, ANSWERED = "planted-prompt-of-the-caller", "planted-answer-of-the-engine"
QUERY, COOKIE, WRONG_KEY, HEADER = "planted-query", "planted-cookie", "fb-planted-wrong-key", "planted-header"
SECRETS = (KEY, SLOW_KEY, UPSTREAM_KEY, PROMPT, ANSWERED, QUERY, COOKIE, WRONG_KEY, HEADER, "planted")


def body(**more: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": PROMPT}],
        "metadata": {PROMPT: PROMPT},
        **more,
    }


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Collector]]:
    """A gateway with monitoring, a collector, and a key that may ask once a second."""
    collector = Collector()
    folder = tmp_path_factory.mktemp("logged")
    gateway = Gateway(folder, gateway_settings(monitoring=True, max_body_mib=1), count=1)
    gateway.collector_port = collector.port
    gateway.api_keys = (api_key(KEY), replace(api_key(SLOW_KEY, "slow"), requests_per_second=1))
    gateway.policy = Policy(folder / "policy", gateway.policy_rules())
    try:
        with gateway.serving():
            yield gateway, collector
    finally:
        collector.close()


def send(gateway: Gateway, path: str = CHAT, key: str = KEY, content: object = None, **headers: str) -> Answer:
    """A request with secrets wherever one has a place."""
    planted = {"cookie": f"s={COOKIE}", "x-other": HEADER, "proxy-authorization": f"Basic {HEADER}", "referer": HEADER}
    given = {"content-type": "application/json", **planted, **headers}
    return gateway.ask(
        "POST", f"{path}?api_key={QUERY}", body() if content is None else content, headers=given, key=key
    )


def cut(gateway: Gateway) -> None:
    """A client that leaves in the middle of its stream."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
    content = json.dumps(body(stream=True, act="stall"))
    connection.request("POST", f"{CHAT}?k={QUERY}", content, {"authorization": f"Bearer {KEY}", "cookie": COOKIE})
    connection.getresponse().read(10)
    connection.close()


def outcomes(gateway: Gateway) -> dict[str, int]:
    """Every way in which a request can end, each with secrets in it; name -> status."""
    found = {
        "answered": send(gateway),
        "refused by policy": send(gateway, content=body(n=10_000)),
        "refused by the engine, which repeats the prompt": send(gateway, content=body(act="echo")),
        "no key": send(gateway, key=""),
        "wrong key": send(gateway, key=WRONG_KEY),
        "wrong key, other header": send(gateway, key="", **{"x-api-key": WRONG_KEY}),
        "no such path": send(gateway, path="/v1/planless"),
        "too large": send(gateway, content=json.dumps(body(pad=PROMPT * 60_000))),
        "not JSON": send(gateway, content=f'{{"{PROMPT}": NaN'),
        "surrogate": send(
            gateway, content=f'{{"model": "m", "messages": [{{"role": "user", "content": "{PROMPT}\\ud83d"}}]}}'
        ),
        "messages": send(gateway, path=MESSAGES),
        "lost": send(gateway, content=body(act="lose")),
        "garbage": send(gateway, content=body(act="garbage")),
        "busy": send(gateway, content=body(act="refuse")),
        "bad header": wire.send(
            gateway.port, f"GET /v1/models HTTP/1.1\r\nhost: a\r\nx_{HEADER}: {HEADER}\r\n\r\n".encode()
        ),
        "long header": wire.send(
            gateway.port, f"GET /v1/models HTTP/1.1\r\nhost: a\r\nx: {HEADER * 5000}\r\n\r\n".encode()
        ),
    }
    slow = [send(gateway, key=SLOW_KEY).status for _ in range(4)]
    cut(gateway)
    return {**{name: answer.status for name, answer in found.items()}, "limited": max(slow)}


EXPECTED = {
    "answered": 200,
    "refused by policy": 400,
    "refused by the engine, which repeats the prompt": 400,
    "no key": 401,
    "wrong key": 401,
    "wrong key, other header": 401,
    "no such path": 404,
    "too large": 413,
    "not JSON": 400,
    "surrogate": 400,
    "messages": 200,
    "lost": 503,
    "garbage": 502,
    "busy": 503,
    "bad header": 400,
    "long header": 431,
    "limited": 429,
}


def test_no_byte_that_leaves_holds_a_secret_however_a_request_ends(logged: tuple[Gateway, Collector]) -> None:
    gateway, collector = logged
    assert outcomes(gateway) == EXPECTED
    wanted = len(EXPECTED) + 4  # the limited ones, and the one that was cut
    eventually(lambda: len(gateway.lines("access")) >= wanted, SOON_S)
    eventually(lambda: len(collector.records) >= wanted, SOON_S)
    assert gateway.policy is not None
    leaves = {
        "records": b"".join(collector.raw),
        "stdout": gateway.log.read_bytes(),
        "policy's stdout": gateway.policy.log.read_bytes(),
        "policy's metrics": gateway.policy.get("/metrics")[1].encode(),
        **{
            f"admin {path}": gateway.admin("GET", path)[1].encode()
            for path in ("/stats", "/stats/prometheus", "/clusters", "/listeners")
        },
        "config_dump": gateway.admin("GET", "/config_dump")[1].encode(),
        "config_dump with endpoints": gateway.admin("GET", "/config_dump?include_eds")[1].encode(),
        "metrics": metrics(gateway),
        "files": b"".join(path.read_bytes() for path in gateway.dynamic.parent.rglob("*") if path.is_file()),
    }
    for place, data in leaves.items():
        assert data, place
        for secret in SECRETS:
            at = data.find(secret.encode())
            assert at < 0, f"{place} holds {secret}: {data[max(0, at - 300) : at + 100]!r}"


def metrics(gateway: Gateway) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.internal_port, timeout=20)
    try:
        connection.request("GET", "/metrics")
        return answer_of(connection.getresponse()).body
    finally:
        connection.close()


def record(collector: Collector, answer: Answer) -> dict[str, str]:
    wanted = answer.headers["x-request-id"]
    found: list[dict[str, str]] = eventually(
        lambda: [r for r in collector.records if r.get("request_id") == wanted], SOON_S
    )
    assert len(found) == 1, found
    return found[0]


def line(gateway: Gateway, answer: Answer) -> dict[str, Any]:
    wanted = answer.headers["x-request-id"]
    found: list[dict[str, Any]] = eventually(
        lambda: [x for x in gateway.lines("access") if x["request_id"] == wanted], SOON_S
    )
    assert len(found) == 1, found
    return found[0]


def test_a_record_says_who_asked_for_what_and_what_became_of_it(logged: tuple[Gateway, Collector]) -> None:
    gateway, collector = logged
    answer = send(gateway, content=body(stream=True))
    seen = record(collector, answer)
    assert collector.paths == {"/v1/logs"}
    expected = {
        "service.name": "envoy",
        "status": "200",
        "client": "alice",
        "key_id": api_key(KEY).key_id,
        "client_address": "127.0.0.1",
        "model": "m",
        "max_tokens": "5",
        "stream": "true",
        "verdict": "ok",
        "mode": "enforce",
        "attempts": "1",
        "path": CHAT,
        "method": "POST",
        "upstream": f"{gateway.slots[0].address}:{gateway._engine_port}",
        "replica": gateway.slots[0].name,
        "bytes_in": str(len(json.dumps(body(stream=True)))),
    }
    assert {name: seen.get(name) for name in expected} == expected
    assert 0 <= int(seen["ttft_ms"]) <= int(seen["duration_ms"])
    assert seen["body"].startswith(f"POST {CHAT} 200 ")


@pytest.mark.parametrize("key", [KEY, "", WRONG_KEY])
def test_both_logs_say_the_same(logged: tuple[Gateway, Collector], key: str) -> None:
    gateway, collector = logged
    answer = send(gateway, key=key)
    theirs, ours = record(collector, answer), line(gateway, answer)
    assert set(theirs) - {"service.name", "body"} == set(ours) - {"time", "log"}
    for name, value in ours.items():
        if name not in ("time", "log"):
            assert theirs[name] in (shown(value), "-" if value is None else shown(value)), name


def shown(value: object) -> str:
    """A JSON value as Envoy writes it into a text."""
    return value if isinstance(value, str) else json.dumps(value)


def test_records_are_counted_also_those_that_nobody_took(logged: tuple[Gateway, Collector]) -> None:
    gateway, _ = logged
    send(gateway)
    prefix = "access_logs.open_telemetry_access_log.otel_collector"
    eventually(lambda: gateway.stat(f"{prefix}.logs_written") > 0, SOON_S)
    assert f"envoy_{prefix.replace('.', '_')}_logs_dropped".encode() in metrics(gateway)


def test_without_monitoring_there_is_no_collector_and_stdout_goes_on(shared: Gateway) -> None:
    answer = shared.complete()
    assert line(shared, answer)["status"] == 200
    assert "otel_collector" not in shared.admin("GET", "/clusters")[1]


def test_the_folder_of_the_product_holds_the_same_table_in_both_forms(tmp_path: Path) -> None:
    text = Gateway(tmp_path, gateway_settings(monitoring=True)).product()["lds.yaml"]
    assert "http://otel-collector:4318/v1/logs" in text and text.count("%REQ(AUTHORIZATION") == 0
    assert "%REQ(:PATH)%" not in text
