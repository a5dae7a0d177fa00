"""A file that lines are added to, which may have been torn in the middle of one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


class Appender:
    """Adds whole lines. After a write that went wrong, the next line begins on a line of its own."""

    def __init__(self, path: Path) -> None:
        """Open or make the file. Raises OSError."""
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self.size = os.fstat(self._fd).st_size
        self._torn = self.size > 0 and os.pread(self._fd, 1, self.size - 1) != b"\n"

    def add(self, line: bytes) -> None:
        """Add one line, which ends with a newline. Raises OSError if not all of it could be written."""
        data = b"\n" + line if self._torn else line
        written = os.write(self._fd, data)
        self.size += written
        self._torn = data[written - 1 : written] != b"\n" if written else self._torn
        if written < len(data):
            raise OSError(f"{written} of {len(data)} bytes were written: the disk is full")

    def close(self) -> None:
        """Give the file back."""
        os.close(self._fd)


def replace(path: Path, data: bytes) -> None:
    """Put a whole new file in the place of an old one; readers see one of the two. Raises OSError."""
    aside = path.with_name(f".{path.name}.new")
    try:
        aside.write_bytes(data)
        aside.replace(path)
    except OSError:
        with suppress(OSError):
            aside.unlink()  # half a file would keep a full disk full
        raise
