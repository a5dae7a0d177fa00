"""The journal: after any end of the process the counts are what they were, and a bad disk stops nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from budget import journal as journal_module
from budget.core import entries, lines
from budget.core.counts import Counts
from budget.core.limits import Limit
from budget.journal import NAME, Journal
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.budget.said import WALL_S, check, ended, limits

TWO = limits(a=Limit(tpm=6000), b=Limit(tpm=77))


def charge(counts: Counts, journal: Journal, client: str, request: str, tokens: int, now: int) -> bool:
    """As the service does it."""
    line = lines.ended(ended(client, request, total=str(tokens)), WALL_S)
    if not counts.charge(client, request, tokens, line, now):
        return False
    journal.charged(now, tokens, line)
    return True


def used(counts: Counts) -> dict[str, int]:
    return {client: bucket.used for client, bucket in counts.buckets()}


def opened(folder: Path, now: int = 0) -> tuple[Counts, Journal]:
    counts = Counts(TWO)
    journal = Journal(folder, counts)
    journal.open(now)
    return counts, journal


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("charge"), st.sampled_from("ab"), st.integers(0, 9000), st.integers(0, 70_000)),
        st.just(("compact",)),
        st.just(("sweep",)),
    ),
    max_size=25,
)


@given(EVENTS)
def test_a_replay_ends_in_the_state_that_was_lost(events: list[tuple[object, ...]]) -> None:
    counts, written, now = Counts(TWO), list[bytes](), 0
    for number, event in enumerate(events):
        if event[0] == "charge":
            _, client, tokens, passed = event
            assert isinstance(client, str) and isinstance(tokens, int) and isinstance(passed, int)
            now += passed
            line = lines.ended(ended(client, f"r{number}", total=str(tokens)), WALL_S)
            counts.charge(client, f"r{number}", tokens, line, now)
            written.append(entries.charged(now, tokens, line))
        elif event[0] == "compact":
            written = list(entries.snapshot(counts))
        else:
            counts.sweep(now)
    again = Counts(TWO)
    done = entries.replay(written, again, now)
    counts.sweep(now)
    again.sweep(now)
    assert done.broken == 0 and used(again) == used(counts)
    assert all(f"r{n}" in again.charged for n in range(len(events)) if f"r{n}" in counts.charged)


@given(st.integers(0, 600))
def test_a_journal_cut_off_anywhere_loses_only_what_was_cut(length: int) -> None:
    whole = [entries.charged(n, 100, lines.ended(ended("a", f"r{n}"), WALL_S)) for n in range(3)]
    counts = Counts(TWO)
    kept = b"".join(whole)[:length]
    done = entries.replay(kept.splitlines(keepends=True), counts, 10)
    complete = sum(1 for n in range(3) if len(b"".join(whole[: n + 1])) - 1 <= length)  # its newline may be missing
    assert done.entries == complete and done.broken <= 1
    assert [f"r{n}" in counts.charged for n in range(3)] == [n < complete for n in range(3)]


def test_a_journal_from_a_clock_that_was_ahead_is_taken_for_now() -> None:
    counts = Counts(TWO)
    entries.replay([entries.bucket("a", 6000 * 60_000, 10_000_000)], counts, 1000)
    assert counts.check(check("a", "r"), 1000).refused == "tokens"
    assert counts.check(check("a", "r"), 2000).balance == 100, "time gives back from now on, not from then"


@pytest.mark.parametrize("raw", [b"[]", b"{}", b"5", b'["x",1,2,{}]', b'["c",1,2]', b'["c",1,2,{"key":1}]', b"\xff"])
def test_a_foreign_line_is_left_out(raw: bytes) -> None:
    counts = Counts(TWO)
    done = entries.replay([raw + b"\n", entries.bucket("a", 60_000, 0)], counts, 0)
    assert (done.entries, done.broken, used(counts)) == (1, 1, {"a": 60_000})


def test_counts_and_ids_come_back_after_a_kill(tmp_path: Path) -> None:
    counts, journal = opened(tmp_path)
    assert charge(counts, journal, "a", "r1", 7000, 0)
    again, journal = opened(tmp_path, 1000)
    assert again.check(check("a", "r2"), 1000).balance == -900
    assert not charge(again, journal, "a", "r1", 7000, 1000), "the gateway repeats what it had no answer to"
    third, _ = opened(tmp_path, 1000)
    assert third.check(check("a", "r3"), 1000).balance == -900, "a compacted journal says the same"


def test_a_torn_last_line_does_not_spoil_the_next(tmp_path: Path) -> None:
    counts, journal = opened(tmp_path)
    charge(counts, journal, "a", "r1", 10, 0)
    with (tmp_path / NAME).open("ab") as file:
        file.write(b'["c",0,5,{"t":')
    again, journal = opened(tmp_path)
    charge(again, journal, "a", "r2", 20, 0)
    assert used(opened(tmp_path)[0]) == {"a": 30 * 60_000}


def test_a_long_journal_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "COMPACT_LINES", 50)
    counts, journal = opened(tmp_path)
    for n in range(200):
        charge(counts, journal, "a", f"r{n}", 1, n * 10_000)
        counts.sweep(n * 10_000)
        journal.tend()
    assert len((tmp_path / NAME).read_bytes().splitlines()) < 100
    assert used(opened(tmp_path, 1_990_000)[0]) == used(counts)


def full(*_: object) -> int:
    raise OSError(28, "No space left on device")


def half(write: Callable[[int, bytes], int]) -> Callable[[int, bytes], int]:
    return lambda fd, data: write(fd, data[: len(data) // 2])


@pytest.mark.parametrize("torn", [False, True])
def test_a_full_disk_is_survived_and_everything_is_written_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: bool
) -> None:
    counts, journal = opened(tmp_path)
    charge(counts, journal, "a", "r1", 10, 0)
    with monkeypatch.context() as disk:
        disk.setattr(os, "write", half(os.write) if torn else full)
        charge(counts, journal, "a", "r2", 20, 0)
        assert journal.error and journal.errors == 1
        charge(counts, journal, "a", "r3", 30, 0)
    assert used(counts) == {"a": 60 * 60_000}
    monkeypatch.setattr(journal_module, "RETRY_S", 0)
    journal._next_try = 0
    journal.tend()
    assert journal.error is None
    assert used(opened(tmp_path)[0]) == {"a": 60 * 60_000}


def test_a_file_that_could_not_be_replaced_leaves_the_old_one_and_no_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, journal = opened(tmp_path)
    charge(counts, journal, "a", "r1", 10, 0)
    before = (tmp_path / NAME).read_bytes()
    monkeypatch.setattr(Path, "replace", full)
    journal.compact()
    assert journal.error and [path.name for path in tmp_path.iterdir()] == [NAME]
    assert (tmp_path / NAME).read_bytes() == before


def test_a_folder_that_is_not_there_stops_nothing(tmp_path: Path) -> None:
    counts, journal = opened(tmp_path / "missing")
    charge(counts, journal, "a", "r1", 10, 0)
    assert journal.error and journal.errors == 1 and used(counts) == {"a": 600_000}
    (tmp_path / "missing").mkdir()
    journal.close()
    assert used(opened(tmp_path / "missing")[0]) == {"a": 600_000}


def test_a_journal_that_cannot_be_read_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    counts, journal = opened(tmp_path)
    assert journal.error
    assert charge(counts, journal, "a", "r1", 10, 0)
