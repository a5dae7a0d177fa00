"""Lines of the ledger: one JSON object for each request that ended, and one for requests that were refused together.

A line says who asked for what and how much it used; nothing of what was said.
"""

from __future__ import annotations

import datetime
from typing import Any

import orjson

from budget.core.descriptors import Ended

NUMBERS = ("total", "prompt", "completion", "cached")
RESULTS = ("ok", "left", "cut", "refused", "failed")
STATUS = {"expired_api_key": 401}  # of a refusal; else 429


def ended(one: Ended, wall_s: float) -> bytes:
    """A request that ended."""
    said: dict[str, Any] = {
        "t": round(wall_s, 3),
        "id": one.id,
        "key": one.client,
        "key_id": one.key_id,
        "model": one.model if one.result in ("ok", "left", "cut") else "",  # what is refused may name any model
        "route": one.path,
        "status": one.status,
        "result": one.result,
        "total": one.total,
        "prompt": one.prompt,
        "completion": one.completion,
        "cached": one.cached,
        "estimated": one.estimated,
    }
    return orjson.dumps(said)


def refused(who: tuple[str, str, str, str], number: int, wall_s: float) -> bytes:
    """Requests of one kind that were refused by a limit or for their key: (key, key's id, route, why)."""
    key, key_id, route, why = who
    said = {"t": round(wall_s, 3), "key": key, "key_id": key_id, "route": route, "status": STATUS.get(why, 429)}
    return orjson.dumps({**said, "result": "refused", "why": why, "n": number})


def read(line: bytes) -> dict[str, Any] | None:
    """One line again, or None for a torn or foreign one."""
    try:
        said = orjson.loads(line)
    except ValueError:
        return None
    if not isinstance(said, dict) or said.get("result") not in RESULTS or not isinstance(said.get("key"), str):
        return None
    numbers = ("t", *(name for name in ("n", *NUMBERS) if name in said))
    return said if all(isinstance(said.get(name), (int, float)) for name in numbers) else None


def day_of(wall_s: float) -> str:
    """The UTC day, as in the names of files."""
    return datetime.datetime.fromtimestamp(wall_s, datetime.timezone.utc).date().isoformat()
