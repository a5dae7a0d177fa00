"""POST /v1/chat/completions: from a body to a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stub import messages, sampling, tools
from stub.body import Body
from stub.errors import Complaint, invalid, missing, whole_body
from stub.fields import SHARED, Field, anything, integer, mapping, read_fields, text, truth
from stub.job import Choice, Job, choice_of, request_id, stream_options
from stub.service import Service
from stub.structured import check_format

FIELDS: Mapping[str, Field] = {
    **SHARED,
    "logprobs": Field(truth, False),
    "top_logprobs": Field(integer, 0),
    "max_tokens": Field(integer),
    "max_completion_tokens": Field(integer),
    "tools": Field(anything),
    "tool_choice": Field(anything),
    "parallel_tool_calls": Field(truth, True),
    "reasoning_effort": Field(text),
    "chat_template_kwargs": Field(mapping),
    "echo": Field(truth, False),
    "add_generation_prompt": Field(truth, True, none=False),
}
Conversation = Sequence[Any]


def understand(service: Service, body: Body, id_header: str | None) -> Job:
    """The job that a body asks for; ApiError as vLLM refuses it, in its order."""
    values = validated(body)
    return job_of(service, body, id_header, values, [body["messages"]])


def understand_batch(service: Service, body: Body, id_header: str | None) -> Job:
    """The job of /v1/chat/completions/batch: several conversations, one answer with a choice for each."""
    conversations = body.get("messages")
    if not isinstance(conversations, list) or not all(isinstance(item, list) for item in conversations):
        raise invalid([missing(("body", "messages"), body)])
    values: dict[str, Any] = {}
    for conversation in conversations:
        values = validated({**body, "messages": conversation})
    if not conversations:
        raise invalid([missing(("body", "messages"), body)])
    return job_of(service, body, id_header, {**values, "stream": False}, conversations, batch=True)


def validated(body: Body) -> dict[str, Any]:
    """The fields of a body that has the shape of a chat request."""
    check_whole(body)
    found: list[Complaint] = [missing(("body", "messages"), body)] if "messages" not in body else []
    found = found or messages.complaints_about(body["messages"])
    values, complaints = read_fields(body, FIELDS)
    complaints += tools.complaints_about(values["tools"])
    if found or complaints:
        raise invalid([*found, *complaints])
    check_format(values["response_format"])
    return values


def job_of(
    service: Service,
    body: Body,
    id_header: str | None,
    values: dict[str, Any],
    conversations: list[Conversation],
    batch: bool = False,
) -> Job:
    """The job of a valid request."""
    service.check_model(values)
    tools.check_parser(values, service.settings.v4)
    choices, prompts = converse(service, values, conversations)
    include, continuous = stream_options(values, service.flags)
    last = conversations[0][-1] if conversations[0] else {}
    return Job(
        id=request_id("chatcmpl-", id_header, body),
        model=values["model"] or service.settings.model,
        fingerprint=service.fingerprint,
        choices=choices,
        stream=values["stream"],
        include_usage=include,
        continuous_usage=continuous,
        logprobs=values["top_logprobs"] if values["logprobs"] else None,
        prompt_logprobs=values["top_logprobs"] if values["echo"] else values["prompt_logprobs"],
        token_ids=bool(values["return_token_ids"]),
        prompts=prompts,
        echo=values["echo"],
        echoed=messages.text_of(last, service.settings.model, service.release) if values["echo"] and last else "",
        batch=batch,
        tools=service.settings.v4 and bool(values["tools"]),
        role="assistant" if values["add_generation_prompt"] or not last else str(last["role"]),
    )


def converse(
    service: Service, values: dict[str, Any], conversations: list[Conversation], name: str = ""
) -> tuple[list[Choice], list[list[int]]]:
    """Choices and prompts; `name` is what the request calls the length of its answer."""
    service.check_queue(values["n"] * len(conversations))
    newer = values["max_completion_tokens"]
    asked = values["max_tokens"] if newer is None else newer
    name = name or ("max_tokens" if newer is None else "max_completion_tokens")
    choices: list[Choice] = []
    prompts = []
    for conversation in conversations:
        prompt, wish = service.prompt(conversation, values)
        tokens = service.context.fit(prompt, asked, values["truncate_prompt_tokens"], name)
        limit = service.context.room(tokens, asked)
        sampling.check({**values, "max_tokens": limit}, service.tokenizer.size)
        for turn in range(values["n"]):
            plan = service.planner.plan(prompt, values, turn, limit, asked is None, wish)
            choices.append(choice_of(len(choices), plan, tokens, limit))
        prompts.append(tokens)
    return choices, prompts


def check_whole(body: Body) -> None:
    """The checks that vLLM makes on the whole body, before it looks at single fields."""
    check_stream_options(body)
    _check_logprobs(body)
    _check_response_format(body)
    _check_tool_choice(body)


def check_stream_options(body: Body) -> None:
    """Options of a stream that is none."""
    if body.get("stream_options") and not body.get("stream"):
        raise whole_body("Stream options can only be defined when `stream=True`.", body, "stream_options")


def _check_logprobs(body: Body) -> None:
    prompt, top = body.get("prompt_logprobs"), body.get("top_logprobs")
    if isinstance(prompt, int):
        if body.get("stream") and (prompt > 0 or prompt == -1):
            raise whole_body("`prompt_logprobs` are not available when `stream=True`.", body, "prompt_logprobs")
        if prompt < -1:
            raise whole_body("`prompt_logprobs` must be a positive value or -1.", body, "prompt_logprobs", prompt)
    if isinstance(top, int):
        if top < -1:
            raise whole_body("`top_logprobs` must be a positive value or -1.", body, "top_logprobs", top)
        if top and not body.get("logprobs"):
            raise whole_body("when using `top_logprobs`, `logprobs` must be set to true.", body, "top_logprobs")


def _check_response_format(body: Body) -> None:
    wanted = body.get("response_format")
    if not isinstance(wanted, dict):
        return
    if wanted.get("type") == "json_schema" and wanted.get("json_schema") is None:
        text = "When response_format type is 'json_schema', the 'json_schema' field must be provided."
        raise whole_body(text, body, "response_format")
    if wanted.get("type") == "structural_tag":  # the stand-in has no grammars, so none of them is a valid one
        raise whole_body("Invalid response_format structural_tag specification.", body, "response_format")


def _check_tool_choice(body: Body) -> None:
    given, choice = body.get("tools"), body.get("tool_choice")
    if given == []:
        text = "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely."
        raise whole_body(text, body, None, newer_param="tools")
    if choice in (None, "none"):
        return
    if not given:
        raise whole_body("When using `tool_choice`, `tools` must be set.", body, "tool_choice")
    if (
        isinstance(choice, dict)
        and isinstance(given, list)
        and tools.named(choice) not in [tools.named(tool) for tool in given]
    ):
        text = "The tool specified in `tool_choice` does not match any of the specified `tools`"
        raise whole_body(text, body, "tool_choice")
