"""Usage as it is shown: a table for people, JSON and CSV for programs."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from types import SimpleNamespace

from control.core import usage
from control.core.complaints import did_you_mean
from control.core.errors import UsageError
from control.core.usage import Amount, By, Read, Row

_HEADS = {"total": "tokens", "estimated": "of them estimated"}  # where the table has another word than the field
_TABLE = ("requests", "ok", "left", "cut", "refused", "failed", "prompt", "cached", "completion", "total")
ESTIMATED = "~"


@dataclass(frozen=True)
class Report:
    """The rows that were asked for. Days are UTC."""

    by: By
    since: str
    key: str | None
    rows: Sequence[Row]
    revoked: frozenset[str]  # names of rows that are keys and count no more
    broken: int  # lines of the answer that could not be read
    lacking: tuple[str, ...] = ()  # what the service itself says that its sums do not hold

    @property
    def total(self) -> Amount:
        return usage.total(self.rows)


def report(
    read: Read, by: By, since: str, key: str | None, known: Collection[str], lacking: Iterable[str] = ()
) -> Report:
    """Put together what was read; `known` are the names of keys that count now."""
    used = {entry.key for entry in read.entries}
    if key is not None and key not in {*known, *used}:
        hint = did_you_mean(key, sorted({*known, *used}))
        raise UsageError(
            f"--key {key}: no key has this name, and none of this name used anything since {since}{hint}",
            fix="python ctl.py keys list shows the names; an earlier --since shows older keys that were revoked.",
        )
    rows = usage.rows(read.entries, by, key, since)
    gone = frozenset(used - set(known)) if by == "key" else frozenset()
    return Report(by, since, key, rows, gone, read.broken, tuple(lacking))


# ---- for people


def columns(of: Report) -> tuple[str, ...]:
    """Heads of the table."""
    return of.by, *(_HEADS.get(name, name) for name in _TABLE)


def table(of: Report) -> Iterator[tuple[str, ...]]:
    """Rows, and the sum below them if there are several; tokens that are partly an estimate are marked."""
    for row in of.rows:
        mark = " (revoked)" if row.name in of.revoked else ""
        yield (row.name or "(none)") + mark, *_cells(row.amount)
    if len(of.rows) > 1:
        yield "all", *_cells(of.total)


def _cells(amount: Amount) -> Iterator[str]:
    for name in _TABLE:
        mark = ESTIMATED if name == "total" and amount.estimated else ""
        yield f"{mark}{getattr(amount, name):,}"


def notes(of: Report) -> Iterator[str]:
    """What has to be known to read the table, said after it."""
    whose = f" of key {of.key}" if of.key else ""
    if not of.rows:
        yield f"nothing was used{whose} since {of.since} (UTC)"
        return
    yield f"usage{whose} since {of.since} (days are UTC)"
    if of.total.estimated:
        yield f"{ESTIMATED} {of.total.estimated:,} of these tokens are estimates: the engine never said how many"


def warnings(of: Report) -> Iterator[str]:
    """What is missing in the figures."""
    if of.broken:
        yield f"{of.broken} lines of the answer could not be read and are not in these figures"
    yield from of.lacking


# ---- for programs


def data(of: Report) -> dict[str, object]:
    """For --json."""
    rows = [{of.by: row.name, **_said(of, row.name), **asdict(row.amount)} for row in of.rows]
    asked = {"by": of.by, "since": of.since, "key": of.key}
    return {
        **asked,
        "rows": rows,
        "total": asdict(of.total),
        "unreadable_lines": of.broken,
        "lacking": list(of.lacking),
    }


def _said(of: Report, name: str) -> dict[str, bool]:
    return {"revoked": name in of.revoked} if of.by == "key" else {}


def comma_separated(of: Report) -> str:
    """For --csv: a head and the rows, no sum, so that whoever adds them up counts nothing twice."""
    lines: list[str] = []
    writer = csv.writer(SimpleNamespace(write=lines.append), lineterminator="\n")
    writer.writerow((of.by, *usage.NUMBERS))
    writer.writerows((row.name, *(getattr(row.amount, name) for name in usage.NUMBERS)) for row in of.rows)
    return "".join(lines).rstrip("\n")
