"""The keys as `keys list` shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from control.core import limits
from control.core.keys import is_over
from control.core.model import ApiKey

COLUMNS = ("name", "owner", "id", "created", "expires", "models", "per second", "per minute", "tokens/min", "streams")

_NOTHING = ("",) * (1 + len(limits.OF_A_KEY))  # models and limits, which a former digest does not have


def rows(keys: Sequence[ApiKey], now: datetime) -> Iterator[tuple[str, ...]]:
    """One line each, and one below it for every former digest that a rotation left."""
    for key in keys:
        own = (_limit(getattr(key, field)) for field in limits.OF_A_KEY)
        models = ", ".join(key.models) or "all"
        yield (key.name, key.owner, key.key_id, key.created, _end(key.expires, now), models, *own)
        for old in key.former:
            yield (f"{key.name} (former)", "", old.key_id, "", _end(old.expires, now), *_NOTHING)


def data(keys: Sequence[ApiKey], now: datetime) -> list[dict[str, object]]:
    """For --json; a limit that is null is the policy's."""
    return [
        {
            **{"name": key.name, "owner": key.owner, "key_id": key.key_id, "created": key.created},
            **{"expires": key.expires, "expired": is_over(key.expires, now), "models": list(key.models)},
            **{field: getattr(key, field) for field in limits.OF_A_KEY},
            "former": [
                {"key_id": old.key_id, "expires": old.expires, "expired": is_over(old.expires, now)}
                for old in key.former
            ],
        }
        for key in keys
    ]


def _end(expires: str | None, now: datetime) -> str:
    if expires is None:
        return "never"
    return f"expired {expires}" if is_over(expires, now) else expires


def _limit(value: int | None) -> str:
    return "policy" if value is None else str(value or "none")
