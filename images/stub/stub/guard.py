"""The outermost layers: request ids, the API key of /v1 and /inference, and the counting of HTTP requests."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stub.metrics import Metrics
from stub.service import Service

_GUARDED = ("/v1", "/inference")
_NOT_COUNTED = re.compile("/metrics|/health|/load|/ping|/version|/server_info")


class RequestIds:
    """With a flag, every answer says the request's id: the client's own, or a new one."""

    def __init__(self, app: ASGIApp, on: bool) -> None:
        self._app, self._on = app, on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._on or scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = Headers(scope=scope).get("x-request-id") or secrets.token_hex(16)
        await self._app(scope, receive, _adding(send, "x-request-id", name))


class Varies:
    """Later releases say `vary: Origin` on what passed the key."""

    def __init__(self, app: ASGIApp, on: bool) -> None:
        self._app, self._on = app, on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, _adding(send, "vary", "Origin") if self._on else send)


def _adding(send: Send, header: str, value: str) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).setdefault(header, value)
        await send(message)

    return wrapped


class LoadCounter:
    """With a flag, counts the requests for an answer that are in hand."""

    def __init__(self, app: ASGIApp, service: Service, paths: Sequence[str]) -> None:
        self._app, self._service, self._paths = app, service, frozenset(paths)
        self._on = "--enable-server-load-tracking" in service.flags

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._on or scope["type"] != "http" or scope["path"] not in self._paths:
            await self._app(scope, receive, send)
            return
        self._service.load += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._service.load -= 1


class KeyGuard:
    """401 without the right `Authorization: Bearer`; paths outside of /v1 and /inference stay open, as in 0.26.0."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app, self._key = app, key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        guarded = scope["type"] == "http" and scope["method"] != "OPTIONS" and scope["path"].startswith(_GUARDED)
        if self._key and guarded and not self._knows(Headers(scope=scope).get("authorization", "")):
            refusal = Response(b'{"error":"Unauthorized"}', 401, media_type="application/json")
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _knows(self, header: str) -> bool:
        scheme, _, key = header.partition(" ")
        return scheme.lower() == "bearer" and secrets.compare_digest(key.encode("utf-8", "replace"), self._key)


class RequestCounter:
    """Counts what the router answers, by handler, method and class of status."""

    def __init__(self, app: ASGIApp, metrics: Metrics, routes: Sequence[BaseRoute]) -> None:
        self._app, self._metrics, self._routes = app, metrics, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        template = self._template(scope)
        if scope["type"] != "http" or _NOT_COUNTED.search(template or scope["path"]):
            await self._app(scope, receive, send)
            return
        started, seen = time.perf_counter(), {"status": 500, "length": 0}

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start":
                length = Headers(raw=message["headers"]).get("content-length", "0")
                seen.update(status=message["status"], length=int(length))
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            self._count(scope, template or "none", seen, time.perf_counter() - started)

    def _template(self, scope: Scope) -> str | None:
        for route in self._routes:
            if route.matches(scope)[0] == Match.FULL:
                return getattr(route, "path", None)
        return None

    def _count(self, scope: Scope, handler: str, seen: dict[str, int], seconds: float) -> None:
        method = scope["method"]
        length = Headers(scope=scope).get("content-length", "0")
        metrics = self._metrics
        metrics["http_requests_total"].add(1, handler, method, f"{seen['status'] // 100}xx")
        metrics["http_request_size_bytes"].observe(int(length) if length.isdigit() else 0, handler)
        metrics["http_response_size_bytes"].observe(seen["length"], handler)
        metrics["http_request_duration_highr_seconds"].observe(seconds)
        metrics["http_request_duration_seconds"].observe(seconds, handler, method)
