"""Putting things back in order, also when the operator is impatient."""

from __future__ import annotations

from collections.abc import Callable


def surely(action: Callable[[], object]) -> None:
    """Do it; if a signal comes in the middle, do it again before giving way. It must be able to be done twice."""
    try:
        action()
    except KeyboardInterrupt:
        action()
        raise
