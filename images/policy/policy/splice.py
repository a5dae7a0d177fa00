"""A JSON object as text with places: parts of it are taken, replaced or removed, and all other bytes stay."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

_SPACE = re.compile(r"[ \t\n\r]*")
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Span:
    """A value and where it stands; the value itself only where it was asked for, since it takes many times its text."""

    start: int
    end: int
    value: Any = None


@dataclass(frozen=True)
class Source:
    """A judged body: an object."""

    text: str
    members: dict[str, Span]  # of a repeated key the last one, as every reader of JSON here takes it

    @classmethod
    def read(cls, raw: bytes, keep: Collection[str] = ()) -> Source:
        """The places of all members, and the values of those in `keep`; ValueError if it is no JSON object."""
        text = raw.decode()
        at = _space(text, 0)
        if text[at : at + 1] != "{":
            raise ValueError("no object")
        members: dict[str, Span] = {}
        at = _space(text, at + 1)
        while text[at : at + 1] != "}":
            key, at = scanstring(text, at + 1)
            span = _value(text, _space(text, at) + 1)
            members[key] = span if key in keep else Span(span.start, span.end)
            at = _after(text, span.end)
        return cls(text, members)

    def value(self, name: str) -> Any:
        return self.members[name].value if name in self.members else None

    def slice(self, span: Span) -> str:
        """The text of a value, as the client wrote it."""
        return self.text[span.start : span.end]

    def elements(self, name: str) -> Iterator[Span]:
        """The elements of a member that is a list, with their values."""
        at = _space(self.text, self.members[name].start + 1)
        while self.text[at : at + 1] != "]":
            span = _value(self.text, at)
            yield span
            at = _after(self.text, span.end)

    def with_elements(self, name: str, elements: Iterable[Span]) -> bytes:
        """The body with only these elements in a list."""
        span = self.members[name]
        joined = ",".join(self.slice(element) for element in elements)
        return f"{self.text[: span.start]}[{joined}]{self.text[span.end :]}".encode()

    def with_number(self, name: str, number: int) -> bytes:
        """The body with a member set to a number."""
        if name in self.members:
            span = self.members[name]
            return f"{self.text[: span.start]}{number}{self.text[span.end :]}".encode()
        brace = self.text.rindex("}")
        comma = "," if self.members else ""
        return f'{self.text[:brace]}{comma}"{name}":{number}{self.text[brace:]}'.encode()


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int) -> Span:
    start = _space(text, at)
    try:
        value, end = _scan(text, start)
    except StopIteration:
        raise ValueError("no value") from None
    return Span(start, end, value)


def _after(text: str, at: int) -> int:
    """Past a comma, or at the closing bracket."""
    at = _space(text, at)
    if text[at : at + 1] == ",":
        return _space(text, at + 1)
    if text[at : at + 1] not in ("}", "]"):
        raise ValueError("no end")
    return at
