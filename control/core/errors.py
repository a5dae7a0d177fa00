"""What an operator is told when something cannot be done: what, why and the fix.

The class carries the exit code; `control.cli` prints the error and exits with it. Nothing else in
the program turns an exception into words.
"""

from __future__ import annotations


class FlashboxError(Exception):
    """Something failed and the operator can act on it (exit 1)."""

    exit_code = 1

    def __init__(self, what: str, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix


class UsageError(FlashboxError):
    """A setting, an option or a file that a person wrote is wrong (exit 2)."""

    exit_code = 2


class PreflightRefused(FlashboxError):
    """The host cannot run what was asked for; nothing was touched (exit 3)."""

    exit_code = 3


class NotHealthyInTime(FlashboxError):
    """The stack was started and did not become healthy (exit 4)."""

    exit_code = 4
