"""The doors of the stand-in: routes, layers, and how a refusal becomes an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from stub import anthropic, body, chat, completions, extra, responses, simple
from stub.errors import ApiError, Unparsable, busy, internal
from stub.guard import KeyGuard, LoadCounter, RequestCounter, RequestIds, Varies
from stub.job import Job
from stub.serve import EventStream, answer, submit
from stub.service import Service
from stub.shape_chat import Chat
from stub.shape_messages import Messages
from stub.shape_responses import Responses
from stub.shape_text import Text
from stub.shapes import MakeShape
from stub.wire import dump

Endpoint = Callable[[Request], Awaitable[Response]]
Understand = Callable[[Service, body.Body, "str | None"], Job]
# Requests for an answer: counted by /load, refused by the fault `unavailable`.
ANSWERING = (
    "/v1/chat/completions",
    "/v1/chat/completions/batch",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/inference/v1/generate",
    "/invocations",
)


def application(service: Service) -> ASGIApp:
    """The whole ASGI application."""
    routes = [*_watching(service), *_answering(service), *_others(service)]
    routes += _described(routes)
    everyone = [] if service.release.refuses_foreign_origin else ["*"]
    any_of = ["*"]
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(RequestIds, "--enable-request-id-headers" in service.flags),
            Middleware(KeyGuard, service.settings.api_key),
            Middleware(Varies, service.release.varies),
            Middleware(CORSMiddleware, allow_origins=everyone, allow_methods=any_of, allow_headers=any_of),
            Middleware(RequestCounter, service.metrics, routes),
            Middleware(LoadCounter, service, ANSWERING),
        ],
        exception_handlers={
            ApiError: _refused(service),
            Unparsable: _unparsable,
            HTTPException: _router_says,
            Exception: _failed(service),
        },
    )


def _watching(service: Service) -> list[Route]:
    return [
        _route("GET", "/load", simple.load(service)),
        _route("GET", "/version", simple.constant({"version": service.release.version})),
        _route("GET", "/health", simple.health(service)),
        _route("GET", "/metrics", simple.metrics(service)),
        _route("POST", "/tokenize", simple.tokenize(service)),
        _route("POST", "/detokenize", simple.detokenize(service)),
        _route("GET", "/v1/models", simple.models(service)),
        _route("GET", "/ping", simple.health(service)),
        _route("POST", "/ping", simple.health(service)),
    ]


def _answering(service: Service) -> list[Route]:
    chats, texts = _generate(service, chat.understand, Chat), _generate(service, completions.understand, Text)
    unknown = simple.unknown_response(service)
    return [
        _route("POST", "/invocations", extra.invocations(service, chats, texts)),
        _route("POST", "/v1/chat/completions", chats),
        _route("POST", "/v1/chat/completions/batch", _generate(service, chat.understand_batch, Chat)),
        _route("POST", "/v1/responses", _generate(service, responses.understand, Responses)),
        _route("GET", "/v1/responses/{response_id}", unknown),
        _route("POST", "/v1/responses/{response_id}/cancel", unknown),
        _route("POST", "/v1/completions", texts),
        _route("POST", "/v1/messages", _anthropic(service, _generate(service, anthropic.understand, Messages))),
        _route("POST", "/v1/messages/count_tokens", _anthropic(service, extra.count_tokens(service))),
    ]


def _others(service: Service) -> list[Route]:
    generate = _generate(service, extra.understand_generate, extra.Generate)
    guarded = extra.scale_out(service)
    found = [
        _route("POST", "/generative_scoring", extra.scoring(service)),
        _route("POST", "/scale_elastic_ep", extra.scale(service)),
        _route("POST", "/is_scaling_elastic_ep", simple.constant(simple.scaling(service))),
        _route("POST", "/v1/chat/completions/render", guarded(extra.render(service))),
        _route("POST", "/inference/v1/generate", guarded(generate)),
    ]
    for path in ("/v1/completions/render", "/v1/chat/completions/derender", "/v1/completions/derender"):
        found.append(_route("POST", path, guarded(extra.not_played)))
    if service.release.weight_versions:
        found.append(_route("POST", "/v1/decisions", extra.not_played))
    if service.release.newer_routes:
        closed = guarded(extra.not_played)
        for path in ("/v1/messages/render", "/v1/responses/render", "/inference/v1/abort_requests"):
            found.append(_route("POST", path, closed))
        found.append(_route("GET", "/kv_event_sources", simple.constant({})))
        found.append(_route("POST", "/v1/systemone", extra.system_one(service)))
    return found


def _described(routes: list[Route]) -> list[Route]:
    """The pages about the routes; they are open, and answer HEAD too."""
    paths: dict[str, dict[str, object]] = {}
    for route in routes:
        paths.setdefault(route.path, {}).update({method.lower(): {} for method in route.methods or ()})
    info = {"title": "FastAPI", "version": "0.1.0"}
    pages = [Route("/openapi.json", simple.constant({"openapi": "3.1.0", "info": info, "paths": paths}))]
    for path in ("/docs", "/docs/oauth2-redirect", "/redoc"):
        pages.append(Route(path, simple.page("the stand-in engine")))
    return pages


def _route(method: str, path: str, endpoint: Endpoint) -> Route:
    route = Route(path, endpoint, methods=[method])
    route.methods = {method}  # the server stood in for does not answer HEAD where it answers GET
    return route


def _generate(service: Service, understand: Understand, make_shape: MakeShape) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        given = await body.read(request, service.release)
        if service.faults.unavailable:
            raise busy()
        job = understand(service, given, request.headers.get("x-request-id"))
        shape = make_shape(job, service)
        if not job.stream:
            return await answer(service, job, shape, request.receive)
        submit(service, job)
        return EventStream(service, job, shape)

    return endpoint


def _anthropic(service: Service, inner: Endpoint) -> Endpoint:
    """Refusals in Anthropic's shape."""

    async def endpoint(request: Request) -> Response:
        try:
            return await inner(request)
        except ApiError as error:
            return anthropic.refusal(error, service.release)

    return endpoint


def _refused(service: Service) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def handle(request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        return error.response(service.release)

    return handle


async def _unparsable(request: Request, error: Exception) -> Response:
    return Response(dump({"detail": str(error)}), 400, media_type="application/json")


async def _router_says(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Response(dump({"detail": error.detail}), error.status_code, error.headers, "application/json")


def _failed(service: Service) -> Callable[[Request, Exception], Awaitable[Response]]:
    """What the stand-in itself did wrong; the log has the trace."""

    async def handle(request: Request, error: Exception) -> Response:
        return internal(str(error)).response(service.release)

    return handle
