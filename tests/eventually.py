"""Waiting in tests: a condition that comes true, never a fixed sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(check: Callable[[], T], within_s: float, every_s: float = 0.05) -> T:
    """Return the first truthy answer of `check`; fail with its last answer or error after `within_s` seconds."""
    end = time.monotonic() + within_s
    last: object = "never called"
    while True:
        try:
            answer = check()
            if answer:
                return answer
            last = answer
        except Exception as error:  # noqa: BLE001 - any failure means "not yet"; the last one is reported
            last = error
        if time.monotonic() > end:
            raise AssertionError(f"not true within {within_s} s; last: {last!r}")
        time.sleep(every_s)
