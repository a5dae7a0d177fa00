"""Files appear whole, with their mode, by one writer at a time."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from control.adapters import files
from control.core.errors import FlashboxError, UsageError


def test_mode_is_set_before_the_file_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    replace = Path.replace

    def spy(self: Path, target: Path) -> Path:
        seen.append(stat.S_IMODE(self.stat().st_mode))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", spy)
    files.publish(tmp_path / "a", "text", 0o644)
    files.publish(tmp_path / "b", "text", 0o600)
    assert seen == [0o644, 0o600]


def test_a_failed_publication_leaves_the_old_file_and_no_scrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    files.publish(path, "old")

    def fail(self: Path, target: Path) -> Path:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        files.publish(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_what_has_not_changed_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert files.publish_if_changed(path, "x")
    inode = path.stat().st_ino
    assert not files.publish_if_changed(path, "x")
    assert path.stat().st_ino == inode
    assert files.publish_if_changed(path, "y")


def test_line_ends_are_kept_as_given(tmp_path: Path) -> None:
    files.publish(tmp_path / "a", "one\ntwo\n")
    assert (tmp_path / "a").read_bytes() == b"one\ntwo\n"


def test_a_missing_file_is_none_and_utf16_is_named(tmp_path: Path) -> None:
    assert files.read(tmp_path / "none") is None
    (tmp_path / "wide.yaml").write_bytes("a: 1".encode("utf-16"))
    with pytest.raises(UsageError, match="UTF-16"):
        files.read(tmp_path / "wide.yaml")


def test_a_secret_belongs_to_its_reader_if_root_gives_it_and_else_to_its_writer(tmp_path: Path) -> None:
    files.publish(tmp_path / "secret", "x", 0o600, (1001, 1001))
    assert (tmp_path / "secret").stat().st_uid == (1001 if os.geteuid() == 0 else os.geteuid())


HOLDER = """
import sys
from pathlib import Path
from control.adapters import files
with files.lock(Path(sys.argv[1]), "ctl.py up"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_second_writer_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "run/.lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(FlashboxError) as caught, files.lock(path, "me", wait_s=0.2):
            pass
        assert "ctl.py up" in caught.value.why and str(holder.pid) in caught.value.why
    finally:
        holder.kill()
        holder.wait()
    with files.lock(path, "me", wait_s=5):  # the kernel freed it when its holder was killed
        pass


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdin is not None
    holder.stdout.readline()
    holder.stdin.close()
    with files.lock(path, "me", wait_s=10):
        pass
    assert holder.wait() == 0
