"""The budget service behind gateways of these tests that do not ask for their own: one for all, which limits nobody."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.contract.budget.process import Budget

_shared: list[tuple[Budget, tempfile.TemporaryDirectory[str]]] = []


def shared() -> Budget:
    """The one without limits, started when first asked for."""
    if not _shared:
        folder = tempfile.TemporaryDirectory(prefix="flashbox-budget-")
        budget = Budget(Path(folder.name))
        budget.limit()
        budget.start()
        _shared.append((budget, folder))
    return _shared[0][0]


def end_shared() -> None:
    """End it, if it was started."""
    while _shared:
        budget, folder = _shared.pop()
        budget.end()
        folder.cleanup()
