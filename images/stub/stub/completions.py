"""POST /v1/completions: from a body to a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stub import sampling
from stub.body import Body
from stub.chat import check_stream_options
from stub.errors import ApiError, Complaint, complaint, invalid, whole_body
from stub.fields import SHARED, Field, integer, read_fields, text, truth
from stub.job import Choice, Job, choice_of, request_id, stream_options
from stub.service import Service
from stub.structured import check_format

FIELDS: Mapping[str, Field] = {
    **SHARED,
    "echo": Field(truth, False),
    "logprobs": Field(integer),
    "max_tokens": Field(integer, 16),
    "suffix": Field(text),
}
Prompt = str | list[int]


def understand(service: Service, body: Body, id_header: str | None) -> Job:
    """The job that a body asks for; ApiError as vLLM refuses it."""
    _check_whole(service, body)
    values, complaints = read_fields(body, FIELDS)
    complaints = [*_complaints_about(body["prompt"]), *complaints]
    if complaints:
        raise invalid(complaints)
    check_format(values["response_format"])
    service.check_model(values)
    _check_suffix(service, values)
    prompts = _prompts(body["prompt"], service.release.weight_versions)
    service.check_queue(values["n"] * len(prompts))
    asked, cut = values["max_tokens"], values["truncate_prompt_tokens"]
    token_lists = [service.context.fit(prompt, asked, cut) for prompt in prompts]
    sampling.check(values, service.tokenizer.size)
    include, continuous = stream_options(values, service.flags)
    prompt_logprobs = values["prompt_logprobs"]
    if prompt_logprobs is None and values["echo"]:
        prompt_logprobs = values["logprobs"]
    return Job(
        id=request_id("cmpl-", id_header, body),
        model=values["model"] or service.settings.model,
        fingerprint=service.fingerprint,
        choices=_choices(service, token_lists, values),
        stream=values["stream"],
        include_usage=include,
        continuous_usage=continuous,
        logprobs=values["logprobs"],
        prompt_logprobs=prompt_logprobs,
        token_ids=bool(values["return_token_ids"]),
        prompts=token_lists,
        echo=values["echo"],
    )


def _check_suffix(service: Service, values: Mapping[str, Any]) -> None:
    release = service.release
    if values["suffix"] is None or (release.fim_suffix and service.settings.v4):
        return
    if release.fim_suffix:
        raise ApiError("suffix is only supported for models with FIM completion rendering", param="suffix")
    raise ApiError("suffix is not currently supported")


def _choices(service: Service, token_lists: list[list[int]], values: Mapping[str, Any]) -> list[Choice]:
    count = values["n"]
    choices = []
    for place, tokens in enumerate(token_lists):
        prompt, limit = service.tokenizer.decode(tokens), service.context.room(tokens, values["max_tokens"])
        for turn in range(count):
            index = place * count + turn
            plan = service.planner.plan(prompt, values, turn, limit, open_ended=False)
            choices.append(choice_of(index, plan, tokens, limit))
    return choices


def _check_whole(service: Service, body: Body) -> None:
    logprobs = body.get("logprobs")
    lowest = 0 if service.release.repeats_input else -1  # later releases read -1 as all of the vocabulary
    if isinstance(logprobs, int) and logprobs < lowest:
        raise whole_body("`logprobs` must be a positive value.", body, "logprobs", logprobs)
    check_stream_options(body)
    prompt = body.get("prompt")
    if prompt is None or prompt == "":
        raise whole_body("Either prompt or prompt_embeds must be provided and non-empty.", body, "prompt")


def _complaints_about(prompt: Any) -> list[Complaint]:
    """A prompt is a text, token ids, or a list of either."""
    if isinstance(prompt, str) or _is_list_of(prompt, str) or _is_list_of(prompt, int):
        return []
    if isinstance(prompt, list) and all(_is_list_of(item, int) for item in prompt):
        return []
    forms = (
        ("list_type", "list[constrained-int]", "list"),
        ("list_type", "list[list[constrained-int]]", "list"),
        ("string_type", "str", "string"),
        ("list_type", "list[str]", "list"),
    )
    return [
        complaint(kind, ("body", "prompt", name), f"Input should be a valid {what}", prompt)
        for kind, name, what in forms
    ]


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) and not isinstance(item, bool) for item in value)


def _prompts(prompt: Any, newest: bool) -> list[Prompt]:
    if isinstance(prompt, str):
        return [prompt]
    if not prompt or prompt == [[]]:
        if newest:
            raise ApiError("You must pass at least one prompt (parameter=prompt)", param="prompt")
        raise ApiError("You must pass at least one prompt")
    return [prompt] if isinstance(prompt[0], int) else prompt
