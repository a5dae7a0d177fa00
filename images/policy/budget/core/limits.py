"""What each key may use: the content of limits.json, as the control program renders it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

LONGEST_STREAM_S = 86_400.0  # where the gateway knows no longest one: a lease has to end some day
NUMBERS = {"tpm": 10**12, "streams": 10**9}


@dataclass(frozen=True)
class Limit:
    """Tokens per minute and requests at once; 0 is no limit."""

    tpm: int = 0
    streams: int = 0


@dataclass(frozen=True)
class Limits:
    """One version of the file."""

    version: str = ""
    max_stream_s: float = LONGEST_STREAM_S
    default: Limit = Limit()
    keys: dict[str, Limit] = field(default_factory=dict)
    observe: bool = False  # nothing is refused: what would be is only said

    def of(self, client: str) -> Limit:
        """A key's own limits, or those of everybody."""
        return self.keys.get(client, self.default)

    @classmethod
    def parse(cls, data: bytes) -> Limits:
        """Raises ValueError for anything that is not a complete set of limits."""
        given = orjson.loads(data)
        if not isinstance(given, dict):
            raise ValueError("not an object")
        default = _limit(given.get("default"), Limit(), "default")
        keys = given.get("keys")
        if not isinstance(keys, dict):
            raise ValueError("keys: not an object")
        longest = given.get("max_stream_s") or LONGEST_STREAM_S
        if isinstance(longest, bool) or not isinstance(longest, (int, float)) or longest < 0:
            raise ValueError("max_stream_s: not a number of seconds")
        observe = given.get("observe", False)
        if not isinstance(observe, bool):
            raise ValueError("observe: neither true nor false")
        return cls(
            version=str(given.get("version", ""))[:64],
            max_stream_s=float(longest),
            default=default,
            keys={name: _limit(row, default, f"keys.{name}") for name, row in keys.items()},
            observe=observe,
        )


def _limit(row: Any, otherwise: Limit, where: str) -> Limit:
    if not isinstance(row, dict):
        raise ValueError(f"{where}: not an object")
    found = {}
    for name, most in NUMBERS.items():
        value = row.get(name)
        value = getattr(otherwise, name) if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise ValueError(f"{where}.{name}: not a whole number from 0 to {most}")
        found[name] = value
    return Limit(**found)
