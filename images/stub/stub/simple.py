"""The routes that need no engine: health, load, metrics, models, tokens."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from stub import body, chat, messages
from stub.errors import complaint, invalid, missing
from stub.fields import Field, read_fields, text, truth
from stub.metrics import CONTENT_TYPE
from stub.responses import not_found
from stub.service import Service
from stub.wire import dump

Endpoint = Callable[[Request], Awaitable[Response]]


def json_answer(value: object) -> Response:
    """A JSON answer."""
    return Response(dump(value), media_type="application/json")


def constant(value: object) -> Endpoint:
    """Always the same."""

    async def endpoint(request: Request) -> Response:
        return json_answer(value)

    return endpoint


def page(title: str) -> Endpoint:
    """A page for people."""

    async def endpoint(request: Request) -> Response:
        return Response(f"<!DOCTYPE html><title>{title}</title>", media_type="text/html")

    return endpoint


def scaling(service: Service) -> dict[str, Any]:
    """Nothing scales."""
    more = ("epoch", "error", "requested_data_parallel_size")
    found: dict[str, Any] = {"is_scaling_elastic_ep": False}
    return {**found, "phase": "idle", **dict.fromkeys(more)} if service.release.scaling_phases else found


def load(service: Service) -> Endpoint:
    """How many requests are in hand; 0 unless a flag has them counted."""

    async def endpoint(request: Request) -> Response:
        return json_answer({"server_load": service.load})

    return endpoint


def health(service: Service) -> Endpoint:
    """200 while the engine lives; a hung engine lives."""

    async def endpoint(request: Request) -> Response:
        return Response(status_code=503 if service.engine.dead or service.faults.unhealthy else 200)

    return endpoint


def metrics(service: Service) -> Endpoint:
    """The metrics page."""

    async def endpoint(request: Request) -> Response:
        return Response(service.metrics.page(service.engine), headers={"content-type": CONTENT_TYPE})

    return endpoint


def models(service: Service) -> Endpoint:
    """The one model that is served."""

    async def endpoint(request: Request) -> Response:
        now = int(time.time())
        permission = {"id": f"modelperm-{secrets.token_hex(8)}", "object": "model_permission", "created": now}
        rights = {"allow_create_engine": False, "allow_sampling": True, "allow_logprobs": True}
        rights |= {"allow_search_indices": False, "allow_view": True, "allow_fine_tuning": False}
        permission |= {**rights, "organization": "*", "group": None, "is_blocking": False}
        model = {"id": service.settings.model, "object": "model", "created": now, "owned_by": "vllm"}
        model |= {"root": "flashbox-stub", "parent": None, "max_model_len": service.settings.max_model_len}
        return json_answer({"object": "list", "data": [{**model, "permission": [permission]}]})

    return endpoint


def unknown_response(service: Service) -> Endpoint:
    """No answer of /v1/responses is stored."""

    async def endpoint(request: Request) -> Response:
        raise not_found(request.path_params["response_id"])

    return endpoint


_TOKENIZE = {
    "model": Field(text),
    "add_generation_prompt": Field(truth, True, none=False),
    "return_token_strs": Field(truth, False),
}


def tokenize(service: Service) -> Endpoint:
    """Token ids of a text or a conversation."""

    async def endpoint(request: Request) -> Response:
        given = await body.read(request, service.release)
        values, complaints = read_fields(given, _TOKENIZE)
        complaints = [*_complaints_about_text(given), *complaints]
        if complaints:
            raise invalid(complaints)
        service.check_model(values)
        prompt = given.get("prompt")
        if not isinstance(prompt, str):
            asked, _ = read_fields({}, chat.FIELDS)
            asked["add_generation_prompt"] = values["add_generation_prompt"]
            prompt = service.prompt(given["messages"], asked)[0]
        tokens = service.context.tokens_of(prompt)
        names = [service.tokenizer.name(token) for token in tokens] if values["return_token_strs"] else None
        counted = {"count": len(tokens), "max_model_len": service.settings.max_model_len}
        return json_answer({**counted, "tokens": tokens, "token_strs": names})

    return endpoint


def _complaints_about_text(given: body.Body) -> list[dict[str, Any]]:
    wrap = "function-wrap[__log_extra_fields__()]"
    if "prompt" not in given and "messages" not in given:
        return [missing(("body", wrap, name), given) for name in ("prompt", "messages")]
    if isinstance(given.get("prompt"), str):
        return []
    if "messages" in given:
        return messages.complaints_about(given["messages"])
    return [complaint("string_type", ("body", wrap, "prompt"), "Input should be a valid string", given["prompt"])]


def detokenize(service: Service) -> Endpoint:
    """The text of token ids."""

    async def endpoint(request: Request) -> Response:
        given = await body.read(request, service.release)
        values, complaints = read_fields(given, {"model": Field(text)})
        if "tokens" not in given:
            complaints = [missing(("body", "tokens"), given), *complaints]
        elif not isinstance(given["tokens"], list) or not all(type(token) is int for token in given["tokens"]):
            found = complaint("list_type", ("body", "tokens"), "Input should be a valid list", given["tokens"])
            complaints = [found, *complaints]
        if complaints:
            raise invalid(complaints)
        service.check_model(values)
        return json_answer({"prompt": service.tokenizer.decode(given["tokens"])})

    return endpoint
