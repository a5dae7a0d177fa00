"""The tree of settings seen as data: sections, and leaves with path, default, help and what they accept.

`layers` takes its words from here when it complains, `settings_docs` when it documents: so a
complaint and the manual never describe a setting differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from control.core.settings import Settings


@dataclass(frozen=True)
class Leaf:
    """One setting."""

    path: str
    default: object
    help: str
    expects: str  # with its bounds: "an integer from 0 to 65535"
    type: str  # without: "an integer"
    pattern: str | None

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


@dataclass(frozen=True)
class Group:
    """One section: a mapping of settings. The root has the path ""."""

    path: str
    help: str
    leaves: tuple[Leaf, ...]
    sections: tuple[str, ...]  # paths of the sections inside

    @property
    def names(self) -> tuple[str, ...]:
        """What may be written inside, without the path."""
        return (*(leaf.name for leaf in self.leaves), *(path.rpartition(".")[2] for path in self.sections))


def groups() -> Mapping[str, Group]:
    """Every section by path, in the order of the source."""
    return _groups(Settings)


def leaves() -> Mapping[str, Leaf]:
    """Every setting by path, in the order of the source."""
    return {leaf.path: leaf for group in groups().values() for leaf in group.leaves}


@lru_cache(maxsize=4)
def _groups(model: type[BaseModel]) -> Mapping[str, Group]:
    return {group.path: group for group in _walk(model, "")}


def _walk(model: type[BaseModel], path: str) -> Iterator[Group]:
    properties = model.model_json_schema()["properties"]
    inside: list[tuple[str, type[BaseModel]]] = []
    found: list[Leaf] = []
    for name, field in model.model_fields.items():
        here = f"{path}.{name}" if path else name
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            inside.append((here, kind))
            continue
        shape = properties[name]
        found.append(
            Leaf(
                path=here,
                default=field.default,
                help=field.description or "",
                expects=describe(shape),
                type=describe(shape, bounds=False),
                pattern=_pattern(shape),
            )
        )
    help_text = (model.__doc__ or "").strip().splitlines()[0]
    yield Group(path, help_text, tuple(found), tuple(here for here, _ in inside))
    for here, kind in inside:
        yield from _walk(kind, here)


def describe(shape: Mapping[str, Any], bounds: bool = True) -> str:
    """Words for a JSON Schema: "an integer from 0 to 65535 or null"."""
    if "anyOf" in shape:
        return " or ".join(describe(part, bounds) for part in shape["anyOf"])
    if "enum" in shape:
        return "one of " + ", ".join(str(value) for value in shape["enum"])
    kind = shape.get("type")
    if kind == "array":
        return f"a list, each {describe(shape.get('items', {}), bounds)}"
    if kind == "object":
        return f"a mapping of names, each {describe(shape.get('additionalProperties') or {}, bounds)}"
    words = {"integer": "an integer", "number": "a number", "boolean": "true or false", "string": "text"}
    text = words.get(str(kind), str(kind))
    return text + (_bounds(shape) if bounds else "")


def _bounds(shape: Mapping[str, Any]) -> str:
    low, above, high = (shape.get(key) for key in ("minimum", "exclusiveMinimum", "maximum"))
    if "pattern" in shape:
        return f" that matches {shape['pattern']}"
    if low is not None and high is not None:
        return f" from {_number(low)} to {_number(high)}"
    parts = [f"above {_number(above)}"] if above is not None else []
    parts += [f"at least {_number(low)}"] if low is not None else []
    parts += [f"at most {_number(high)}"] if high is not None else []
    return " " + " and ".join(parts) if parts else ""


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def _pattern(shape: Mapping[str, Any]) -> str | None:
    for part in (shape, *shape.get("anyOf", ())):
        if "pattern" in part:
            return str(part["pattern"])
    return None
