"""Ways around the allow-list and the key check that people try: none of them reaches a replica."""

from __future__ import annotations

import pytest

from tests.contract.gateway import wire
from tests.contract.gateway.harness import CHAT, KEY, Gateway

AUTH = f"authorization: Bearer {KEY}"
HIDDEN = ["/metrics", "/invocations", "/v1/load_lora_adapter"]
SPELLINGS = [
    "/v1/models/..{path}",
    "/health/..{path}",
    "/health/%2e%2e{path}",
    "//health/..{path}",
    "/v1/models%2f..{path}",
    "/v1/models;{path}",
    "/v1/models?{path}",
    "http://127.0.0.1{path}",
    "http://engine:8000{path}",
    "/{path}",
    "/.{path}",
    "/health%00{path}",
    "/health\\..{path}",
    "/v1/../v1/models/../..{path}",
    "{path}#/v1/models",
    "{path}?/health",
    "{path};/health",
]


def request(target: str, *headers: str, method: str = "GET", body: str = "") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "host: a", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode("latin-1")


def seen(gateway: Gateway) -> list[str]:
    """Targets that reached replicas, sorted."""
    return sorted(asked["target"] for replica in gateway.replicas for asked in replica.requests)


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_spelling_of_a_path_reaches_what_is_not_allowed(
    shared: Gateway, hidden: str, spelling: str, method: str
) -> None:
    target = spelling.format(path=hidden)
    answer = wire.send(shared.port, request(target, AUTH, "content-length: 0", method=method))
    assert answer.status in (200, 400, 404), answer
    assert not [path for path in seen(shared) if path not in ("/v1/models", CHAT, "/v1/completions")]
    if answer.status == 200:  # only as the allowed route or health itself
        assert answer.json == {"status": "OK"} or answer.json["path"] == "/v1/models"


@pytest.mark.parametrize(
    "target",
    [
        "//v1/models",
        "/v1//models",
        "/health/../v1/models",
        "http://engine/v1/models",
        "/v1/models?x=/health",
        "/v1/%6dodels",
    ],
)
def test_another_spelling_of_an_allowed_path_still_needs_a_key(shared: Gateway, target: str) -> None:
    before = seen(shared)
    assert wire.send(shared.port, request(target)).status == 401
    assert wire.send(shared.port, request(target, "x-client-id: alice", "x-forwarded-for: 127.0.0.1")).status == 401
    assert seen(shared) == before
    answer = wire.send(shared.port, request(target, AUTH))
    assert answer.status == 404 or answer.json["path"] == "/v1/models"


@pytest.mark.parametrize(
    "headers",
    [
        (AUTH, "authorization: Bearer x"),
        ("authorization: Bearer x", AUTH),
        (AUTH, AUTH),
        (f"authorization: Bearer x, Bearer {KEY}",),
        (f"authorization: Bearer\t{KEY}",),
        (f"x-authorization: Bearer {KEY}",),
        (f"proxy-authorization: Bearer {KEY}",),
        (f"api-key: {KEY}",),
        (f"cookie: authorization=Bearer {KEY}",),
        ("authorization: Bearer the-upstream-key",),
        # x-api-key counts only without an Authorization header, alone, and as the bare key.
        ("authorization: Bearer x", f"x-api-key: {KEY}"),
        (f"x-api-key: {KEY}", "authorization: Bearer x"),
        ("authorization:", f"x-api-key: {KEY}"),
        (f"authorization: Basic {KEY}", f"x-api-key: {KEY}"),
        (f"x-api-key: {KEY}", f"x-api-key: {KEY}"),
        (f"x-api-key: {KEY}", "x-api-key: x"),
        ("x-api-key: x", f"x-api-key: {KEY}"),
        ("x-api-key:", f"x-api-key: {KEY}"),
        (f"x-api-key: {KEY},",),
        (f"x-api-key: x,{KEY}",),
        (f"x-api-key: Bearer {KEY}",),
        (f"x-api-key: x {KEY}",),
        (f"x-api-key: {KEY}x",),
        ("x-api-key:",),
        ("x-api-key: the-upstream-key",),
        (f"x-api-key : {KEY}",),
        (f"x-api-key: x\r\n {KEY}",),
        ("x-api-key: " + "x" * 5000,),
    ],
)
def test_only_one_plain_bearer_key_counts(shared: Gateway, headers: tuple[str, ...]) -> None:
    before = seen(shared)
    assert wire.send(shared.port, request("/v1/models", *headers)).status in (400, 401)
    assert seen(shared) == before


