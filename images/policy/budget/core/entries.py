"""Lines of the journal: what is needed to have the counts again after a crash. One JSON array per line.

["c", at, tokens, {...}]  a request was charged; the object is its line of the ledger, in case it did not get there
["s", at, 0, {...}]       the same after its charge has become part of a "b": only its id and its line matter
["b", at, key, used]      a key's bucket at that moment
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from budget.core.counts import Counts


@dataclass(slots=True)
class Replayed:
    """What a journal held."""

    entries: int = 0
    broken: int = 0


def charged(at: int, tokens: int, line: bytes) -> bytes:
    """A request, with its line of the ledger."""
    return b'["c",%d,%d,%b]\n' % (at, tokens, line)


def contained(at: int, line: bytes) -> bytes:
    """A request whose charge a bucket's line has."""
    return b'["s",%d,0,%b]\n' % (at, line)


def bucket(client: str, used: int, at: int) -> bytes:
    """What a key has used."""
    return orjson.dumps(["b", at, client, used], option=orjson.OPT_APPEND_NEWLINE)


def snapshot(counts: Counts) -> Iterable[bytes]:
    """Lines that say the same as all that were written so far."""
    for client, held in counts.buckets():
        yield bucket(client, held.used, held.at)
    for at, line in counts.charged:
        yield contained(at, line)


def replay(lines: Iterable[bytes], counts: Counts, now: int) -> Replayed:
    """Bring the counts to where they were. Torn lines are left out; a moment after `now` is taken for now."""
    done = Replayed()
    for raw in lines:
        if not raw.strip():
            continue
        try:
            _apply(orjson.loads(raw), counts, now)
            done.entries += 1
        except (ValueError, TypeError, KeyError, IndexError):
            done.broken += 1
    return done


def _apply(said: Any, counts: Counts, now: int) -> None:
    kind, at = said[0], min(int(said[1]), now)
    if kind == "b":
        counts.restore(str(said[2]), max(0, int(said[3])), at)
        return
    tokens, told = int(said[2]), said[3]
    client, request, line = str(told["key"]), str(told["id"]), orjson.dumps(told)
    if kind == "c":
        counts.charge(client, request, tokens, line, at)
    elif kind == "s":
        counts.remember(request, line, at)
    else:
        raise ValueError(kind)
