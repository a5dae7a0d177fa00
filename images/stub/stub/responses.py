"""POST /v1/responses: from a body to a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stub import chat, tools
from stub.body import Body
from stub.errors import ApiError, Complaint, complaint, invalid, missing
from stub.fields import Field, anything, integer, mapping, read_fields, real, text, truth
from stub.job import Job, request_id
from stub.service import Service

FIELDS: Mapping[str, Field] = {
    "background": Field(truth, False),
    "include": Field(anything),
    "instructions": Field(text),
    "max_output_tokens": Field(integer),
    "max_tool_calls": Field(integer),
    "metadata": Field(mapping),
    "model": Field(text),
    "parallel_tool_calls": Field(truth, True),
    "previous_response_id": Field(text),
    "reasoning": Field(mapping),
    "service_tier": Field(text, "auto"),
    "store": Field(truth, True),
    "stream": Field(truth, False),
    "temperature": Field(real, 1.0),
    "text": Field(mapping),
    "tool_choice": Field(anything),
    "tools": Field(anything, ()),
    "top_logprobs": Field(integer),
    "top_p": Field(real, 1.0),
    "top_k": Field(integer, 0),
    "truncation": Field(text, "disabled"),
    "user": Field(text),
    "seed": Field(integer),
    "presence_penalty": Field(real, 0.0),
    "frequency_penalty": Field(real, 0.0),
    "chat_template_kwargs": Field(mapping),
}
_NO_STORE = (
    "This vLLM engine does not support `store=True` and therefore does not support the background mode. To enable "
    "these features, set the environment variable `VLLM_ENABLE_RESPONSES_API_STORE=1` when launching the vLLM server."
)


def understand(service: Service, body: Body, id_header: str | None) -> Job:
    """The job that a body asks for; ApiError as vLLM refuses it."""
    given = body.get("tools")
    body = body if body.get("tool_choice") else {**body, "tool_choice": "auto" if given else "none"}
    values, complaints = read_fields(body, FIELDS)
    complaints = [*_complaints_about(body), *complaints, *_complaints_about_tools(given)]
    if complaints:
        raise invalid(complaints)
    service.check_model(values)
    if values["background"]:
        raise ApiError(_NO_STORE, 400, "invalid_request_error", "background")
    if values["previous_response_id"]:
        raise not_found(values["previous_response_id"])
    asked = _as_chat(service, values)
    conversation = _conversation(body["input"], values["instructions"])
    choices, prompts = chat.converse(service, asked, [conversation], "max_output_tokens")
    return Job(
        id=request_id("resp_", id_header, body),
        model=values["model"] or service.settings.model,
        fingerprint=service.fingerprint,
        choices=choices,
        stream=values["stream"],
        prompts=prompts,
        tools=bool(asked["tools"]),
        asked={**values, "tools": given or [], "max_output_tokens": choices[0].sequence.max_tokens},
    )


def not_found(response_id: str) -> ApiError:
    """Nothing is stored, so no answer of before is known."""
    return ApiError(f"Response with id '{response_id}' not found.", 404, "invalid_request_error", "response_id")


def _complaints_about(body: Body) -> list[Complaint]:
    if "input" not in body:
        return [missing(("body", "input"), body)]
    found, loc = body["input"], ("body", "input")
    if isinstance(found, str):
        return []
    if not isinstance(found, list):
        return [
            complaint("string_type", (*loc, "str"), "Input should be a valid string", found),
            complaint("list_type", (*loc, "list[union]"), "Input should be a valid list", found),
        ]
    text = "Input should be a valid dictionary"
    return [
        complaint("dict_type", (*loc, index), text, item)
        for index, item in enumerate(found)
        if not isinstance(item, dict) or not isinstance(item.get("role", item.get("type")), str)
    ]


def _complaints_about_tools(given: Any) -> list[Complaint]:
    if given is None:
        return []
    if not isinstance(given, list):
        return [complaint("list_type", ("body", "tools"), "Input should be a valid list", given)]
    found: list[Complaint] = []
    for index, tool in enumerate(given):
        loc = ("body", "tools", index)
        if not isinstance(tool, dict):
            found.append(complaint("dict_type", loc, "Input should be a valid dictionary", tool))
        elif tool.get("type", "function") == "function" and not isinstance(tool.get("name"), str):
            found.append(missing((*loc, "function", "name"), tool))
    return found


def _as_chat(service: Service, values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a chat request that asks for the same; without a tool parser tools are not looked at."""
    functions = [
        {"type": "function", "function": {key: tool.get(key) for key in ("name", "description", "parameters")}}
        for tool in values["tools"] or ()
        if tool.get("type", "function") == "function"
    ]
    choice = values["tool_choice"]
    if isinstance(choice, dict):
        choice = {"type": "function", "function": {"name": choice.get("name")}}
        if tools.named(choice) not in [tools.named(tool) for tool in functions]:
            raise ApiError("The tool specified in `tool_choice` does not match any of the specified `tools`")
    effort = (values["reasoning"] or {}).get("effort")
    asked, _ = read_fields({}, chat.FIELDS)
    asked.update({name: values[name] for name in ("temperature", "top_p", "top_k", "seed", "parallel_tool_calls")})
    asked.update({name: values[name] for name in ("presence_penalty", "frequency_penalty", "chat_template_kwargs")})
    asked["max_tokens"] = values["max_output_tokens"]
    asked["reasoning_effort"] = effort if isinstance(effort, str) else None
    asked["response_format"] = _form(values["text"])
    if service.settings.v4:
        asked["tools"], asked["tool_choice"] = functions or None, choice if functions else None
    return asked


def _form(wanted: Mapping[str, Any] | None) -> dict[str, Any] | None:
    form = (wanted or {}).get("format")
    if not isinstance(form, dict) or form.get("type") not in ("json_object", "json_schema"):
        return None
    return {"type": form["type"], "json_schema": {"schema": form.get("schema")}}


def _conversation(given: str | list[Any], instructions: str | None) -> list[dict[str, Any]]:
    """The input as chat messages."""
    found: list[dict[str, Any]] = [{"role": "system", "content": instructions}] if instructions else []
    if isinstance(given, str):
        return [*found, {"role": "user", "content": given}]
    for item in given:
        kind = item.get("type", "message")
        if kind == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            found.append({"role": "assistant", "content": "", "tool_calls": [{"function": function}]})
        elif kind == "function_call_output":
            found.append({"role": "tool", "content": _flat(item.get("output"))})
        elif kind != "reasoning":
            found.append({"role": str(item.get("role", "user")), "content": _flat(item.get("content"))})
    return found


def _flat(content: Any) -> str | list[Any]:
    return content if isinstance(content, (str, list)) else "" if content is None else str(content)
