"""Messages as the gateway sends them, for tests."""

from __future__ import annotations

from budget.core import descriptors, lines
from budget.core.counts import Counts
from budget.core.descriptors import Check, Ended, Release, read
from budget.core.limits import Limit, Limits

NONE = Limit()
WALL_S = 1_796_083_200.0  # 2026-12-01 00:00:00 UTC


def limits(longest_s: float = 600.0, default: Limit = NONE, **keys: Limit) -> Limits:
    return Limits("v", longest_s, default, keys)


def check(client: str, request: str, boot: str = "g:1") -> Check:
    return descriptors.check({"client": client, "id": request, "path": "/v1/chat/completions", "boot": boot})


def ended(client: str, request: str, **more: str) -> Ended:
    base = {"op": "charge", "client": client, "id": request, "status": "200", "model": "m", "path": "/v1/completions"}
    said = read({**base, "total": "31", "prompt": "11", "completion": "20", **more})
    assert isinstance(said, Ended)
    return said


def charge(counts: Counts, client: str, request: str, tokens: int, now: int) -> bool:
    """As the service does it; whether it counted."""
    one = ended(client, request, total=str(tokens))
    return counts.charge(client, request, counts.owed(request, tokens), lines.ended(one, WALL_S), now)


def end(counts: Counts, client: str, request: str, now: int) -> None:
    counts.release(Release(client, request), now)
