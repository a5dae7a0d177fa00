"""Limits of requests as token buckets of Envoy (docs/decisions/0007): numbers only.

All keys share two shapes of bucket that never change, filled with UNITS; a key's limit is what one of its requests
costs. So a limit travels with the key, and a changed one touches no bucket.

A minute is strict: capacity and refill of 60 s together are UNITS, and more than `limit` requests cost more than
UNITS, so no 60 s admit more than `limit`; and `limit` cost less, so from idle the last comes before the minute ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

UNITS = 1_000_000_000  # the most that Envoy lets one request cost
MOST = 30_000  # the largest limit of requests in the settings; up to here all of this is exact
MOST_TOKENS = 1_000_000_000  # per minute; counted by the budget service, as streams are
MOST_STREAMS = 100_000
# What a key may have of its own: its field, and the largest value.
OF_A_KEY: Mapping[str, int] = {
    "requests_per_second": MOST,
    "requests_per_minute": MOST,
    "tpm": MOST_TOKENS,
    "streams": MOST_STREAMS,
}
MANY = "many"  # the shape of every limit from _FEW on: a tenth of the minute may come at once
_FEW = 10


@dataclass(frozen=True)
class Bucket:
    """What Envoy is told: tokens at most, tokens per interval."""

    capacity: int
    fill: int
    interval_s: float


SECOND = Bucket(UNITS, UNITS, 1.0)  # `limit` at once, then `limit` per second


def second_cost(limit: int) -> int:
    """Units of one request of a key that may send `limit` per second."""
    return UNITS // limit


def minute_cost(limit: int) -> int:
    """Units of one request of a key that may send `limit` per minute: the least of which limit + 1 are too many."""
    return UNITS // (limit + 1) + 1


def minute_shape(limit: int) -> str:
    """The bucket of this limit. Below 10 a tenth is less than one request: those have shapes of their own."""
    return MANY if limit >= _FEW else str(limit)


def minutes() -> Mapping[str, Bucket]:
    """Every shape by name."""
    capacities = {**{str(limit): minute_cost(limit) for limit in range(1, _FEW)}, MANY: UNITS // _FEW}
    return {name: Bucket(capacity, UNITS - capacity, 60.0) for name, capacity in capacities.items()}


def address_second(limit: int) -> Bucket:
    """Of one client address; a token is a request. 0: a bucket that is not used."""
    return Bucket(max(1, limit), max(1, limit), 1.0)


def address_minute(limit: int) -> Bucket:
    """The same for minutes, as strict: one more token comes after 60 s, the interval is a little longer."""
    capacity = max(1, limit // 10)
    return Bucket(capacity, max(1, limit + 1 - capacity), 60.001)
