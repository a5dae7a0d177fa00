"""Words for settings that are wrong: where, the path, what was expected, what was found, and the fix."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from control.core import schema

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_LONGEST = 80
_SHAPE = ("model_type", "model_attributes_type", "dict_type")


def of(error: ValidationError, origin_of: Callable[[str], str]) -> list[str]:
    """One line for each thing that pydantic found."""
    lines = []
    for detail in error.errors(include_url=False):
        path = path_of(detail["loc"])
        lines.append(f"{origin_of(path.partition('[')[0])}: {path or 'settings'}: {_words(detail, path)}")
    return lines


def path_of(loc: Iterable[int | str]) -> str:
    """`("gateway", "hosts", 1)` as a person writes it: `gateway.hosts[1]`."""
    path = ""
    for part in loc:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def found(value: object) -> str:
    """A value as YAML writes it, short."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple, set)):
        return "a list"
    if isinstance(value, float) or not isinstance(value, (str, int, type(None))):
        return str(value)
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean port?)`, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""


def _words(detail: ErrorDetails, path: str) -> str:
    kind, value = detail["type"], detail["input"]
    if kind in ("extra_forbidden", "invalid_key"):
        return f"unknown setting{_other_name(path)}"
    if kind in _SHAPE:
        group = schema.groups().get(path)
        inside = f" ({', '.join(group.names)})" if group else ""
        return f"expected a mapping of settings{inside}, found {found(value)}"
    leaf = schema.leaves().get(path.partition("[")[0]) or _mapping(path)
    if kind == "value_error" or leaf is None:
        return _rule(detail, leaf)
    if kind == "string_pattern_mismatch":
        return f"expected {leaf.expects}, found {found(value)}{_other_spelling(str(value), leaf)}"
    expected = leaf.type if kind.endswith(("_type", "_parsing")) else leaf.expects
    return f"expected {expected}, found {found(value)}{_hint(value, leaf)}"


def _mapping(path: str) -> schema.Leaf | None:
    """The setting that a name inside a mapping belongs to."""
    leaf = schema.leaves().get(path.rpartition(".")[0])
    return leaf if leaf and isinstance(leaf.default, dict) else None


def _rule(detail: ErrorDetails, leaf: schema.Leaf | None) -> str:
    """A validator's own sentence, completed to expected and found."""
    message = str(detail.get("ctx", {}).get("error", detail["msg"])).rstrip(".")
    if leaf is None:
        return message
    if message.startswith("expected "):
        return f"{message}, found {found(detail['input'])}"
    return f"expected a value such as {found(leaf.default)}, found {found(detail['input'])} ({message})"


def _hint(value: object, leaf: schema.Leaf) -> str:
    if value is None and leaf.default is not None:
        return f"; leave the line out to take the default {found(leaf.default)}"
    if leaf.type.startswith("text") and isinstance(value, (int, float)):
        return f'; quote it: "{str(value).lower() if isinstance(value, bool) else value}"'
    return ""


def _other_spelling(value: str, leaf: schema.Leaf) -> str:
    """`DSV4 Flash` is a common wish for a name of lower-case letters: say what would be taken."""
    guess = re.sub(r"[\s]+", "-", value.strip()).lower()
    fits = leaf.pattern is not None and re.search(leaf.pattern, guess)
    return f" (did you mean {guess}?)" if fits and guess != value else ""


def _other_name(path: str) -> str:
    """A sibling that is spelled alike; else the same name in another section."""
    section, _, name = path.rpartition(".")
    group = schema.groups().get(section)
    hint = did_you_mean(name, group.names) if group else ""
    if hint:
        return hint
    elsewhere = [*schema.leaves(), *filter(None, schema.groups())]
    same = [known for known in elsewhere if known.rpartition(".")[2] == name]
    return f" (did you mean {same[0]}?)" if same else ""
