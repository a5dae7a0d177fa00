"""Which conversation is this? A short name that stays over all of its turns, so that one replica's cache serves them.

A conversation grows at its end: what begins it, up to the first message of the user, is the same in every turn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

HEAD = 1024  # characters of a plain prompt: less than that fills no block of the engine's cache
HEAD_TOKENS = 256
LONG = 64 << 10  # characters of one text that are looked at
SYSTEM = ("system", "developer")
MODES = ("none", "prefix", "session")
OPENING = 64  # messages and parts that are looked at: a beginning is short
MOST_TOOLS = 1024


def name_of(mode: str, document: Mapping[str, Any], session: str | None = None) -> str | None:
    """The name for `gateway.affinity` none, prefix or session; None: any replica is as good."""
    if mode == "none":
        return None
    if mode == "session" and session:
        return _digest(["session", session])
    return prefix(document)


def prefix(document: Mapping[str, Any]) -> str | None:
    """The name by what does not change between turns; None if there is no such thing."""
    if document.get("previous_response_id"):
        return None  # the beginning is kept by the engine, and not in this request
    opening = _opening(document)
    if not opening:
        return None
    # A salt divides the cache; the model is part of it only where replicas serve several.
    return _digest([document.get("model"), document.get("cache_salt"), opening], _unmarked(document.get("tools")))


def _opening(document: Mapping[str, Any]) -> list[Any]:
    """System prompts, and messages up to the first one of the user; of a plain prompt its head."""
    spoken = document.get("messages", document.get("input"))
    if spoken is None:
        return _head(document.get("prompt"))
    opening = [_parts(document[name]) for name in ("system", "instructions") if document.get(name)]
    return opening + _first_turn([{"role": "user", "content": spoken}] if isinstance(spoken, str) else spoken)


def _first_turn(messages: object) -> list[Any]:
    """What goes before the first message of the user, and that; without one, only what goes before the conversation."""
    found: list[Any] = []
    begun = True
    for message in messages[:OPENING] if isinstance(messages, list) else []:
        if not isinstance(message, dict):
            break
        role = message.get("role")
        begun = begun and role in SYSTEM
        found.append((begun, [role, _parts(message.get("content"))]))
        if role == "user":
            return [said for _, said in found]
    return [said for before, said in found if before]


def _parts(content: object) -> Any:
    """A text and a list of that one text are the same; marks of where to cache wander from turn to turn."""
    parts = content[:OPENING] if isinstance(content, list) else [content]
    return [_part(part) for part in parts]


def _part(part: Any) -> Any:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return part["text"]
    return {name: value for name, value in part.items() if name != "cache_control"} if isinstance(part, dict) else part


def _head(prompt: object) -> list[Any]:
    """Of a text or of tokens; of several prompts that of the first."""
    if isinstance(prompt, str):
        return [prompt[:HEAD]] if prompt else []
    if not isinstance(prompt, list) or not prompt:
        return []
    return [prompt[:HEAD_TOKENS]] if isinstance(prompt[0], int) else _head(prompt[0])


def _unmarked(tools: object) -> object:
    """They are many and no images: taken as they are, but for the marks."""
    return [_part(tool) for tool in tools[:MOST_TOOLS]] if tools and isinstance(tools, list) else None


def _digest(parts: Sequence[Any], whole: object = None) -> str:
    name = hashlib.blake2b(orjson.dumps(_shortened(parts), option=orjson.OPT_SORT_KEYS), digest_size=8)
    name.update(orjson.dumps(whole, option=orjson.OPT_SORT_KEYS))
    return name.hexdigest()


def _shortened(value: Any) -> Any:
    """Images are megabytes of text: their beginning and length tell them apart as well."""
    if isinstance(value, str):
        return value if len(value) <= LONG else [value[:LONG], len(value)]
    if isinstance(value, dict):
        return {name: _shortened(item) for name, item in value.items() if name != "cache_control"}
    return [_shortened(item) for item in value] if isinstance(value, (list, tuple)) else value
