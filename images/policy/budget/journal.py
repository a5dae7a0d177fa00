"""The journal on its volume: every charge is on it before it is answered for, and all counts come back from it.

No fsync: the kernel keeps what was written when this process dies; a power cut may take the last seconds. A disk that
is full or a folder that cannot be written stops nothing: counting goes on in memory, and as soon as it is possible the
journal is written anew from there.
"""

from __future__ import annotations

import time
from pathlib import Path

from budget.appender import Appender, replace
from budget.core import entries
from budget.core.counts import Counts
from budget.log import say

NAME = "journal"
COMPACT_LINES = 20_000  # a journal that has grown by so many lines, and by twice its last snapshot, is written anew
RETRY_S = 1.0


class Journal:
    """The file, and whether it has everything."""

    def __init__(self, state: Path, counts: Counts) -> None:
        self._path = state / NAME
        self._counts = counts
        self._file: Appender | None = None
        self._added = self._base = 0
        self._next_try = 0.0
        self.errors = 0
        self.error: str | None = "not opened"

    def open(self, now: int) -> None:
        """Bring the counts back, then begin a new file."""
        try:
            with self._path.open("rb") as lines:
                done = entries.replay(lines, self._counts, now)
            say("journal replayed", entries=done.entries, broken=done.broken)
        except FileNotFoundError:
            say("journal begun")
        except OSError as error:
            say("journal not readable", error=str(error))
        self.compact()

    def charged(self, at: int, tokens: int, line: bytes) -> None:
        """Note a charge."""
        if self._file is None:
            return  # all that is in memory will be written when this is possible again
        try:
            self._file.add(entries.charged(at, tokens, line))
            self._added += 1
        except OSError as error:
            self._failed(error)

    def compact(self) -> None:
        """Write all counts anew."""
        try:
            lines = list(entries.snapshot(self._counts))
            replace(self._path, b"".join(lines))
            opened = Appender(self._path)
        except OSError as error:
            self._failed(error)
            return
        if self._file is not None:
            self._file.close()
        if self.error is not None:
            say("journal written", lines=len(lines))
        self._file, self._added, self._base, self.error = opened, 0, len(lines), None

    def tend(self) -> None:
        """Called again and again: shorten a long journal, try again after an error."""
        if self._file is None:
            if time.monotonic() >= self._next_try:
                self.compact()
        elif self._added > max(COMPACT_LINES, 2 * self._base):
            self.compact()

    def _failed(self, error: OSError) -> None:
        """From now on in memory only, until the whole can be written anew."""
        self.errors += 1
        if self.error != str(error):
            say("journal not written: counts are kept in memory only", error=str(error))
        self.error = str(error)
        self._next_try = time.monotonic() + RETRY_S
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return self._file.size if self._file else 0

    def close(self) -> None:
        """The end: a last try to have everything on the disk."""
        if self._file is None:
            self.compact()
        if self._file is not None:
            self._file.close()
