"""Who used how much: the counting service's sums and ledger lines, read and put together by day, key or model.

Days are UTC. The service says one line per day (`python -m budget usage`): its sums by key and model.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

from control.core.errors import UsageError

T = TypeVar("T")
By = Literal["day", "key", "model"]
FORM = 1  # of the service's sums


@dataclass(frozen=True)
class Amount:
    """Requests by how they ended, and tokens by kind."""

    requests: int = 0
    ok: int = 0
    left: int = 0  # the client left before the end
    cut: int = 0  # broken off by a replica or the gateway
    refused: int = 0  # 4xx, the service's own 429 included
    failed: int = 0  # 5xx
    total: int = 0  # what was charged
    prompt: int = 0
    completion: int = 0
    cached: int = 0  # part of prompt
    estimated: int = 0  # part of total

    def __add__(self, other: Amount) -> Amount:
        return Amount(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(Amount)))


NUMBERS = tuple(one.name for one in fields(Amount))
RESULTS = ("ok", "left", "cut", "refused", "failed")
TOKENS = ("total", "prompt", "completion", "cached")


@dataclass(frozen=True)
class Entry:
    """What one key used of one model in one day."""

    day: str
    key: str
    key_id: str
    model: str
    amount: Amount


@dataclass(frozen=True)
class Row:
    """One line of the answer; `name` is a day, a key or a model."""

    name: str
    amount: Amount


@dataclass(frozen=True)
class Read:
    """What a text held, and how many of its lines were torn or foreign."""

    entries: tuple[Entry, ...]
    broken: int


def read_sums(text: str) -> Read:
    """The service's sums: one JSON line for each day."""
    days, broken = _read(text, _of_day)
    return Read(tuple(entry for day in days for entry in day), broken)


def read_lines(text: str) -> Read:
    """Lines of the ledger: one request each, or several that were refused together."""
    entries, broken = _read(text, _of_line)
    return Read(tuple(entries), broken)


def _read(text: str, understood: Callable[[Any], T]) -> tuple[list[T], int]:
    """What each line says, and how many say nothing."""
    found: list[T] = []
    broken = 0
    for line in filter(str.strip, text.splitlines()):
        try:
            found.append(understood(json.loads(line)))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            broken += 1
    return found, broken


def _of_day(said: Any) -> list[Entry]:
    if said["form"] != FORM:
        raise ValueError(f"form {said['form']}")
    day = datetime.date.fromisoformat(said["day"]).isoformat()
    return [_of_row(day, row) for row in said["rows"]]


def _of_row(day: str, row: Any) -> Entry:
    amount = Amount(**{name: int(row[name]) for name in NUMBERS})
    return Entry(day, str(row["key"]), str(row["key_id"]), str(row["model"]), amount)


def _of_line(said: Any) -> Entry:
    if said["result"] not in RESULTS:
        raise ValueError(said["result"])
    day = datetime.datetime.fromtimestamp(said["t"], datetime.timezone.utc).date().isoformat()
    number = int(said.get("n", 1))
    tokens = {name: int(said.get(name, 0)) for name in TOKENS}
    estimated = tokens["total"] if said.get("estimated") else 0
    amount = Amount(requests=number, estimated=estimated, **{said["result"]: number}, **tokens)
    return Entry(day, str(said["key"]), str(said.get("key_id", "")), str(said.get("model", "")), amount)


def rows(entries: Iterable[Entry], by: By, key: str | None = None, since: str = "") -> list[Row]:
    """Put together by day, key or model; of one key and from one day on, if asked."""
    found: dict[str, Amount] = {}
    for entry in entries:
        if entry.day >= since and key in (None, entry.key):
            name = getattr(entry, by)
            found[name] = found.get(name, Amount()) + entry.amount
    return [Row(name, found[name]) for name in sorted(found)]


def total(of: Sequence[Row]) -> Amount:
    """The sum of all rows."""
    return sum((row.amount for row in of), Amount())


def since_day(text: str, today: datetime.date) -> str:
    """The first day that is meant: `2026-11-01`, `7d` for the last seven days, `today`."""
    days = re.fullmatch(r"([1-9]\d{0,3})d", text)
    if text == "today" or days:
        return (today - datetime.timedelta(days=int(days[1]) - 1 if days else 0)).isoformat()
    try:
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError:
        raise UsageError(f'--since: expected a day such as 2026-11-01, 7d or today, found "{text}"') from None
