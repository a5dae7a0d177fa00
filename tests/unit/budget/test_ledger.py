"""The ledger: every request once, sums that fit the lines after any end of the process, files that have an end."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from budget import ledger as ledger_module
from budget import report
from budget.core import lines
from budget.core.totals import MOST_MODELS, OTHER, Day
from budget.ledger import Ledger
from budget.usage_files import UsageFiles

from control.core import usage
from tests.unit.budget.said import WALL_S, ended

DAY_S = 86_400
FIRST, SECOND = "2026-12-01", "2026-12-02"


def opened(folder: Path, file_bytes: int = 1 << 20, all_bytes: int = 1 << 30, keep_days: int = 400) -> Ledger:
    ledger = Ledger(UsageFiles(folder, file_bytes, all_bytes, keep_days))
    ledger.open()
    return ledger


def line(request: str = "r", wall_s: float = WALL_S, client: str = "alice", **more: str) -> bytes:
    return lines.ended(ended(client, request, **more), wall_s)


def shown(ledger: Ledger, since: str = "") -> dict[tuple[str, str, str], tuple[int, int]]:
    """(day, key, model) -> requests, tokens, as the control program reads them; and the same without the service."""
    read = usage.read_sums("".join(day.dump().decode() for day in ledger._files.since(since)))
    assert read.broken == 0
    for day in ledger.latest():
        assert day.day < since or day.dump() in [one.dump() for one in ledger._files.since(since)]
    return {(e.day, e.key, e.model): (e.amount.requests, e.amount.total) for e in read.entries}


def test_lines_and_sums_say_the_same(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    for n in range(5):
        ledger.add(line(f"r{n}"))
    ledger.add(line("r5", client="bob", status="503", total="0", prompt="0", completion="0"))
    ledger.add(lines.refused(("alice", "ab", "/v1/messages", "tokens"), 7, WALL_S))
    by_lines = usage.read_lines((tmp_path / f"{FIRST}.jsonl").read_text())
    by_sums = usage.read_sums("".join(day.dump().decode() for day in ledger.latest()))
    assert by_lines.broken == by_sums.broken == 0
    for by in ("day", "key", "model"):
        assert usage.rows(by_lines.entries, by) == usage.rows(by_sums.entries, by)
    (alice, bob) = usage.rows(by_sums.entries, "key")
    assert (alice.amount.requests, alice.amount.refused, alice.amount.total) == (12, 7, 155)
    assert (bob.amount.requests, bob.amount.failed, bob.amount.total) == (1, 1, 0)


def test_a_line_says_nothing_of_what_was_said(tmp_path: Path) -> None:
    said = json.loads(line("r", key_id="ab12"))
    assert said == {
        **{"t": WALL_S, "id": "r", "key": "alice", "key_id": "ab12", "model": "m", "route": "/v1/completions"},
        **{"status": 200, "result": "ok", "total": 31, "prompt": 11, "completion": 20, "cached": 0},
        "estimated": False,
    }


def test_a_refused_request_names_no_model(tmp_path: Path) -> None:
    assert json.loads(line("r", status="404", model="whatever a client writes"))["model"] == ""


@pytest.mark.parametrize("written", [True, False])
def test_after_a_kill_the_sums_hold_every_line_once(tmp_path: Path, written: bool) -> None:
    ledger = opened(tmp_path)
    ledger.add(line("r1"))
    if written:
        ledger.write_totals()
    ledger.add(line("r2"))
    with (tmp_path / f"{FIRST}.jsonl").open("ab") as file:
        file.write(b'{"t": 17960832')  # torn
    again = opened(tmp_path)
    assert shown(again) == {(FIRST, "alice", "m"): (2, 62)}
    again.add(line("r3"))
    again.close()
    assert shown(opened(tmp_path)) == {(FIRST, "alice", "m"): (3, 93)}


def test_sums_that_are_broken_are_made_anew_from_the_lines(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.add(line("r1"))
    ledger.close()
    (tmp_path / "totals" / f"{FIRST}.json").write_bytes(b'{"form":1,"day":')
    assert shown(opened(tmp_path)) == {(FIRST, "alice", "m"): (1, 31)}


def test_lines_that_a_power_cut_took_stay_in_the_sums(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.add(line("r1"))
    ledger.add(line("r2"))
    ledger.close()
    os.truncate(tmp_path / f"{FIRST}.jsonl", len(line("r1")) + 1)
    again = opened(tmp_path)
    again.add(line("r3"))
    again.close()
    assert shown(opened(tmp_path)) == {(FIRST, "alice", "m"): (3, 93)}


def test_each_day_has_its_file_and_its_sums(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.add(line("r1", WALL_S + DAY_S - 0.001))
    ledger.add(line("r2", WALL_S + DAY_S))
    ledger.add(line("r3", WALL_S))  # a clock that was set back
    assert shown(ledger) == {(FIRST, "alice", "m"): (2, 62), (SECOND, "alice", "m"): (1, 31)}
    assert shown(ledger, since=SECOND) == {(SECOND, "alice", "m"): (1, 31)}
    ledger.close()
    assert shown(opened(tmp_path)) == {(FIRST, "alice", "m"): (2, 62), (SECOND, "alice", "m"): (1, 31)}


def test_a_large_file_is_not_continued_and_order_is_by_number(tmp_path: Path) -> None:
    ledger = opened(tmp_path, file_bytes=1)
    for n in range(11):
        ledger.add(line(f"r{n}"))
    names = UsageFiles(tmp_path, 1, 1 << 30, 400).names()
    assert names == [f"{FIRST}.jsonl", *(f"{FIRST}.{n}.jsonl" for n in range(2, 12))]
    ledger.close()
    assert shown(opened(tmp_path)) == {(FIRST, "alice", "m"): (11, 341)}


def test_old_lines_go_and_their_sums_stay(tmp_path: Path) -> None:
    ledger = opened(tmp_path, keep_days=2)
    for day in range(5):
        ledger.add(line(f"r{day}", WALL_S + day * DAY_S))
        ledger.write_totals()
    assert UsageFiles(tmp_path, 1, 1, 1).names() == ["2026-12-03.jsonl", "2026-12-04.jsonl", "2026-12-05.jsonl"]
    assert sum(requests for requests, _ in shown(opened(tmp_path)).values()) == 5


def test_all_lines_together_have_a_largest_size(tmp_path: Path) -> None:
    size = len(line("r10")) + 1
    ledger = opened(tmp_path, file_bytes=1, all_bytes=4 * size)
    for n in range(10, 30):
        ledger.add(line(f"r{n}"))
    kept = sum(path.stat().st_size for path in tmp_path.glob("*.jsonl"))
    assert kept <= 5 * size, "the file that is being written comes on top"
    ledger.close()
    assert shown(opened(tmp_path)) == {(FIRST, "alice", "m"): (20, 620)}


def test_lines_wait_for_a_full_disk_and_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = opened(tmp_path)
    ledger.add(line("r1"))
    with monkeypatch.context() as disk:
        write = os.write
        disk.setattr(os, "write", lambda fd, data: write(fd, data[:10]))
        ledger.add(line("r2"))
        ledger.add(line("r3"))
        ledger.tend()
        assert ledger.waiting == 2 and ledger.errors >= 2 and ledger.error
    ledger.add(line("r4"))
    ledger.tend()
    said = [lines.read(raw) for raw in (tmp_path / f"{FIRST}.jsonl").read_bytes().splitlines()]
    assert [one["id"] for one in said if one] == ["r1", "r2", "r3", "r4"], "nobody overtakes what waits"
    assert (ledger.waiting, ledger.lost, ledger.error) == (0, 0, None)
    assert shown(ledger) == {(FIRST, "alice", "m"): (4, 124)}
    ledger.close()
    assert shown(opened(tmp_path)) == {(FIRST, "alice", "m"): (4, 124)}


def test_what_waits_has_an_end_and_what_was_given_up_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "WAITING_MOST", 3)
    (tmp_path / "file").touch()
    ledger = opened(tmp_path / "file")  # no folder can be made here
    for n in range(5):
        ledger.add(line(f"r{n}"))
    assert (ledger.waiting, ledger.lost) == (3, 2)


def test_a_folder_that_comes_later_is_used(tmp_path: Path) -> None:
    (tmp_path / "usage").touch()
    ledger = opened(tmp_path / "usage")
    ledger.add(line("r1"))
    (tmp_path / "usage").unlink()
    ledger.tend()
    assert shown(ledger) == {(FIRST, "alice", "m"): (1, 31)}


def test_a_client_that_invents_models_gets_one_row_for_the_rest() -> None:
    day = Day(FIRST)
    for n in range(MOST_MODELS + 5):
        said = lines.read(line(f"r{n}", model=f"m{n}"))
        assert said is not None
        day.add(said)
    rows = day.rows()
    assert len(rows) == MOST_MODELS + 1
    assert [row["requests"] for row in rows if row["model"] == OTHER] == [5]


def test_sums_survive_being_written_and_read() -> None:
    day = Day(FIRST)
    for n in range(3):
        said = lines.read(line(f"r{n}", estimated="true"))
        assert said is not None
        day.add(said)
    day.read["x.jsonl"] = 99
    again = Day.parse(day.dump())
    assert again.dump() == day.dump() and again.rows()[0]["estimated"] == 93


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"[1]", b'{"t":1,"key":"a"}', b'{"t":"x","key":"a","result":"ok"}', b"\xff"]
)
def test_a_torn_or_foreign_line_is_none(raw: bytes) -> None:
    assert lines.read(raw) is None


def test_the_newest_ids_are_found_again(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    for n in range(3):
        ledger.add(line(f"r{n}"))
    assert UsageFiles(tmp_path, 1, 1, 1).latest_ids() == {"r0", "r1", "r2"}


def test_the_report_has_sums_and_nothing_else_on_stdout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = opened(tmp_path / "usage")
    ledger.add(line("r1"))
    ledger.write_totals()
    (tmp_path / f"usage/totals/{FIRST}.json").write_text("torn")  # made anew, which is said
    monkeypatch.setenv("BUDGET_STATE", str(tmp_path))
    capsys.readouterr()
    assert report.main(["usage", FIRST]) == 0
    out, said = capsys.readouterr()
    assert "made anew from the lines" in said
    read = usage.read_sums(out)
    assert (read.broken, [entry.amount.requests for entry in read.entries]) == (0, [1])
    assert report.main(["usage", SECOND]) == 0 and capsys.readouterr().out == ""
