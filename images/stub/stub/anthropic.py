"""POST /v1/messages and /v1/messages/count_tokens: from a body to a job, and Anthropic's shape of refusals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from stub import chat, tools
from stub.body import Body
from stub.errors import ApiError, Complaint, Invalid, NoSuchModel, complaint, invalid, missing
from stub.fields import Field, anything, integer, mapping, read_fields, real, text, texts, truth
from stub.job import Job, request_id
from stub.release import Release
from stub.service import Service
from stub.wire import dump

FIELDS: Mapping[str, Field] = {
    "model": Field(text, none=False),
    "messages": Field(anything),
    "max_tokens": Field(integer, none=False),
    "metadata": Field(mapping),
    "stop_sequences": Field(texts, ()),
    "stream": Field(truth, False),
    "system": Field(anything),
    "temperature": Field(real, 1.0),
    "thinking": Field(anything),
    "tool_choice": Field(mapping),
    "tools": Field(anything),
    "top_k": Field(integer, 0),
    "top_p": Field(real, 1.0),
    "chat_template_kwargs": Field(mapping),
}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def understand(service: Service, body: Body, id_header: str | None) -> Job:
    """The job that a body asks for."""
    values = _validated(body, ("model", "messages", "max_tokens"))
    asked, conversation = _asked(service, values)
    tools.check_parser(asked, service.settings.v4)
    choices, prompts = chat.converse(service, asked, [conversation], "max_completion_tokens")
    return Job(
        id=request_id("chatcmpl-", id_header, body),
        model=values["model"] or service.settings.model,
        fingerprint=service.fingerprint,
        choices=choices,
        stream=values["stream"],
        prompts=prompts,
    )


def count(service: Service, body: Body) -> dict[str, Any]:
    """The answer of count_tokens."""
    asked, conversation = _asked(service, _validated(body, ("model", "messages")))
    tokens = len(service.context.tokens_of(service.prompt(conversation, asked)[0]))
    return {"input_tokens": tokens, "context_management": {"original_input_tokens": tokens}}


def refusal(error: ApiError, release: Release) -> Response:
    """A refusal in Anthropic's shape; one of the body's form stays as it is, and 0.26.0 fails where others refuse."""
    if isinstance(error, Invalid):
        return error.response(release)
    message, kind, _ = error.told(release)
    status = error.status
    if release.messages_fail and not isinstance(error, NoSuchModel) and status != 503:
        status, kind = 500, "internal_error"
    kind = (release.messages_types or {}).get(kind, kind)
    return Response(
        dump({"type": "error", "error": {"type": kind, "message": message}}), status, media_type="application/json"
    )


def _validated(body: Body, needed: Sequence[str]) -> dict[str, Any]:
    found = [missing(("body", name), body) for name in needed if name not in body]
    values, complaints = read_fields(body, FIELDS)
    if isinstance(values.get("max_tokens"), int) and values["max_tokens"] < 1:
        text_, error = "max_tokens must be positive", ValueError("max_tokens must be positive")
        loc = ("body", "max_tokens")
        complaints.append(complaint("value_error", loc, f"Value error, {text_}", body["max_tokens"], error=error))
    found += [*_complaints_about_messages(body.get("messages", ())), *complaints]
    found += _complaints_about_tools(values.get("tools"))
    if found:
        raise invalid(found)
    return values


def _complaints_about_messages(given: Any) -> list[Complaint]:
    loc = ("body", "messages")
    if not isinstance(given, (list, tuple)):
        return [complaint("list_type", loc, "Input should be a valid list", given)]
    found: list[Complaint] = []
    for index, message in enumerate(given):
        if not isinstance(message, dict):
            what = "Input should be a valid dictionary or object to extract fields from"
            found.append(complaint("model_attributes_type", (*loc, index), what, message))
            continue
        found += [missing((*loc, index, name), message) for name in ("role", "content") if name not in message]
        if message.get("role", "user") not in ("user", "assistant", "system"):
            names = "'user' or 'assistant'"
            place = (*loc, index, "role")
            found.append(complaint("literal_error", place, f"Input should be {names}", message["role"], expected=names))
        content = message.get("content", "")
        if not (isinstance(content, str) or _blocks(content)):
            where = (*loc, index, "content", "str")
            found.append(complaint("string_type", where, "Input should be a valid string", content))
    return found


def _blocks(content: Any) -> bool:
    return isinstance(content, list) and all(isinstance(block, dict) for block in content)


def _complaints_about_tools(given: Any) -> list[Complaint]:
    if given is None:
        return []
    loc = ("body", "tools")
    if not isinstance(given, list):
        return [complaint("list_type", loc, "Input should be a valid list", given)]
    return [
        missing((*loc, index, "name"), tool)
        for index, tool in enumerate(given)
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str)
    ]


def _asked(service: Service, values: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The fields and messages of a chat request that asks for the same. `thinking` is not looked at, as in 0.26.0."""
    service.check_model(values)
    asked, _ = read_fields({}, chat.FIELDS)
    asked.update({name: values[name] for name in ("temperature", "top_p", "top_k", "chat_template_kwargs")})
    asked["max_completion_tokens"] = values.get("max_tokens")
    asked["stop"] = values["stop_sequences"]
    asked["tools"] = [_function(tool) for tool in values["tools"] or ()] or None
    choice = values["tool_choice"]
    if asked["tools"] and choice:
        named = {"type": "function", "function": {"name": choice.get("name")}}
        asked["tool_choice"] = named if choice.get("type") == "tool" else _CHOICES.get(str(choice.get("type")), "auto")
        asked["parallel_tool_calls"] = not choice.get("disable_parallel_tool_use")
        known = [tools.named(tool) for tool in asked["tools"]]
        if choice.get("type") == "tool" and choice.get("name") not in known:
            raise ApiError("The tool specified in `tool_choice` does not match any of the specified `tools`")
    conversation = [{"role": "system", "content": _flat(values["system"])}] if values["system"] else []
    for message in values["messages"]:
        conversation.extend(_turns(message))
    return asked, conversation


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": tool["name"], "description": tool.get("description"), "parameters": tool.get("input_schema")}
    return {"type": "function", "function": function}


def _turns(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One message as chat messages: results of tools become messages of their own, before the rest."""
    role, content = message["role"], message["content"]
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    parts = [{"type": "text", "text": _flat(block.get("text"))} for block in content if block.get("type") == "text"]
    parts += [{"type": "image_url"} for block in content if block.get("type") == "image"]
    calls = [_call(block) for block in content if block.get("type") == "tool_use"]
    results = [block.get("content") for block in content if block.get("type") == "tool_result"]
    found: list[dict[str, Any]] = [{"role": "tool", "content": _flat(result)} for result in results]
    if parts or calls or not found:
        found.append({"role": role, "content": parts, **({"tool_calls": calls} if calls else {})})
    return found


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    return {"function": {"name": block.get("name"), "arguments": json.dumps(block.get("input"))}}


def _flat(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(_flat(block.get("text")) for block in content if isinstance(block, dict))
    return content if isinstance(content, str) else ""
