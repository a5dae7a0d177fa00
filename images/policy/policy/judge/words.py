"""Words for values and places. A value of a client is never repeated, except for a short number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.$:-]{1,48}")
_TYPES = {
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_LONGEST_NUMBER = 40
_MOST_STEPS = 6  # of a place that are told


def spelled(path: Iterable[str | int]) -> str | None:
    """messages[0].content[1].type; None for the body itself. A name that is none of ours is not repeated."""
    found = ""
    for step in list(path)[:_MOST_STEPS]:
        if isinstance(step, int):
            found += f"[{step}]"
        else:
            found += ("." if found else "") + (step if _PLAIN_NAME.fullmatch(step) else "?")
    return found or None


def types(names: Sequence[str]) -> str:
    """What is expected; null is not worth a word when something else is."""
    wanted = [_TYPES.get(name, name) for name in sorted(names, key=list(_TYPES).index) if name != "null"] or ["null"]
    return either(wanted)


def either(options: Sequence[str]) -> str:
    """a, b or c."""
    return options[0] if len(options) == 1 else f"{', '.join(options[:-1])} or {options[-1]}"


def value(found: object) -> str:
    """What was found."""
    if found is None:
        return "null"
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, (int, float)):
        text = repr(found)
        return text if len(text) <= _LONGEST_NUMBER else f"a number of {len(text)} characters"
    if isinstance(found, str):
        return f"a string of {counted(len(found), 'character')}" if found else "an empty string"
    if isinstance(found, list):
        return f"a list of {counted(len(found), 'item')}" if found else "an empty list"
    return "an object" if found else "an empty object"


def counted(count: int, what: str) -> str:
    """1 item, 2 items."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def number(limit: float) -> str:
    """8192 and 0.01, as they are written in a policy."""
    return str(int(limit)) if float(limit).is_integer() else repr(limit)
