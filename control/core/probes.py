"""What somebody outside may try, as data: what is sent, and what the gateway has to answer. No network here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from control.core import wiring

Headers = tuple[tuple[str, str], ...]
NOBODY = "fb-this-is-not-a-key-of-anybody-0123456789abc"
_INNER = f"http://127.0.0.1:{wiring.GATEWAY_INTERNAL_PORT}"
CHAT, MODELS = "/v1/chat/completions", "/v1/models"
SMALL = b'{"model": "m", "messages": []}'
# The engines' own and the gateway's own routes; whoever reaches one can read, stop or fill the service.
CLOSED = (
    *(("GET", path) for path in ("/", "/metrics", "/version", "/docs", "/redoc", "/openapi.json", "/load", "/ping")),
    *(("GET", path) for path in ("/server_info", "/is_sleeping", "/kv_event_sources", "/v1/responses/resp_1")),
    *(("GET", path) for path in ("/ready", "/state", "/stats", "/clusters", "/config_dump", "/certs", "/runtime")),
    *(
        ("POST", path)
        for path in ("/ping", "/invocations", "/sleep", "/wake_up", "/pause", "/resume", "/collective_rpc")
    ),
    *(("POST", path) for path in ("/reset_prefix_cache", "/reset_mm_cache", "/start_profile", "/stop_profile")),
    *(("POST", path) for path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/update_weights")),
    *(("POST", path) for path in ("/scale_elastic_ep", "/is_scaling_elastic_ep", "/inference/v1/generate")),
    *(
        ("POST", path)
        for path in ("/v1/embeddings", "/pooling", "/score", "/rerank", "/classify", "/generative_scoring")
    ),
    *(("POST", f"{CHAT}/{what}") for what in ("batch", "render", "derender")),
    *(("POST", f"/v1/completions/{what}") for what in ("render", "derender")),
    *(
        ("POST", path)
        for path in ("/v1/responses/resp_1/cancel", "/quitquitquit", "/healthcheck/fail", "/drain_listeners")
    ),
)
SPELLINGS = (
    *("/v1/models/../../metrics", "/v1/%2e%2e/metrics", "//metrics", "/v1/models%2f..%2f..%2fmetrics", "/metrics/"),
    *("/v1/models;/../metrics", "/metrics%00", "/metrics;x", "/METRICS", "/v1/models\\..\\metrics", "/./metrics"),
    *(f"{_INNER}/metrics", "http://engine-0:8000/metrics", "/%6detrics", "/metrics?/v1/models"),
)


@dataclass(frozen=True)
class Sent:
    """One request on a connection of its own."""

    method: str
    target: str
    headers: Headers = ()
    body: bytes = b""
    filler: int = 0  # bytes of the letter x after `body`
    chunked: bool = False
    announced: int | None = None  # a Content-Length that is not the body's; the body is not sent then
    key: bool = False  # with the key of the client
    scheme: str = ""  # "plain": without TLS though the port has it; a TLS version: only that one


@dataclass(frozen=True)
class Seen:
    """What came back. No status: nothing that is HTTP."""

    status: int | None
    code: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    words: str = ""


@dataclass(frozen=True)
class Probe:
    """One thing to try. An answer is right if its status is listed, and its error code if one is asked for."""

    group: str
    what: str
    sent: Sent
    statuses: tuple[int | None, ...]
    codes: tuple[str, ...] = ()  # none: any
    absent: tuple[str, ...] = ()  # beginnings of header names that must not come back
    differs: tuple[tuple[str, str], ...] = ()  # header -> the value that it must not have


@dataclass(frozen=True)
class Result:
    """A probe and its verdict."""

    group: str
    what: str
    passed: bool
    sent: str
    seen: str


def judge(probe: Probe, seen: Seen) -> Result:
    """Whether the door was closed in the way it should be."""
    wrong = []
    if seen.status not in probe.statuses:
        wrong.append(f"expected {' or '.join(map(_status, probe.statuses))}")
    elif seen.status is not None and probe.codes and seen.code not in probe.codes:
        wrong.append(f"expected code {' or '.join(probe.codes)}: this is no answer of the gateway")
    wrong += [f"header {name}" for name in seen.headers if probe.absent and name.startswith(probe.absent)]
    wrong += [f"header {name}: {value}" for name, value in probe.differs if seen.headers.get(name) == value]
    told = " ".join(filter(None, (_status(seen.status), seen.code, seen.words)))
    return Result(probe.group, probe.what, not wrong, _sent(probe.sent), "; ".join((told, *wrong)))


def _status(status: int | None) -> str:
    return "no HTTP answer" if status is None else str(status)


def _sent(sent: Sent) -> str:
    """The request in a line, never with the key."""
    parts = [sent.method, sent.target if len(sent.target) < 60 else f"{sent.target[:40]}... ({len(sent.target)} bytes)"]
    parts += [f"{name}: {value if len(value) < 40 else f'({len(value)} bytes)'}" for name, value in sent.headers[:3]]
    if len(sent.headers) > 3:
        parts.append(f"and {len(sent.headers) - 3} more headers")
    size = sent.announced or len(sent.body) + sent.filler
    if size:
        parts.append(f"{size} bytes{', chunked' if sent.chunked else ''}{' (announced)' if sent.announced else ''}")
    return ", ".join((" ".join(parts[:2]), *parts[2:], *(("with a key",) if sent.key else ())))


# ---- the list


def all_probes(max_body_bytes: int, tls: bool, foreign_origins: bool) -> list[Probe]:
    """Everything that is tried; `foreign_origins`: pages of anybody may call (CORS of *)."""
    found = [*_routes(), *_spellings(), *_methods(), *_keys(), *_headers(), *_bodies(max_body_bytes)]
    found += [] if foreign_origins else _cors()
    return found + (_tls() if tls else [])


def _routes() -> Iterator[Probe]:
    for method, path in CLOSED:
        body = SMALL if method == "POST" else b""
        yield Probe("routes", f"{method} {path}", Sent(method, path, body=body, key=True), (404,), ("unknown_url",))


def _spellings() -> Iterator[Probe]:
    refused = ("unknown_url", "bad_path", "bad_request", "")
    for target in SPELLINGS:
        yield Probe("paths", f"a way around: {target}", Sent("GET", target, key=True), (400, 404), refused)


def _methods() -> Iterator[Probe]:
    for method in ("HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "get"):
        statuses: tuple[int | None, ...] = (400, 404, 405)
        yield Probe("methods", f"{method} {MODELS}", Sent(method, MODELS, key=True), statuses)
    target = _INNER.removeprefix("http://")
    yield Probe(
        "methods", "CONNECT to the inner port", Sent("CONNECT", target, key=True), (400, 401, 403, 404, 405, None)
    )


def _keys() -> Iterator[Probe]:
    tries: Mapping[str, Headers] = {
        "no key": (),
        "a key of nobody": (("authorization", f"Bearer {NOBODY}"),),
        "an empty key": (("authorization", "Bearer "),),
        "a key of nobody in x-api-key": (("x-api-key", NOBODY),),
        "Basic instead of Bearer": (("authorization", "Basic YWxpY2U6YWxpY2U="),),
        "a key of 300 letters": (("authorization", f"Bearer {'x' * 300}"),),
        "two keys": (("authorization", f"Bearer {NOBODY}"), ("authorization", "Bearer x")),
        "a list of keys": (("authorization", f"Bearer {NOBODY}, Bearer x"),),
        "a claim to be somebody": (("x-client-id", "alice"), ("x-forwarded-for", "127.0.0.1")),
        "a cookie": (("cookie", f"key={NOBODY}"),),
    }
    for what, headers in tries.items():
        yield Probe("keys", what, Sent("GET", MODELS, headers), (401,), ("missing_api_key", "invalid_api_key"))
        yield Probe("keys", f"{what}, chat", Sent("POST", CHAT, (*headers, _JSON), SMALL), (401,))
    query = Sent("GET", f"{MODELS}?api_key={NOBODY}&key={NOBODY}")
    yield Probe("keys", "a key in the query", query, (401,), ("missing_api_key",))


_JSON = ("content-type", "application/json")
EXPIRED = Probe("keys", "a key that has expired", Sent("GET", MODELS, key=True), (401,), ("expired_api_key",))
_TELLING = ("x-envoy", "x-powered-by", "via", "set-cookie", "x-flashbox-limit")


def _headers() -> Iterator[Probe]:
    smuggled = (("content-length", "5"), ("transfer-encoding", "chunked"))
    yield Probe("headers", "Content-Length and chunked at once", Sent("POST", CHAT, smuggled, key=True), (400,))
    twice = (("content-length", "5"), ("content-length", "6"))
    yield Probe("headers", "two Content-Lengths", Sent("POST", CHAT, twice, key=True), (400,))
    yield Probe("headers", "a name with an underscore", Sent("GET", MODELS, (("x_client_id", "a"),), key=True), (400,))
    yield Probe("headers", "one header of 70 KiB", Sent("GET", MODELS, (("x-long", "x" * 71_680),)), (431,))
    many = tuple((f"x-many-{number}", "x") for number in range(150))
    yield Probe("headers", "150 headers", Sent("GET", MODELS, many), (431,))
    yield Probe("headers", "a path of 70 KiB", Sent("GET", f"/{'x' * 71_680}"), (400, 414, 431))
    orders = (
        *(("x-envoy-upstream-rq-timeout-ms", "1"), ("x-envoy-max-retries", "9"), ("x-envoy-force-trace", "1")),
        *(("x-request-id", "chosen-by-the-caller"), ("x-forwarded-for", "10.0.0.1"), ("x-envoy-internal", "true")),
    )
    asked = Sent("GET", MODELS, orders, key=True)
    own = (("x-request-id", "chosen-by-the-caller"),)
    yield Probe("headers", "orders for Envoy are ignored, nothing is told", asked, (200, 503), (), _TELLING, own)
    # One id for all requests would be charged once; a name for the conversation chooses the replica.
    counted = (_JSON, ("x-request-id", own[0][1]), (wiring.AFFINITY_HEADER, "a" * 32), ("x-flashbox-would-refuse", "x"))
    asked = Sent("POST", CHAT, counted, SMALL, key=True)
    what = "an id and a conversation of the caller's own count for nothing"
    yield Probe("headers", what, asked, (200, 400, 404, 503), (), (*_TELLING, "x-flashbox"), own)
    hosts = Sent("GET", "/metrics", (("host", _INNER.removeprefix("http://")),), key=True)
    yield Probe("headers", "the inner port as Host", hosts, (404,), ("unknown_url",))
    override = Sent("POST", MODELS, (("x-http-method-override", "GET"),), key=True)
    yield Probe("headers", "another method in a header", override, (404,), ("unknown_url",))


def _bodies(limit: int) -> Iterator[Probe]:
    large = ("request_too_large",)
    announced = Sent("POST", CHAT, (_JSON,), announced=limit + 1, key=True)
    yield Probe("bodies", "larger than allowed, by Content-Length", announced, (413,), large)
    chunked = Sent("POST", CHAT, (_JSON,), b'{"model": "', limit + 1, True, key=True)
    yield Probe("bodies", "larger than allowed, chunked", chunked, (413,), large)


def _cors() -> Iterator[Probe]:
    origin = ("origin", "https://foreign.example")
    allowed = ("access-control-allow",)
    yield Probe("cors", "a page of another origin", Sent("GET", MODELS, (origin,), key=True), (200, 503), (), allowed)
    preflight = (origin, ("access-control-request-method", "POST"))
    asked = Sent("OPTIONS", CHAT, preflight)
    yield Probe("cors", "its preflight", asked, (200, 204, 401, 403, 404), (), allowed)


def _tls() -> list[Probe]:
    old = [
        Probe("tls", f"{version} is refused", Sent("GET", "/health", scheme=version), (None,))
        for version in ("TLSv1", "TLSv1.1")
    ]
    return [*old, Probe("tls", "no HTTP without TLS", Sent("GET", "/health", scheme="plain"), (None,))]


def published(ports: Sequence[tuple[str, str]]) -> list[Result]:
    """One verdict for each container: only the gateway publishes, and only its public port."""
    found = []
    for service, port in ports:
        good = not port or (service == "gateway" and port.endswith("->8000/tcp"))
        found.append(Result("ports", f"published by {service}", good, "docker", port or "nothing"))
    return found


def code_of(body: bytes) -> str:
    """The code of an error object in OpenAI's or Anthropic's form."""
    try:
        error = json.loads(body)["error"]
        return str(error.get("code") or error.get("type") or "")
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""
