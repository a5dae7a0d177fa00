"""Where the limits are found: limits.json as the control program renders it, read again when it is replaced."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from budget.appender import replace
from budget.core.limits import Limits
from budget.log import say

NAME = "limits.json"
LAST = "limits.last.json"


class Shelf:
    """The last good limits; a copy of them on the volume outlives a restart with a broken file."""

    def __init__(self, folder: Path, state: Path, changed: Callable[[Limits], None]) -> None:
        self._path, self._copy = folder / NAME, state / LAST
        self._changed = changed
        self._seen: tuple[int, ...] | None = None
        self._data = b""
        self.error: str | None = None

    def first(self) -> Limits:
        """The limits to begin with: the file's, else those of the time before, else none."""
        for path in (self._path, self._copy):
            try:
                data = path.read_bytes()
                limits = Limits.parse(data)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                say("limits not loaded", file=str(path), error=_said(error))
                continue
            self._data = data
            say("limits loaded", file=str(path), version=limits.version, keys=len(limits.keys))
            return limits
        return Limits()

    def look(self) -> None:
        """Read the file if it is another than last time; a broken one leaves the last good limits in force."""
        try:
            stat = os.stat(self._path)
            seen = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            if seen == self._seen:
                return
            self._seen = seen
            data = self._path.read_bytes()
            limits = Limits.parse(data)
        except FileNotFoundError:
            self._failed("there is no limits.json", ())
            return
        except (OSError, ValueError) as error:
            self._failed(_said(error), self._seen)
            return
        self.error = None
        self._keep_copy(data)
        if data != self._data:
            self._data = data
            say("limits loaded", version=limits.version, keys=len(limits.keys))
            self._changed(limits)

    def _keep_copy(self, data: bytes) -> None:
        with suppress(OSError):  # the journal, on the same volume, says what is wrong there
            replace(self._copy, data)

    def _failed(self, why: str, seen: tuple[int, ...] | None) -> None:
        self._seen = seen
        if why != self.error:
            say("limits not loaded: the last good ones stay in force", error=why)
        self.error = why


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"  # the limits are ours: their text may be said
