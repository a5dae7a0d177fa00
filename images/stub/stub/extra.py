"""The routes beside the usual ones: open without a key in part, which is why the gateway has a list of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from stub import anthropic, body, chat, completions, sampling, shapes
from stub.errors import ApiError, complaint, invalid, missing
from stub.fields import Field, read_fields, text
from stub.job import Choice, Job, choice_of, request_id
from stub.service import Service
from stub.simple import json_answer

Endpoint = Callable[[Request], Awaitable[Response]]
_NO_HANDLER = (
    "Cannot find suitable handler for request. Expected one of: ['ChatCompletionRequest', 'CompletionRequest']"
)
_SCALE_OUT = "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them."
_DOCS = "https://errors.pydantic.dev/2.13/v/missing"


def invocations(service: Service, chats: Endpoint, texts: Endpoint) -> Endpoint:
    """A chat or a completion, whichever the body is; a whole answer without a key."""

    async def endpoint(request: Request) -> Response:
        given = await body.read(request, service.release)
        if "messages" in given:
            return await chats(request)
        if "prompt" in given or not service.release.repeats_input:
            return await texts(request)
        raise ApiError(_NO_HANDLER)

    return endpoint


def count_tokens(service: Service) -> Endpoint:
    """Anthropic's count of a conversation's tokens."""

    async def endpoint(request: Request) -> Response:
        return json_answer(anthropic.count(service, await body.read(request, service.release)))

    return endpoint


def scale_out(service: Service) -> Callable[[Endpoint], Endpoint]:
    """Later releases close some routes unless a flag opens them."""

    def guarded(inner: Endpoint) -> Endpoint:
        async def closed(request: Request) -> Response:
            raise ApiError(_SCALE_OUT, 403, "PermissionDeniedError")

        shut = service.release.scale_out_guarded and "--enable-scale-out" not in service.flags
        return closed if shut else inner

    return guarded


async def not_played(request: Request) -> Response:
    """A route that the stand-in only has a door for."""
    raise ApiError("The stand-in engine does not play this route.", 501, "NotImplementedError")


def system_one(service: Service) -> Endpoint:
    """Only its complaints are played."""

    async def endpoint(request: Request) -> Response:
        given = await body.read(request, service.release)
        lacking = [missing(("body", name), given) for name in ("state", "questions") if name not in given]
        if lacking:
            raise invalid(lacking)
        return await not_played(request)

    return endpoint


def scoring(service: Service) -> Endpoint:
    """Only its complaints are played."""

    async def endpoint(request: Request) -> Response:
        given = await body.read(request, service.release)
        lacking = [name for name in ("query", "items", "label_token_ids") if name not in given]
        if lacking and service.release.repeats_input:
            shown = f"[type=missing, input_value={given}, input_type=dict]"
            lines = [f"{name}\n  Field required {shown}\n    For further information visit {_DOCS}" for name in lacking]
            count = f"{len(lacking)} validation error{'s' if len(lacking) > 1 else ''} for GenerativeScoringRequest"
            raise ApiError("\n".join([count, *lines]))
        if lacking:
            raise invalid([missing(("body", name), given) for name in lacking])
        return await not_played(request)

    return endpoint


def scale(service: Service) -> Endpoint:
    """There is nothing to scale."""

    async def endpoint(request: Request) -> Response:
        given = await body.read(request, service.release)
        if given.get("new_data_parallel_size") is None:
            raise ApiError("new_data_parallel_size is required", kind="Bad Request")
        return await not_played(request)

    return endpoint


def render(service: Service) -> Endpoint:
    """The token ids and sampling parameters of a chat, without an answer."""

    async def endpoint(request: Request) -> Response:
        given = await body.read(request, service.release)
        values = chat.validated(given)
        job = chat.job_of(service, given, request.headers.get("x-request-id"), values, [given["messages"]])
        return json_answer(
            {
                "request_id": job.id,
                "token_ids": job.prompts[0],
                "assistant_tokens_mask": None,
                "token_offsets": None,
                "features": None,
                "sampling_params": _parameters(service, values, job),
                "model": job.model,
                "stream": False,
                "stream_options": None,
                "cache_salt": None,
                "priority": values["priority"],
                "kv_transfer_params": None,
                "ec_transfer_params": None,
            }
        )

    return endpoint


def _parameters(service: Service, values: dict[str, Any], job: Job) -> dict[str, Any]:
    names = ("presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "min_p")
    found = {**{name: values[name] for name in names}, "stop": list(values["stop"]), "stop_token_ids": []}
    found["max_tokens"] = job.choices[0].sequence.max_tokens
    if service.settings.v4:
        found["skip_special_tokens"] = False
    return {**found, "output_kind": 2, "skip_clone": True, "bad_words": [], "skip_reading_prefix_cache": False}


def understand_generate(service: Service, given: body.Body, id_header: str | None) -> Job:
    """POST /inference/v1/generate: token ids to token ids."""
    lacking = [missing(("body", name), given) for name in ("token_ids", "sampling_params") if name not in given]
    values, complaints = read_fields(given, {"model": Field(text)})
    if "token_ids" in given and not _token_ids(given["token_ids"]):
        text_ = "Input should be a valid list"
        complaints.append(complaint("list_type", ("body", "token_ids"), text_, given["token_ids"]))
    parameters = given.get("sampling_params", {})
    if not isinstance(parameters, dict):
        text_ = "Input should be a valid dictionary"
        complaints.append(complaint("dict_type", ("body", "sampling_params"), text_, parameters))
    else:
        asked, more = read_fields(parameters, completions.FIELDS)
        complaints += more
    if lacking or complaints:
        raise invalid([*lacking, *complaints])
    service.check_model(values)
    tokens = service.context.fit(given["token_ids"], asked["max_tokens"])
    asked["max_tokens"] = service.context.room(tokens, asked["max_tokens"])
    sampling.check(asked, service.tokenizer.size)
    plan = service.planner.plan(service.tokenizer.decode(tokens), asked, 0, asked["max_tokens"], open_ended=False)
    return Job(
        id=request_id("generate-tokens-", id_header, given),
        model=values["model"] or service.settings.model,
        fingerprint=service.fingerprint,
        choices=[choice_of(0, plan, tokens, asked["max_tokens"])],
        stream=False,
        prompts=[tokens],
    )


def _token_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(token) is int for token in value)


class Generate:
    """The answer of /inference/v1/generate; it is never a stream here."""

    def __init__(self, job: Job, service: Service) -> None:
        self._job, self._service = job, service

    def begin(self) -> Iterable[bytes]:
        """No stream."""
        return ()

    def opening(self, choice: Choice) -> Iterable[bytes]:
        """No stream."""
        return ()

    def token(self, choice: Choice, index: int) -> Iterable[bytes]:
        """No stream."""
        return ()

    def aborted(self, choice: Choice) -> Iterable[bytes]:
        """No stream."""
        return ()

    def end(self) -> Iterable[bytes]:
        """No stream."""
        return ()

    def lost(self, message: str) -> Iterable[bytes]:
        """No stream."""
        return ()

    def whole(self) -> dict[str, Any]:
        """The answer."""
        job, choice = self._job, self._job.choices[0]
        inside = {"index": 0, "logprobs": None, "finish_reason": choice.plan.finish_reason}
        return {
            "request_id": job.id,
            "model": job.model,
            "created": job.created,
            "choices": [{**inside, "token_ids": shapes.ids(choice), "routed_experts": None}],
            "usage": shapes.whole_usage(self._service, job, shapes.cache_details(None)),
            "prompt_logprobs": None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
        }
