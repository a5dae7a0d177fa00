"""The bytes of one body: small ones in memory, large ones in an anonymous file that is shared by its handle."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

PIECE = 64 << 10  # what goes back to Envoy at once


def anonymous_file() -> int:
    """A file without a name, in memory where the system has that."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("body", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as made:  # not Linux: development only
        return os.dup(made.fileno())


class Body:
    """Filled piece by piece, then read once or more, then closed."""

    def __init__(self) -> None:
        self.size = 0
        self.file: int | None = None
        self._parts: list[bytes] = []
        self._inserted = (0, b"")  # of a file: added when it is read piece by piece

    def append(self, piece: bytes) -> None:
        """Add bytes at the end."""
        self.size += len(piece)
        if self.file is None:
            self._parts.append(piece)
        else:
            _write(self.file, piece)

    def spill(self) -> None:
        """From here on it is a large one."""
        if self.file is None:
            self.file = anonymous_file()
            for part in self._parts:
                _write(self.file, part)
            self._parts = []

    def handle(self) -> int:
        """Of the file; only after `spill`."""
        if self.file is None:
            raise RuntimeError("there is no file")
        return self.file

    def whole(self) -> bytes:
        """All bytes at once, before anything is inserted; of a large body only in the process that judges it."""
        if self.file is not None:
            return read_whole(self.file, self.size)
        if len(self._parts) != 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0]

    def insert(self, at: int, added: bytes) -> None:
        """Put a few bytes into a complete body; once."""
        if self.file is None:
            raw = self.whole()
            self._parts = [raw[:at] + added + raw[at:]]
        else:
            self._inserted = (at, added)
        self.size += len(added)

    def pieces(self) -> Iterator[bytes]:
        """The bytes in order, at most PIECE at once; one empty piece for an empty body."""
        if self.file is not None:
            at, added = self._inserted
            yield from _read(self.file, 0, at)
            if added:
                yield added
            yield from _read(self.file, at, self.size - len(added))
            return
        raw = self.whole()
        yield from (raw[at : at + PIECE] for at in range(0, max(1, len(raw)), PIECE))

    def close(self) -> None:
        """Free the memory. May be called twice."""
        self._parts = []
        self.size = 0
        if self.file is not None:
            os.close(self.file)
            self.file = None


def _write(file: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(file, view) :]


def _read(file: int, start: int, end: int) -> Iterator[bytes]:
    return (os.pread(file, min(PIECE, end - at), at) for at in range(start, end, PIECE))


def read_whole(file: int, size: int) -> bytes:
    """All of a file; one system call reads at most 2 GiB, which no body has."""
    return os.pread(file, size, 0)
