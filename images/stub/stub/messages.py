"""A conversation: its checks and the prompt that the chat template makes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stub.errors import ApiError, Complaint, complaint, missing
from stub.release import Release


@dataclass(frozen=True)
class _Kind:
    """One kind of message that the request's type allows."""

    name: str
    role: str | None  # None: any
    needs: tuple[str, ...] = ("role",)  # keys that it must have, in the order of its complaints
    parts: str = "generator[...]"  # how the type of a content of parts is called
    null: bool = False  # whether its content may be null


_UNION = "generator[union[...,...,...,...]]"
_KINDS = (
    _Kind("ChatCompletionDeveloperMessageParam", "developer"),
    _Kind("ChatCompletionSystemMessageParam", "system"),
    _Kind("ChatCompletionUserMessageParam", "user", parts=_UNION),
    _Kind("ChatCompletionAssistantMessageParam", "assistant", parts=_UNION, null=True),
    _Kind("ChatCompletionToolMessageParam", "tool", ("role", "tool_call_id")),
    _Kind("ChatCompletionFunctionMessageParam", "function", ("name", "role"), parts="", null=True),
    _Kind("CustomChatCompletionMessageParam", None, parts="list[union[...]]"),
)


def complaints_about(messages: Any) -> list[Complaint]:
    """What is wrong with the shape of `messages`."""
    if messages is None:
        raise ApiError("'NoneType' object is not iterable")
    if not isinstance(messages, list):
        return [complaint("list_type", ("body", "messages"), "Input should be a valid list", messages)]
    found: list[Complaint] = []
    for index, message in enumerate(messages):
        found.extend(_complaints(("body", "messages", index), message))
    return found


def _complaints(loc: Sequence[object], message: Any) -> list[Complaint]:
    if not isinstance(message, dict):
        text = "Input should be a valid dictionary"
        return [complaint("dict_type", (*loc, kind.name), text, message) for kind in _KINDS]
    content = message.get("content", "")
    good = isinstance(content, (str, list)) or (content is None and message.get("role") in ("assistant", "function"))
    if "role" in message and good:
        return []
    found = [entry for kind in _KINDS for entry in _complaints_as(kind, loc, message)]
    if "author" not in message:
        found.append(missing((*loc, "Message", "author"), message))
    if not isinstance(message.get("content", []), list):
        where = (*loc, "Message", "content")
        found.append(complaint("list_type", where, "Input should be a valid list", content))
    return found


def _complaints_as(kind: _Kind, loc: Sequence[object], message: dict[str, Any]) -> list[Complaint]:
    """Why a message is none of this kind."""
    about_content = _about_content(kind, (*loc, kind.name, "content"), message)
    others: list[Complaint] = []
    for name in kind.needs:
        if name not in message:
            others.append(missing((*loc, kind.name, name), message))
        elif name == "role" and kind.role and message["role"] != kind.role:
            text, expected = f"Input should be '{kind.role}'", f"'{kind.role}'"
            others.append(
                complaint("literal_error", (*loc, kind.name, "role"), text, message["role"], expected=expected)
            )
    return [*others, *about_content] if kind.role == "assistant" else [*about_content, *others]


def _about_content(kind: _Kind, where: Sequence[object], message: dict[str, Any]) -> list[Complaint]:
    content = message.get("content", "")
    if isinstance(content, (str, list)) or (content is None and kind.null):
        return []
    found = [complaint("string_type", (*where, "str"), "Input should be a valid string", content)]
    if kind.parts.startswith("list"):
        found.append(complaint("list_type", (*where, kind.parts), "Input should be a valid list", content))
    elif kind.parts:
        found.append(complaint("iterable_type", (*where, kind.parts), "Input should be iterable", content))
    return found


def prompt_of(
    messages: Sequence[dict[str, Any]], model: str, release: Release, add_generation_prompt: bool = True
) -> str:
    """The prompt: the chat template of the recorded model."""
    if not messages:
        raise ApiError("Cannot apply chat template to an empty conversation. Provide at least one message.")
    turns = "".join(f"<|{message['role']}|>{text_of(message, model, release)}<|eos|>" for message in messages)
    return "<|bos|>" + turns + ("<|assistant|>" if add_generation_prompt else "")


def text_of(message: Mapping[str, Any], model: str, release: Release) -> str:
    """The text of one message; its calls are checked on the way."""
    calls = message.get("tool_calls")
    if release.checks_tool_arguments:
        for call in calls if isinstance(calls, list) else ():
            _check_arguments(call)
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(_part(part, model) for part in content)
    return content if isinstance(content, str) else ""


def _check_arguments(call: Any) -> None:
    function = call.get("function") if isinstance(call, dict) else None
    arguments = function.get("arguments") if isinstance(function, dict) else None
    if isinstance(arguments, str) and arguments:
        try:
            json.loads(arguments)
        except json.JSONDecodeError as error:
            raise ApiError(str(error)) from None


def _part(part: Any, model: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("text", "input_text", "output_text", "refusal", "thinking"):
        return str(part.get("text") or part.get(kind) or "")
    if kind in ("image_url", "input_audio", "audio_url", "video_url", "input_image", "file"):
        raise ApiError(f"{model} is not a multimodal model")
    raise ApiError(f"Unknown part type: {kind}")
