"""Run a check as a user whom file modes apply to, also when the tests run as root."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65_534


def as_nobody(check: Callable[[], None]) -> None:
    """Fork, give up root, run the check; fail if it fails there."""
    pid = os.fork()
    if pid == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            check()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the child must never return into the test runner
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "failed as an unprivileged user; see stderr"


@contextmanager
def open_folder() -> Iterator[Path]:
    """A temporary folder that everybody may enter (pytest's own are closed)."""
    with tempfile.TemporaryDirectory(prefix="flashbox-unit-") as name:
        Path(name).chmod(0o755)
        yield Path(name)
