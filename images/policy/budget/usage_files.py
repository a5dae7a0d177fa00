"""The folder of the ledger: which files there are, what they hold, and when they go."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from budget.core import lines
from budget.core.totals import Day
from budget.log import say

DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
FILE = re.compile(r"(\d{4}-\d{2}-\d{2})(?:\.(\d+))?\.jsonl")
TAIL_BYTES = 16 << 20


class UsageFiles:
    """Names and contents."""

    def __init__(self, folder: Path, file_bytes: int, all_bytes: int, keep_days: int) -> None:
        self.folder, self.file_bytes = folder, file_bytes
        self._all_bytes, self._keep_days = all_bytes, keep_days

    def make(self) -> None:
        """The folders. Raises OSError."""
        (self.folder / "totals").mkdir(parents=True, exist_ok=True)

    def totals(self, day: str) -> Path:
        """Where the sums of a day are."""
        return self.folder / "totals" / f"{day}.json"

    def names(self) -> list[str]:
        """Files of lines in the order in which they were written."""
        found = [(match[1], int(match[2] or 1), path.name) for path, match in self._matches()]
        return [name for _, _, name in sorted(found)]

    def _matches(self) -> Iterator[tuple[Path, re.Match[str]]]:
        with suppress(OSError):
            for path in self.folder.iterdir():
                match = FILE.fullmatch(path.name)
                if match:
                    yield path, match

    def of(self, day: str, names: Sequence[str] | None = None) -> list[str]:
        """A day's files of lines; `names` saves a look at the folder."""
        return [name for name in (self.names() if names is None else names) if name.startswith(day)]

    def next_name(self, day: str) -> str:
        """The file to continue, or a new one when the last is large enough. Raises OSError."""
        had = self.of(day)
        if had and (self.folder / had[-1]).stat().st_size < self.file_bytes:
            return had[-1]
        number = max((int(match[2] or 1) for _, match in self._matches() if match[1] == day), default=0) + 1
        return f"{day}.jsonl" if number == 1 else f"{day}.{number}.jsonl"

    # ---- sums

    def days(self) -> list[str]:
        """Days of which there are sums or lines."""
        found = {match[1] for _, match in self._matches()}
        with suppress(OSError):
            found |= {path.stem for path in (self.folder / "totals").iterdir() if path.suffix == ".json"}
        return sorted(day for day in found if DAY.fullmatch(day))

    def day(self, name: str, names: Sequence[str] | None = None) -> Day | None:
        """The sums of a day, with all lines that are not in its file yet."""
        day = self._kept(name)
        for file in self.of(name, names):
            for said in self._lines(file, day.read.get(file, 0)):
                day.add(said)
            with suppress(OSError):
                day.read[file] = (self.folder / file).stat().st_size
        return day if day.read or day.rows() else None

    def since(self, first: str) -> Iterator[Day]:
        """The sums of all days from this one on, the oldest first."""
        names = self.names()  # once: there may be years
        for name in self.days():
            day = self.day(name, names) if name >= first else None
            if day is not None:
                yield day

    def unread(self) -> Iterator[Day]:
        """Days whose sums do not contain all lines yet, brought up to date."""
        names = self.names()
        for name in sorted({file[:10] for file in names}):
            kept = self._kept(name)
            if any((self.folder / file).stat().st_size > kept.read.get(file, 0) for file in self.of(name, names)):
                day = self.day(name, names)
                if day is not None:
                    yield day

    def _kept(self, name: str) -> Day:
        try:
            return Day.parse(self.totals(name).read_bytes())
        except FileNotFoundError:
            return Day(name)
        except (OSError, ValueError) as error:
            say("sums not readable: made anew from the lines", day=name, error=str(error))
            return Day(name)

    def _lines(self, name: str, start: int) -> Iterator[dict[str, Any]]:
        with suppress(OSError), (self.folder / name).open("rb") as file:
            file.seek(start)  # behind the end after a power cut: the sums have more than the lines, and keep it
            for raw in file:
                said = lines.read(raw)
                if said is not None:
                    yield said

    def latest_ids(self) -> set[str]:
        """Ids in the newest lines."""
        found = set()
        for name in self.names()[-2:]:
            with suppress(OSError):
                size = (self.folder / name).stat().st_size
                found |= {str(said["id"]) for said in self._lines(name, max(0, size - TAIL_BYTES)) if "id" in said}
        return found

    # ---- the end of lines

    def clear_out(self, today: str) -> None:
        """Delete lines that are too old, and the oldest ones when all together are too large. Sums stay."""
        oldest = (date.fromisoformat(today) - timedelta(days=self._keep_days)).isoformat()
        names = self.names()
        with suppress(OSError):
            sizes = {name: (self.folder / name).stat().st_size for name in names}
            total = sum(sizes.values())
            for name in names[:-1]:
                if name[:10] >= oldest and total <= self._all_bytes:
                    break
                (self.folder / name).unlink()
                total -= sizes[name]
                say("old lines of the ledger deleted", file=name)
