"""From bytes to a document, as strictly as JSON's standard says: what is let through means one thing to every reader.

Of a key that is there twice the last one counts, here as in the engine's own reader; it is the one that is judged.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from policy.judge.verdict import Violation, invalid
from policy.judge.words import spelled

_OTHER_ENCODINGS = (b"\xff\xfe", b"\xfe\xff", b"\x00")
_NO_NUMBER = re.compile(r"-?(?:NaN|Infinity)")
_FIELD = re.compile(r'"([A-Za-z_]{1,48})"\s{0,8}:\s{0,8}-?$')
_CONTAINERS = (dict, list)


class Unreadable(Exception):
    """The body is no JSON text that may pass."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation.code)
        self.violation = violation


def read(raw: bytes, max_depth: int) -> Any:
    """The document; raises Unreadable."""
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Unreadable(_complaint(raw, error, max_depth)) from None
    if raw.count(b"[") + raw.count(b"{") > max_depth and _deeper_than(document, max_depth):
        raise Unreadable(_too_deep(max_depth, _deepest(document, max_depth)))
    return document


def _deeper_than(document: object, most: int) -> bool:
    """Level by level, so that no nesting is too deep for it."""
    level = [document] if type(document) in _CONTAINERS else []
    for _ in range(most):
        if not level:
            return False
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)  # type: ignore[attr-defined]
            if type(inner) in _CONTAINERS
        ]
    return bool(level)


def _deepest(document: object, most: int) -> str | None:
    """The field that holds the nesting."""
    if not isinstance(document, dict):
        return None
    return next((spelled([name]) for name, value in document.items() if _deeper_than(value, most - 1)), None)


def _too_deep(most: int, param: str | None) -> Violation:
    return invalid("nesting_too_deep", f"The body is nested too deeply: at most {most} levels are allowed.", param)


def _complaint(raw: bytes, error: orjson.JSONDecodeError, max_depth: int) -> Violation:
    """Why it cannot be read, in words that help and without a word of the text."""
    said = _about_bytes(raw)
    if said is None and "recursion" in error.msg:
        return _too_deep(max_depth, None)
    return said or _about_text(error)


def _about_bytes(raw: bytes) -> Violation | None:
    if raw.startswith(b"\xef\xbb\xbf"):
        return invalid("invalid_encoding", "The body begins with a byte order mark: send plain UTF-8 without it.")
    if raw.startswith(_OTHER_ENCODINGS) or raw[1:2] == b"\x00":
        return invalid("invalid_encoding", "The body is not UTF-8: JSON is sent in no other encoding.")
    if not raw.strip():
        return invalid("invalid_json", "The body is empty: expected a JSON object.")
    if (place := _not_utf8(raw)) is not None:
        return invalid("invalid_encoding", f"The body is not valid UTF-8: byte {place} cannot be part of it.")
    return None


def _about_text(error: orjson.JSONDecodeError) -> Violation:
    place = f"line {error.lineno} column {error.colno}"
    if "surrogate" in error.msg:
        return invalid("invalid_json", f"The body holds half a surrogate pair, which is no character: {place}.")
    if "infinity" in error.msg:
        return invalid("invalid_json", f"The body holds a number that is too large: {place}.", _field(error))
    if _NO_NUMBER.match(error.doc, max(0, error.pos - 1)) or _NO_NUMBER.match(error.doc, error.pos):
        return invalid("invalid_json", f"NaN and Infinity are not JSON: {place}.", _field(error))
    return invalid("invalid_json", f"The body is not valid JSON: {error.msg}, {place}.")


def _field(error: orjson.JSONDecodeError) -> str | None:
    """The name before the value that was complained about."""
    found = _FIELD.search(error.doc[max(0, error.pos - 80) : error.pos])
    return found[1] if found else None


def _not_utf8(raw: bytes) -> int | None:
    """The first byte that is wrong; in pieces, since a large body may not be held twice more."""
    step, start = 1 << 20, 0
    while start < len(raw):
        piece = raw[start : start + step]
        try:
            piece.decode("utf-8")
        except UnicodeDecodeError as error:
            cut = error.reason == "unexpected end of data" and start + len(piece) < len(raw)
            if not cut or error.start == 0:
                return start + error.start
            start += error.start
            continue
        start += len(piece)
    return None
