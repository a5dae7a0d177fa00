"""Reads and publishes files: whole or not at all, with the right mode before they are seen, one writer at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from control.core.encoding import decode
from control.core.errors import FlashboxError, UsageError

Owner = tuple[int, int]  # uid, gid


def read(path: Path) -> str | None:
    """The text of a file that people may have edited on any system, or None if it is not there."""
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return decode(raw, str(path))


def tree(folder: Path, pattern: str = "*") -> dict[str, str]:
    """Every file below the folder that fits the pattern: its path relative to the folder, and its text."""
    found = {p.relative_to(folder).as_posix(): read(p) for p in sorted(folder.rglob(pattern)) if p.is_file()}
    return {path: text for path, text in found.items() if text is not None}


def make_folder(folder: Path, mode: int = 0o755, owner: Owner | None = None) -> None:
    """Make a folder with exactly this mode, whatever the umask; one that is there keeps its own."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir()
    folder.chmod(mode)
    _give(folder, owner)


def publish(path: Path, text: str, mode: int = 0o644, owner: Owner | None = None) -> None:
    """Replace the file by rename. Mode and owner are set before it appears: readers run as another user."""
    make_folder(path.parent)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    part = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        _give(part, owner)
        part.chmod(mode)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def publish_if_changed(path: Path, text: str, mode: int = 0o644, owner: Owner | None = None) -> bool:
    """Publish only what differs; True if it did."""
    with suppress(UsageError):  # an unreadable old file is simply replaced
        if read(path) == text:
            return False
    publish(path, text, mode, owner)
    return True


def publish_link(path: Path, target: str) -> str:
    """Point the link at `target`, by rename; where it pointed before, or nothing. One that is right is left alone."""
    before = os.readlink(path) if path.is_symlink() else ""
    if before != target:
        part = path.with_name(f".{path.name}.{os.getpid()}")
        part.unlink(missing_ok=True)
        part.symlink_to(target)
        part.replace(path)
    return before


def remove_other_folders(folder: Path, kept: Collection[str]) -> None:
    """Remove folders in it that are not named; links and files stay."""
    for other in folder.iterdir():
        if other.name not in kept and other.is_dir() and not other.is_symlink():
            shutil.rmtree(other)


def restrict(path: Path, mode: int, owner: Owner) -> None:
    """Set owner and mode of a file that is there, as far as we may: root after a change of service.uid."""
    if os.geteuid() in (0, path.stat().st_uid):
        _give(path, owner)
        path.chmod(mode)


def _give(path: Path, owner: Owner | None) -> None:
    """Hand the file over. Only root can; for anybody else the file stays theirs (doctor checks service.uid)."""
    if owner is not None and os.geteuid() == 0:
        os.chown(path, *owner)


@contextmanager
def lock(path: Path, who: str, wait_s: float = 10.0) -> Iterator[None]:
    """Be the only writer. The file says who holds it; the kernel frees it when that process ends, however it ends."""
    make_folder(path.parent)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _take(handle, path, wait_s)
        os.ftruncate(handle, 0)
        os.write(handle, f"{who}, process {os.getpid()}, since {time.strftime('%H:%M:%S')}".encode())
        yield
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _take(handle: int, path: Path, wait_s: float) -> None:
    end = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= end:
                holder = os.pread(handle, 200, 0).decode(errors="replace") or "unknown"
                raise FlashboxError(
                    "another command is changing this stack",
                    f"{path.name} is held by {holder}",
                    "wait for it to end, then run this again",
                ) from None
            time.sleep(0.1)
