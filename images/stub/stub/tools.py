"""Tools: which of them an answer calls, and with what arguments; the same request always calls the same."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stub.errors import ApiError, Complaint, complaint, missing
from stub.structured import instance

# With tool_choice auto, a tool is called when the last user message says so in these words: "call NAME", "use NAME".
_TRIGGER = r"\b(?:call|use)\s+(?:the\s+)?[`\"']?({names})(?![\w-])"


@dataclass(frozen=True)
class Call:
    """One call that an answer makes."""

    name: str
    arguments: str


def complaints_about(tools: Any) -> list[Complaint]:
    """What is wrong with the shape of `tools` in a chat request."""
    if tools is None:
        return []
    if not isinstance(tools, list):
        return [complaint("list_type", ("body", "tools"), "Input should be a valid list", tools)]
    found: list[Complaint] = []
    for index, tool in enumerate(tools):
        found.extend(_complaints(("body", "tools", index), tool))
    return found


def _complaints(loc: Sequence[object], tool: Any) -> list[Complaint]:
    if not isinstance(tool, dict):
        text = "Input should be a valid dictionary or object to extract fields from"
        return [complaint("model_attributes_type", loc, text, tool)]
    function = tool.get("function")
    if not isinstance(function, dict):
        return [missing((*loc, "function"), tool)]
    if not isinstance(function.get("name"), str):
        return [missing((*loc, "function", "name"), function)]
    return []


def check_parser(values: Mapping[str, Any], has_parser: bool) -> None:
    """Without a tool parser the server refuses every call."""
    choice = values["tool_choice"] or ("auto" if values["tools"] else "none")
    if has_parser or choice == "none":
        return
    if choice == "auto":
        raise ApiError('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
    if choice == "required":
        raise ApiError('tool_choice="required" requires --tool-call-parser to be set')
    if isinstance(choice, dict):
        raise ApiError(f'tool_choice=function "{named(choice)}" requires --tool-call-parser to be set')


def named(tool: Any) -> object:
    """The name of a tool, or of the one that a choice names."""
    function = tool.get("function") if isinstance(tool, dict) else None
    return function.get("name") if isinstance(function, dict) else None


def calls_of(values: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> tuple[Call, ...]:
    """The calls that the answer to a conversation makes."""
    tools = {str(named(tool)): tool["function"] for tool in values["tools"] or ()}
    choice = values["tool_choice"] or ("auto" if tools else "none")
    if not tools or choice == "none":
        return ()
    if isinstance(choice, dict):
        names = [str(named(choice))]
    else:
        names = _triggered(tools, messages)
        names = names or (list(tools)[:1] if choice == "required" else [])
    if values["parallel_tool_calls"] is False:
        names = names[:1]
    return tuple(Call(name, _arguments(tools[name])) for name in names)


def _triggered(tools: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Tools that the last message asks for, in its order; none when it is a tool's result, so that loops end."""
    last = messages[-1] if messages else {}
    if last.get("role") != "user":
        return []
    pattern = _TRIGGER.format(names="|".join(sorted(map(re.escape, tools), key=len, reverse=True)))
    return list(dict.fromkeys(re.findall(pattern, _text(last.get("content")))))


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text") or "") if isinstance(part, dict) else str(part) for part in content)
    return str(content or "")


def _arguments(function: Mapping[str, Any]) -> str:
    """Arguments that fit the tool's schema as far as it is understood, in ASCII so that any token may be cut out."""
    schema = function.get("parameters")
    try:
        value = instance(schema) if isinstance(schema, dict) else {}
    except (ApiError, TypeError, ValueError, OverflowError):
        value = {}
    return json.dumps(value if isinstance(value, dict) else {})
