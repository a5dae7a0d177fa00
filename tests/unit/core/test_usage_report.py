"""Usage as it is shown: nothing hidden, nothing counted twice."""

from __future__ import annotations

import csv
import io

import pytest

from control.core import usage, usage_report
from control.core.errors import UsageError
from control.core.usage import Amount, Entry, Read

ENTRIES = (
    Entry("2026-12-01", "alice", "ab", "m", Amount(requests=1200, ok=1190, refused=10, total=1234567, prompt=1000000)),
    Entry("2026-12-01", "bob", "cd", "m", Amount(requests=2, left=2, total=20, completion=20, estimated=7)),
    Entry("2026-12-02", "alice", "ef", "n", Amount(requests=4, ok=4, total=40, cached=3)),
)
KNOWN = ("alice", "carol")


def report(by: usage.By = "key", key: str | None = None, read: Read | None = None) -> usage_report.Report:
    return usage_report.report(read or Read(ENTRIES, 0), by, "2026-12-01", key, KNOWN)


def cells(row: tuple[str, ...], found: usage_report.Report) -> dict[str, str]:
    return dict(zip(usage_report.columns(found), row, strict=True))


def test_the_table_ends_with_the_sum_of_its_rows() -> None:
    found = report()
    alice, bob, whole = (cells(row, found) for row in usage_report.table(found))
    assert (alice["key"], alice["requests"], alice["refused"], alice["tokens"]) == ("alice", "1,204", "10", "1,234,607")
    assert (bob["left"], whole["key"], whole["requests"]) == ("2", "all", "1,206")


def test_one_row_has_no_sum_below_it() -> None:
    assert len(list(usage_report.table(report(key="bob")))) == 1


def test_tokens_that_are_partly_an_estimate_are_marked_and_the_mark_is_explained() -> None:
    found = report()
    told = [cells(row, found)["tokens"] for row in usage_report.table(found)]
    assert told == ["1,234,607", "~20", "~1,234,627"]
    assert any(line.startswith("~ 7 of these tokens are estimates") for line in usage_report.notes(found))
    assert not any("estimates" in line for line in usage_report.notes(report(key="alice")))


def test_a_key_that_was_revoked_is_still_there_and_said_to_be() -> None:
    names = [row[0] for row in usage_report.table(report())]
    assert names == ["alice", "bob (revoked)", "all"]
    rows = usage_report.data(report())["rows"]
    assert [(row["key"], row["revoked"]) for row in rows] == [("alice", False), ("bob", True)]  # type: ignore[attr-defined]
    assert "revoked" not in usage_report.data(report("day"))["rows"][0]  # type: ignore[index]


def test_requests_that_were_refused_before_a_model_was_known_have_a_row_too() -> None:
    entries = (Entry("2026-12-01", "alice", "ab", "", Amount(requests=3, refused=3)),)
    (row,) = usage_report.table(report("model", read=Read(entries, 0)))
    assert row[:2] == ("(none)", "3")


def test_nothing_used_is_a_sentence_and_no_table() -> None:
    found = report(key="carol")
    assert list(usage_report.table(found)) == []
    assert list(usage_report.notes(found)) == ["nothing was used of key carol since 2026-12-01 (UTC)"]


@pytest.mark.parametrize(("key", "hint"), [("alise", "(did you mean alice?)"), ("bobb", "(did you mean bob?)")])
def test_an_unknown_key_is_refused_with_what_may_be_meant_revoked_ones_too(key: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        report(key=key)
    assert hint in refused.value.what and "keys list" in refused.value.fix


def test_lines_that_could_not_be_read_are_told_in_every_form() -> None:
    found = report(read=Read(ENTRIES, 2))
    assert list(usage_report.warnings(found)) == [
        "2 lines of the answer could not be read and are not in these figures"
    ]
    assert usage_report.data(found)["unreadable_lines"] == 2
    assert list(usage_report.warnings(report())) == []


@pytest.mark.parametrize("by", ["key", "day", "model"])
def test_csv_has_every_number_of_every_row_and_no_sum(by: usage.By) -> None:
    found = report(by)
    rows = list(csv.DictReader(io.StringIO(usage_report.comma_separated(found))))
    assert [row[by] for row in rows] == [row.name for row in found.rows]
    for name in usage.NUMBERS:
        assert sum(int(row[name]) for row in rows) == getattr(found.total, name)


def test_csv_of_a_name_with_a_comma_is_still_one_field() -> None:
    entries = (Entry("2026-12-01", "alice", "ab", 'a,"b"', Amount(requests=1)),)
    (row,) = csv.DictReader(io.StringIO(usage_report.comma_separated(report("model", read=Read(entries, 0)))))
    assert row["model"] == 'a,"b"'


def test_json_has_the_question_the_rows_and_their_sum() -> None:
    told = usage_report.data(report("day", "alice"))
    assert (told["by"], told["since"], told["key"]) == ("day", "2026-12-01", "alice")
    assert [row["requests"] for row in told["rows"]] == [1200, 4]  # type: ignore[attr-defined]
    assert told["total"]["requests"] == 1204  # type: ignore[index]
