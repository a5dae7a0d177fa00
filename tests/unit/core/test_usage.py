"""Usage: sums and lines of the counting service, put together by day, key or model."""

from __future__ import annotations

import datetime
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.core import usage
from control.core.errors import UsageError
from control.core.usage import Amount, Entry

T = 1_796_083_200  # 2026-12-01 00:00:00 UTC


def line(**more: object) -> str:
    base = {"t": T, "id": "r", "key": "alice", "key_id": "ab", "model": "m", "result": "ok", "status": 200}
    return json.dumps({**base, "total": 31, "prompt": 11, "completion": 20, "cached": 8, "estimated": False, **more})


def sums(day: str, **more: object) -> str:
    row = {**dict.fromkeys(usage.NUMBERS, 0), "key": "alice", "key_id": "ab", "model": "m", **more}
    return json.dumps({"form": 1, "day": day, "read": {}, "rows": [row]})


def test_one_line_is_one_request_of_its_utc_day() -> None:
    read = usage.read_lines(line(t=T - 0.001))
    amount = Amount(requests=1, ok=1, total=31, prompt=11, completion=20, cached=8)
    assert read.entries == (Entry("2026-11-30", "alice", "ab", "m", amount),)


def test_an_estimate_is_told_apart_and_refusals_come_together() -> None:
    read = usage.read_lines(line(estimated=True) + "\n" + line(result="refused", n=12, total=0, prompt=0, model=""))
    assert [entry.amount.estimated for entry in read.entries] == [31, 0]
    assert read.entries[1].amount.refused == read.entries[1].amount.requests == 12


@pytest.mark.parametrize(
    "torn", ["{", "[]", "5", "{}", line(result="what"), line(t="x"), line(t=1e30), line(total="a"), sums("2026-12-01")]
)
def test_torn_and_foreign_lines_are_counted_and_left_out(torn: str) -> None:
    read = usage.read_lines(f"{line()}\n{torn}\n\n{line()}\n")
    assert (len(read.entries), read.broken) == (2, 1)


@pytest.mark.parametrize("torn", ['{"form":1}', '{"form":2,"day":"2026-12-01","rows":[]}', sums("yesterday"), line()])
def test_torn_and_foreign_sums_are_counted_and_left_out(torn: str) -> None:
    read = usage.read_sums(f"{torn}\n{sums('2026-12-01', requests=3, ok=3)}\n")
    assert (len(read.entries), read.broken) == (1, 1)
    assert read.entries[0].amount == Amount(requests=3, ok=3)


ENTRIES = (
    Entry("2026-12-01", "alice", "ab", "m", Amount(requests=1, total=10)),
    Entry("2026-12-01", "bob", "cd", "m", Amount(requests=2, total=20)),
    Entry("2026-12-02", "alice", "ef", "n", Amount(requests=4, total=40)),  # the key was made anew
)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("day", {"2026-12-01": 3, "2026-12-02": 4}),
        ("key", {"alice": 5, "bob": 2}),
        ("model", {"m": 3, "n": 4}),
    ],
)
def test_rows_by_day_key_and_model(by: usage.By, expected: dict[str, int]) -> None:
    assert {row.name: row.amount.requests for row in usage.rows(ENTRIES, by)} == expected


def test_of_one_key_and_from_one_day_on() -> None:
    assert [row.amount.total for row in usage.rows(ENTRIES, "key", key="alice")] == [50]
    assert [row.amount.total for row in usage.rows(ENTRIES, "key", since="2026-12-02")] == [40]
    assert usage.rows(ENTRIES, "key", key="nobody") == []
    assert usage.total(usage.rows(ENTRIES, "key")) == Amount(requests=7, total=70)


KEYS = st.sampled_from(["a", "b", "c"])
DAYS = st.sampled_from(["2026-12-01", "2026-12-02"])


@given(st.lists(st.tuples(DAYS, KEYS, KEYS, st.integers(0, 10**9))))
def test_however_it_is_cut_the_total_is_the_same(told: list[tuple[str, str, str, int]]) -> None:
    entries = [Entry(day, key, "", model, Amount(requests=1, total=n)) for day, key, model, n in told]
    whole = Amount(requests=len(told), total=sum(n for *_, n in told))
    for by in ("day", "key", "model"):
        assert usage.total(usage.rows(entries, by)) == whole


TODAY = datetime.date(2026, 12, 1)


@pytest.mark.parametrize(
    ("text", "day"), [("2026-11-05", "2026-11-05"), ("today", "2026-12-01"), ("1d", "2026-12-01"), ("7d", "2026-11-25")]
)
def test_since_is_a_day(text: str, day: str) -> None:
    assert usage.since_day(text, TODAY) == day


@pytest.mark.parametrize("text", ["", "0d", "yesterday", "2026-13-01", "7", "99999d", "20261201x"])
def test_another_since_is_refused_with_what_would_do(text: str) -> None:
    with pytest.raises(UsageError, match="expected a day such as"):
        usage.since_day(text, TODAY)
