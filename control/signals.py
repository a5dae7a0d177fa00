"""SIGTERM and SIGHUP end a command as Ctrl-C does: what it began is put in order, then it leaves with its code."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)
SIGINT_CODE = 128 + signal.SIGINT


class Ended(KeyboardInterrupt):
    """A signal asked the command to end; whoever handles Ctrl-C handles it too."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextmanager
def raised() -> Iterator[None]:
    """The first such signal raises in the block; later ones do not disturb what it puts in order, Ctrl-C still does."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what a signal does
        return
    seen: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        seen.append(number)
        if len(seen) == 1:
            raise Ended(number)

    # One that the parent set to be ignored stays ignored: that is what nohup is for.
    before = {number: signal.getsignal(number) for number in ENDING}
    mine = [number for number in ENDING if before[number] not in (signal.SIG_IGN, None)]
    try:
        for number in mine:
            signal.signal(number, end)
        yield
    finally:
        for number in mine:
            signal.signal(number, before[number])


def farewell(error: BaseException) -> int:
    """Say that the command was interrupted; its exit code."""
    ended = next((e for e in (error, error.__cause__) if isinstance(e, Ended)), None)
    with suppress(OSError):  # after SIGHUP the terminal may be gone
        print(f"\ninterrupted{f' by {ended}' if ended else ''}", file=sys.stderr)
    return ended.exit_code if ended else SIGINT_CODE
