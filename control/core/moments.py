"""Times as people and files write them; what time it is now, the caller says."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from control.core.complaints import found
from control.core.errors import UsageError

_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_SPAN = re.compile(r"(\d{1,6}) *([smhdw]?)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_LONGEST = timedelta(days=36_500)
_DAY_ENDS = timedelta(days=1, seconds=-1)


def text(moment: datetime) -> str:
    """2026-01-31T09:00:00Z."""
    return moment.astimezone(timezone.utc).strftime(_FORMAT)


def read(words: str) -> datetime | None:
    """A time as `text` writes it, or None."""
    try:
        moment = datetime.strptime(words, _FORMAT).replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    return moment if text(moment) == words else None


def span(words: str, option: str) -> timedelta:
    """`24h`, `30d`, `0`."""
    match = _SPAN.fullmatch(words.strip())
    if match is None or not (match[2] or int(match[1]) == 0):
        raise UsageError(f"{option}: expected a time such as 24h, 30d or 0, found {found(words)}")
    length = timedelta(seconds=int(match[1]) * _UNITS[match[2] or "s"])
    if length > _LONGEST:
        raise UsageError(f"{option}: expected at most {_LONGEST.days} days, found {found(words)}")
    return length


def ahead(words: str, now: datetime, option: str) -> str:
    """The time that `2027-01-31` (the end of that day, UTC), `2027-01-31T09:00:00Z` or `30d` names; it is to come."""
    moment = read(words) or _end_of_day(words)
    if moment is None:
        if not _SPAN.fullmatch(words.strip()):
            expected = "expected a day such as 2027-01-31, a UTC time such as 2027-01-31T09:00:00Z, or 30d"
            raise UsageError(f"{option}: {expected}, found {found(words)}")
        moment = now + span(words, option)
    if moment <= now:
        raise UsageError(f"{option}: expected a time to come, found {found(words)} (it is {text(now)})")
    if moment - now > _LONGEST:
        raise UsageError(f"{option}: expected at most {_LONGEST.days} days from now, found {found(words)}")
    return text(moment)


def _end_of_day(words: str) -> datetime | None:
    day = read(f"{words}T00:00:00Z")
    return day + _DAY_ENDS if day and day.year < 9999 else None
