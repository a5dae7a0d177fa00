"""The prompt of `--tokenizer-mode deepseek_v4`, and whether it asks for thinking."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stub.errors import ApiError
from stub.messages import text_of
from stub.release import Release

_BEGIN, _END = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
_USER, _ASSISTANT = "<｜User｜>", "<｜Assistant｜>"
THINK, THINK_END = "<think>", "</think>"
CALL, CALL_END = '<｜DSML｜invoke name="{name}">', "</｜DSML｜invoke>"
_TOOLS = "\n\n## Tools\n\nYou may call the functions below. Write each call between {call} and {end}.\n\n{tools}\n\n"
# The longest effort puts a preamble before everything; only its being there is played, not its words.
_PREAMBLE = "Think as long as it takes: take the problem apart, check every step, and name what you leave out.\n\n"
_EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")


def thinks(values: Mapping[str, Any], release: Release) -> bool:
    """Whether the answer begins with reasoning: 0.26.0 only when asked, later releases unless told not to."""
    effort, kwargs = values["reasoning_effort"], values["chat_template_kwargs"] or {}
    asked = [kwargs[name] for name in ("thinking", "enable_thinking") if isinstance(kwargs.get(name), bool)]
    if asked:
        return bool(asked[0])
    return effort in _EFFORTS or (effort is None and release.thinks_unasked)


def prompt_of(
    messages: Sequence[Mapping[str, Any]], values: Mapping[str, Any], model: str, release: Release, thinking: bool
) -> str:
    """The conversation as the V4 encoding writes it."""
    effort = values["reasoning_effort"] or ("max" if release.thinks_unasked else None)
    parts = [_BEGIN]
    if thinking and effort in ("max", "xhigh"):
        parts.append(_PREAMBLE)
    tools = values["tools"]
    opened = THINK if thinking else THINK_END
    for index, message in enumerate(messages):
        parts.append(_turn(message, model, release))
        if index == 0 and tools and message["role"] == "system":
            parts.append(_described(tools))
        answered = index + 1 < len(messages) and messages[index + 1]["role"] == "assistant"
        if message["role"] in ("user", "developer", "tool") and (answered or index + 1 == len(messages)):
            parts.append(_ASSISTANT + opened)
    if tools and (not messages or messages[0]["role"] != "system"):
        parts.insert(1, _described(tools))
    return "".join(parts)


def _described(tools: Sequence[Mapping[str, Any]]) -> str:
    lines = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    return _TOOLS.format(call=CALL.format(name="NAME"), end=CALL_END, tools=lines)


def _turn(message: Mapping[str, Any], model: str, release: Release) -> str:
    role, text = message["role"], text_of(message, model, release)
    if role == "system":
        return text
    if role in ("user", "developer"):
        return _USER + text
    if role == "tool":
        return f"{_USER}<tool_result>{text}</tool_result>"
    if role == "assistant":
        return text + _calls(message) + _END
    word, status, kind = release.unknown_role
    raise ApiError(f"{word} role: {role}", status, kind)


def _calls(message: Mapping[str, Any]) -> str:
    calls = message.get("tool_calls")
    functions = [call.get("function") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return "".join(
        f"\n\n{CALL.format(name=function.get('name'))}{function.get('arguments')}{CALL_END}"
        for function in functions
        if isinstance(function, dict)
    )
