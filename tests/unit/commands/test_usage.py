"""`usage`: the ledger's sums as table, JSON and CSV, and an honest word where they cannot be had."""

from __future__ import annotations

import csv
import io
import json

import pytest

from control.core import usage
from tests.unit.world import Operator

STUB = ("up", "--profile", "stub")


def day(name: str, *rows: dict[str, object]) -> str:
    usual = {**dict.fromkeys(usage.NUMBERS, 0), "key_id": "ab", "model": "m"}
    return json.dumps({"form": 1, "day": name, "read": {}, "rows": [{**usual, **row} for row in rows]})


LEDGER = "\n".join(
    (
        day("2026-11-30", {"key": "old", "requests": 5, "ok": 5, "total": 50}),
        day(
            "2026-12-01",
            {"key": "me", "requests": 3, "ok": 2, "refused": 1, "total": 31, "prompt": 11, "completion": 20},
            {"key": "old", "requests": 1, "left": 1, "total": 9, "estimated": 9},
        ),
    )
)


@pytest.fixture
def ledger(operator: Operator) -> Operator:
    operator.types(*STUB)
    operator.types("keys", "add", "me", "--owner", "tests")
    operator.world.ledger = LEDGER
    operator.world.events.clear()
    return operator


def test_people_see_a_table_by_key_with_its_sum(ledger: Operator) -> None:
    result = ledger.types("usage", "--since", "2026-11-01")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0][:2] == ["key", "requests"]
    assert lines[1] == ["me", "3", "2", "0", "0", "1", "0", "11", "0", "20", "31"]
    assert lines[2][:3] == ["old", "(revoked)", "6"] and lines[2][-1] == "~59"
    assert lines[3][:2] == ["all", "9"]
    assert "9 of these tokens are estimates" in result.stdout


def test_only_the_days_that_are_asked_for_are_read(ledger: Operator) -> None:
    told = json.loads(ledger.types("usage", "--since", "2026-12-01", "--json").stdout)
    assert ledger.world.events == ["budget usage 2026-12-01"]
    assert told["total"]["requests"] == 4


def test_by_day_and_of_one_key(ledger: Operator) -> None:
    told = json.loads(ledger.types("usage", "--since", "2026-11-01", "--by", "day", "--key", "old", "--json").stdout)
    assert [(row["day"], row["requests"]) for row in told["rows"]] == [("2026-11-30", 5), ("2026-12-01", 1)]


def test_csv_is_for_programs(ledger: Operator) -> None:
    result = ledger.types("usage", "--since", "2026-11-01", "--by", "model", "--csv")
    (row,) = csv.DictReader(io.StringIO(result.stdout))
    assert (row["model"], row["requests"], row["estimated"]) == ("m", "9", "9")


def test_a_line_that_cannot_be_read_is_told_and_is_not_in_the_data(ledger: Operator) -> None:
    ledger.world.ledger = LEDGER + "\n{torn"
    for form in ((), ("--json",), ("--csv",)):
        result = ledger.types("usage", "--since", "2026-11-01", *form)
        assert result.exit_code == 0
        assert "1 lines of the answer could not be read" in result.stderr
        assert "torn" not in result.stdout


def test_what_the_ledger_lacks_is_told(ledger: Operator) -> None:
    ledger.world.budget = {"ledger": {"error": "No space left on device", "waiting": 7, "lost": 0}}
    result = ledger.types("usage", "--since", "2026-11-01", "--json")
    assert "7 lines wait in memory" in result.stderr
    assert len(json.loads(result.stdout)["lacking"]) == 1


def test_nothing_used_is_said(ledger: Operator) -> None:
    ledger.world.ledger = ""
    result = ledger.types("usage", "--since", "2026-11-01")
    assert result.exit_code == 0 and "nothing was used since 2026-11-01" in result.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--key", "mee"), "did you mean me?"),
        (("--key", "olt"), "did you mean old?"),
        (("--since", "yesterday"), "--since: expected a day such as"),
        (("--csv", "--json"), "--csv and --json: one of them"),
        (("--by", "hour"), "hour"),
    ],
)
def test_a_question_that_is_none_is_refused_with_the_reason(
    ledger: Operator, words: tuple[str, ...], expected: str
) -> None:
    result = ledger.types("usage", *words)
    assert result.exit_code == 2 and expected in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(("status", "words"), [("exited", "which is exited"), (None, "which does not exist")])
def test_without_a_running_service_it_says_what_to_do(ledger: Operator, status: str | None, words: str) -> None:
    if status is None:
        del ledger.world.status["budget"]
    else:
        ledger.world.status["budget"] = status
    result = ledger.types("usage")
    assert result.exit_code == 1
    assert words in result.stderr and "nothing of it is lost" in result.stderr and "python ctl.py up" in result.stderr


def test_a_service_that_cannot_read_its_ledger_is_told_with_its_last_words(ledger: Operator) -> None:
    ledger.world.ledger = None
    result = ledger.types("usage")
    assert result.exit_code == 1
    assert "does not give the sums" in result.stderr and "CUDA out of memory" in result.stderr


def test_before_anything_was_started_it_says_up(operator: Operator) -> None:
    operator.types("init", "--profile", "stub")
    result = operator.types("usage")
    assert result.exit_code == 1 and "python ctl.py up" in result.stderr
