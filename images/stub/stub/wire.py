"""JSON as it goes over the wire: compact, UTF-8, fields in the order given."""

from __future__ import annotations

import json

import orjson


def dump(value: object) -> bytes:
    """Compact JSON; a lone surrogate becomes a question mark, so that an error can always be written."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps(_clean(value))


def _clean(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {str(_clean(key)): _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    return value


def event(value: object) -> bytes:
    """One server-sent event."""
    return b"data: " + dump(value) + b"\n\n"


def named_event(name: str, value: object) -> bytes:
    """One server-sent event that says its name."""
    return b"event: " + name.encode() + b"\ndata: " + dump(value) + b"\n\n"


def spaced_event(value: object) -> bytes:
    """One server-sent event in the spaced JSON in which the server stood in for writes errors."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
