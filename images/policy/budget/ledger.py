"""The ledger on its volume: `usage/DAY.jsonl`, then `DAY.2.jsonl` and so on, and the sums `usage/totals/DAY.json`.

A line is added in the moment in which its request is charged. The sums are in memory, written every few seconds
together with how far they have read the lines, so that after a crash the rest is read and nothing counts twice.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

from budget.appender import Appender, replace
from budget.core import lines
from budget.core.totals import Day
from budget.log import say
from budget.usage_files import UsageFiles

WAITING_MOST = 50_000  # lines kept in memory while the disk is full
WRITE_TOTALS_S = 5.0
KEPT_DAYS = 2  # sums in memory: today's, and yesterday's for a clock that is set back


class Ledger:
    """The only writer of the folder."""

    def __init__(self, files: UsageFiles) -> None:
        self._files = files
        self._days: dict[str, Day] = {}
        self._changed: set[str] = set()
        self._waiting: deque[bytes] = deque()
        self._file: Appender | None = None
        self._name = ""
        self._totals_due = 0.0
        self.errors = self.lost = 0
        self.error: str | None = None

    def open(self) -> None:
        """Read what the sums do not contain yet."""
        try:
            self._files.make()
            for day in self._files.unread():
                self._days[day.day] = day
                self._changed.add(day.day)
            for name in self._files.days()[-KEPT_DAYS:]:
                day = self._day(name)
                if day is not None:
                    self._days[name] = day
        except OSError as error:
            self._failed(error)

    def add(self, line: bytes) -> None:
        """Add one line, without its newline."""
        if self._waiting or not self._write(line):
            self._keep(line)

    def tend(self) -> None:
        """Called again and again: write what waits, the sums, and delete what is too old."""
        while self._waiting and self._write(self._waiting[0]):
            self._waiting.popleft()
        if time.monotonic() >= self._totals_due:
            self._totals_due = time.monotonic() + WRITE_TOTALS_S
            self.write_totals()

    def write_totals(self) -> None:
        """Put the sums of changed days on the disk."""
        for name in sorted(self._changed):
            try:
                replace(self._files.totals(name), self._days[name].dump())
            except OSError as error:
                self._failed(error)
                return
            self._changed.discard(name)
        for old in sorted(self._days)[:-KEPT_DAYS]:
            del self._days[old]

    def latest(self) -> Iterator[Day]:
        """The sums of the days that are in memory: today's, and perhaps yesterday's."""
        return (self._days[name] for name in sorted(self._days))

    def close(self) -> None:
        """The end."""
        self.tend()
        self.write_totals()
        if self._file is not None:
            self._file.close()

    # ---- writing

    def _write(self, line: bytes) -> bool:
        said = lines.read(line)
        if said is None:
            return True  # cannot be: it was made here
        name = lines.day_of(said["t"])
        day = self._day(name) or Day(name)  # before the line is in the file, else it would count twice
        try:
            file = self._open_for(name)
            file.add(line + b"\n")
        except OSError as error:
            self._failed(error)
            return False
        day.add(said)
        day.read[self._name] = file.size
        self._days[name] = day
        self._changed.add(name)
        self.error = None
        return True

    def _open_for(self, day: str) -> Appender:
        """The day's last file, or its next one."""
        if self._file is not None and self._name.startswith(day) and self._file.size < self._files.file_bytes:
            return self._file
        if self._file is not None:
            self._file.close()
            self._file = None
        self._files.make()
        self._name = self._files.next_name(day)
        self._file = Appender(self._files.folder / self._name)
        self._files.clear_out(day)
        return self._file

    def _keep(self, line: bytes) -> None:
        if len(self._waiting) >= WAITING_MOST:
            self._waiting.popleft()
            self.lost += 1
        self._waiting.append(line)

    def _day(self, name: str) -> Day | None:
        return self._days.get(name) or self._files.day(name)

    def _failed(self, error: OSError) -> None:
        self.errors += 1
        if self.error != str(error):
            say("ledger not written: lines wait in memory", error=str(error), waiting=len(self._waiting))
        self.error = str(error)

    @property
    def waiting(self) -> int:
        """Lines that are in memory only."""
        return len(self._waiting)
