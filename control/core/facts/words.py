"""What is said about a file of facts (or a snapshot) that is wrong: path, expected, found."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from control.core import complaints, schema

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

Shape = Mapping[str, Any]
_BRANCHES = ("bool", "int", "str", "[key]")


def of(error: ValidationError, model: type[BaseModel], origin: str) -> list[str]:
    """One line for each thing that pydantic found."""
    root = model.model_json_schema()
    lines = []
    for detail in error.errors(include_url=False):
        loc = _written(detail["loc"], root)
        path = complaints.path_of(loc)
        lines.append(f"{origin}: {path or 'the file'}: {_say(detail, loc, root)}")
    return list(dict.fromkeys(lines))


def _say(detail: ErrorDetails, loc: Sequence[int | str], root: Shape) -> str:
    kind, found = detail["type"], complaints.found(detail["input"])
    if kind == "extra_forbidden":
        names = _resolve(_at(root, loc[:-1]), root).get("properties", {})
        close = difflib.get_close_matches(str(loc[-1]), list(names), n=1)
        return f"unknown name{f' (did you mean {close[0]}?)' if close else ''}; known here: {', '.join(names)}"
    expected = _expected(_at(root, loc), root)
    if kind == "missing":
        return f"missing, expected {expected}"
    if kind == "value_error":
        return str(detail.get("ctx", {}).get("error", detail["msg"]))
    return f"expected {expected}, found {found}"


def _written(loc: Sequence[int | str], root: Shape) -> tuple[int | str, ...]:
    """The path as the file has it: pydantic adds the branch of a union and `[key]` to its own."""
    path: list[int | str] = []
    shape: Shape = root
    for part in loc:
        inner = _step(shape, part, root)
        if inner is not None:
            shape = inner
        elif part in _BRANCHES:
            continue
        path.append(part)
    return tuple(path)


def _at(root: Shape, loc: Sequence[int | str]) -> Shape:
    shape: Shape = root
    for part in loc:
        shape = _step(shape, part, root) or {}
    return shape


def _step(shape: Shape, part: int | str, root: Shape) -> Shape | None:
    """The schema of one name or list item inside `shape`, None when there is none."""
    for branch in _branches(shape, root):
        if isinstance(part, int) and "items" in branch:
            items: Shape = branch["items"]
            return items
        others = (branch.get("additionalProperties"), *branch.get("patternProperties", {}).values())
        for inner in (branch.get("properties", {}).get(part), *others):
            if isinstance(inner, Mapping):
                return inner
    return None


def _branches(shape: Shape, root: Shape) -> list[Shape]:
    shape = _resolve(shape, root)
    return [_resolve(part, root) for part in shape.get("anyOf", [shape])]


def _resolve(shape: Shape, root: Shape) -> Shape:
    reference = shape.get("$ref")
    if reference is None:
        return shape
    found: Shape = root.get("$defs", {})[str(reference).rpartition("/")[2]]
    return found


def _expected(shape: Shape, root: Shape) -> str:
    parts = list(dict.fromkeys(_one(branch) for branch in _branches(shape, root)))
    return " or ".join(parts)


def _one(shape: Shape) -> str:
    if "const" in shape:
        return f"{shape['const']}"
    if shape.get("format") == "date":
        return "a date such as 2026-11-30"
    if shape.get("type") == "object":
        names = ", ".join(shape.get("properties", {}))
        return f"a mapping ({names})" if names else "a mapping"
    if shape.get("type") == "array":
        return "a list"
    return schema.describe(shape) if "type" in shape or "enum" in shape else "a value of another kind"