@pytest.mark.parametrize(
    "headers",
    [
        (AUTH, "x-api-key: x"),
        ("x-api-key: x", AUTH),
        (AUTH, f"x-api-key: {KEY}"),
        (f"X-Api-Key: {KEY}",),
        (f"x-api-key:{KEY}",),
        (f"x-api-key: \t {KEY} ",),
    ],
)
def test_authorization_wins_over_x_api_key_and_neither_reaches_a_replica(
    shared: Gateway, headers: tuple[str, ...]
) -> None:
    assert wire.send(shared.port, request("/v1/models", *headers)).status == 200
    newest = max((asked for replica in shared.replicas for asked in replica.requests), key=lambda asked: asked["at"])
    assert not [line for line in newest["headers"] if line.lower().startswith("x-api-key") or KEY in line]


@pytest.mark.parametrize("name", ["x_api_key", "x_client_id", "author_ization", "content_length", "transfer_encoding"])
def test_headers_with_underscores_are_refused(shared: Gateway, name: str) -> None:
    answer = wire.send(shared.port, request("/v1/models", AUTH, f"{name}: 1"))
    assert (answer.status, answer.error["code"]) == (400, "bad_header")


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (("content-length: 4", "transfer-encoding: chunked"), "0\r\n\r\nGET /metrics HTTP/1.1\r\nhost: a\r\n\r\n"),
        (("content-length: 0", "content-length: 4"), "{}xx"),
        (("transfer-encoding: chunked, identity",), "0\r\n\r\n"),
        (("transfer-encoding: xchunked",), "0\r\n\r\n"),
        (("transfer-encoding: chunked",), "zz\r\n{}\r\n0\r\n\r\n"),
        ((f" {AUTH}",), ""),
        (("content-length: -1",), ""),
    ],
)
def test_a_request_of_two_readings_is_refused(shared: Gateway, headers: tuple[str, ...], body: str) -> None:
    answer = wire.send(shared.port, request(CHAT, AUTH, *headers, method="POST", body=body))
    assert answer.status in (400, 401, 501), answer
    assert not [path for path in seen(shared) if "metrics" in path]


def test_a_caller_cannot_steer_retries_timeouts_or_its_address(shared: Gateway) -> None:
    tricks = {"x-envoy-retry-on": "5xx,reset", "x-envoy-max-retries": "9", "x-envoy-upstream-rq-timeout-ms": "1"}
    before = len(seen(shared))
    answer = shared.ask("POST", CHAT, {"act": "lose"}, headers={**tricks, "x-forwarded-for": "9.9.9.9"})
    assert (answer.status, len(seen(shared))) == (503, before + 1)
    slow = shared.ask("POST", CHAT, {"stream": True, "max_tokens": 10}, headers=tricks)
    assert slow.body.endswith(b"[DONE]\n\n")
    newest = max((asked for replica in shared.replicas for asked in replica.requests), key=lambda asked: asked["at"])
    assert not [line for line in newest["headers"] if line.lower().startswith(("x-envoy", "x-client-id"))]


def test_http2_without_tls_has_the_same_routes_and_the_same_lock(shared: Gateway) -> None:
    def get(path: str, *headers: tuple[str, str]) -> tuple[str, bytes]:
        connection = wire.Http2(shared.port)
        try:
            start = ((":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "a"))
            return connection.get(1, *start, *headers)
        finally:
            connection.close()

    before = seen(shared)
    auth = ("authorization", f"Bearer {KEY}")
    assert b"missing_api_key" in get("/v1/models")[1]
    assert b"invalid_api_key" in get("/v1/models", auth, auth)[1]
    x_api_key = ("x-api-key", KEY)
    assert b"invalid_api_key" in get("/v1/models", x_api_key, x_api_key)[1]
    assert b"invalid_api_key" in get("/v1/models", ("authorization", "Bearer x"), x_api_key)[1]
    assert get("/v1/models", ("X-Api-Key", KEY))[0] in ("reset", "goaway")
    assert b"unknown_url" in get("/metrics", x_api_key)[1]
    assert b"unknown_url" in get("/metrics", auth)[1]
    assert b"unknown_url" in get("//metrics", auth)[1]
    assert b"bad_path" in get("/v1%2fmodels", auth)[1]
    assert get("/v1/models", auth, ("x_client_id", "1")) == ("reset", b"")
    assert get("/v1/models", auth, ("transfer-encoding", "chunked"))[0] in ("reset", "goaway")
    assert get("/v1/models", auth, ("X-Upper", "1"))[0] in ("reset", "goaway")
    assert get("/health")[1].strip() == b'{"status":"OK"}'
    assert seen(shared) == before
    assert b'"path": "/v1/models"' in get("/v1/models", auth)[1]
    assert b'"path": "/v1/models"' in get("/v1/models", x_api_key)[1]
