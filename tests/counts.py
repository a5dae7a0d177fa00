"""How often a test repeats: fewer times in `make test`, all in `make soak`."""

from __future__ import annotations

import os

SOAK = os.environ.get("FLASHBOX_SOAK") == "1"


def counts(reduced: int, full: int) -> int:
    """Repetitions of a test."""
    return full if SOAK else reduced
