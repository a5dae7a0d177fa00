"""The counts of all keys and the decisions over them. No clock, no file, no network: `now` is in milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from budget.core.bucket import Bucket
from budget.core.descriptors import Check, Release
from budget.core.leases import Lease, Leases
from budget.core.limits import Limit, Limits
from budget.core.recent import Recent

LONGEST_MS = 86_400_000  # no request runs longer
# Measured: 600 ends that waited, at 50 requests a second, were read in 2 s.
CATCH_UP_MS = 10_000


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to a check."""

    refused: str  # "", tokens or streams
    limit: Limit
    balance: int  # tokens left; nothing to say without a budget
    wait_ms: int  # until it is worth trying again
    full_in_ms: int
    would: str = ""  # where limits are only observed: why it would have been refused


@dataclass(frozen=True, slots=True)
class KeyState:
    """One key as `gateway status` shows it."""

    key: str
    tpm: int
    balance: int
    wait_s: float
    streams: int
    leases: int


class Counts:
    """The one owner."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.leases = Leases()
        self.charged: Recent[bytes] = Recent()  # with the line of the ledger
        self._ended: Recent[None] = Recent()
        self._refused: Recent[None] = Recent()
        self._let_through: Recent[None] = Recent(LONGEST_MS)
        self._buckets: dict[str, Bucket] = {}
        self._places_known_at = 0

    # ---- what the gateway says

    def check(self, ask: Check, now: int) -> Decision:
        """May this request go on? If so, it takes a place; of the budget it takes nothing before it has ended."""
        limit = self.limits.of(ask.client)
        alive = self.leases.seen(ask.gateway, ask.boot)
        bucket = self._settled(ask.client, limit, now)
        refused, would, wait_ms = "", "", 0
        if limit.tpm and bucket.empty(limit.tpm):
            refused, wait_ms = "tokens", bucket.wait_ms(limit.tpm)
        elif limit.streams and alive and ask.id not in self._ended and not self._take(ask, limit, now):
            refused, wait_ms = "streams", 1000
        if refused and self.limits.observe:
            self._let_through.add(ask.id, None, now)
            would, refused, wait_ms = refused, "", 0
        if refused:
            self._refused.add(ask.id, None, now)
        left, full = (bucket.balance(limit.tpm), bucket.full_in_ms(limit.tpm)) if limit.tpm else (0, 0)
        return Decision(refused, limit, left, wait_ms, full, would)

    def release(self, ended: Release, now: int) -> None:
        """The request has ended. Remembered: its check may still be on its way, if this service stood still."""
        self.leases.give_back(ended.client, ended.id)
        self._ended.add(ended.id, None, now)

    def was_refused(self, request: str) -> bool:
        """Whether a check refused it: then its end is no news."""
        return request in self._refused

    def owed(self, request: str, tokens: int) -> int:
        """What is charged of a request's tokens: nothing of one that would have been refused, had limits been in force.

        Else a key would come out of a week of observation with a week's debt.
        """
        return 0 if self._let_through.discard(request) else tokens

    def charge(self, client: str, request: str, tokens: int, line: bytes, now: int) -> bool:
        """Charge what a request used; False if it has been charged before."""
        if request in self.charged:
            return False
        self.charged.add(request, line, now)
        limit = self.limits.of(client)
        if limit.tpm and tokens:
            self._buckets.setdefault(client, Bucket(0, now)).take(tokens, limit.tpm, now)
        return True

    def remember(self, request: str, line: bytes, at: int) -> None:
        """A request that the journal's buckets already hold."""
        self.charged.add(request, line, at)

    def _take(self, ask: Check, limit: Limit, now: int) -> bool:
        expires = now + int(self.limits.max_stream_s * 1000)
        taken = self.leases.take(ask.client, ask.id, limit.streams, Lease(expires, ask.gateway), now)
        return taken or now < self._places_known_at

    def _settled(self, client: str, limit: Limit, now: int) -> Bucket:
        bucket = self._buckets.get(client)
        if bucket is None:
            return Bucket(0, now)
        bucket.settle(limit.tpm, now)
        return bucket

    # ---- time and limits

    def retune(self, limits: Limits, now: int) -> None:
        """New limits from now on. What is used stays used; a key without a budget any more owes nothing."""
        for client in list(self._buckets):
            self._buckets[client].settle(self.limits.of(client).tpm, now)
            if not limits.of(client).tpm:
                del self._buckets[client]
        self.limits = limits

    def stood_still(self, passed_ms: int, now: int) -> None:
        """Nobody was heard for so long. Ends of what ran meanwhile are read one by one, later ones after them: until
        then requests that have ended hold places, so for a while none is refused for want of one.
        """
        self._places_known_at = now + max(CATCH_UP_MS, passed_ms)

    def sweep(self, now: int) -> None:
        """Forget what is over: expired leases, full buckets, old ids."""
        self.leases.sweep(now)
        self.charged.forget(now)
        self._ended.forget(now)
        self._refused.forget(now)
        self._let_through.forget(now)
        for client in list(self._buckets):
            bucket = self._buckets[client]
            bucket.settle(self.limits.of(client).tpm, now)
            if not bucket.used:
                del self._buckets[client]

    # ---- for the journal and for people

    def buckets(self) -> Iterator[tuple[str, Bucket]]:
        """Every key of which something is used."""
        return ((client, bucket) for client, bucket in self._buckets.items() if bucket.used)

    def restore(self, client: str, used: int, at: int) -> None:
        """A bucket as the journal has it."""
        if self.limits.of(client).tpm:
            self._buckets[client] = Bucket(used, at)

    def states(self, now: int) -> list[KeyState]:
        """Keys that are limited by name, owe something or run something."""
        running = self.leases.counts()
        names = {*self.limits.keys, *self._buckets, *running}
        return [self._state(name, running.get(name, 0), now) for name in sorted(names)]

    def _state(self, name: str, running: int, now: int) -> KeyState:
        limit = self.limits.of(name)
        bucket = self._settled(name, limit, now)
        balance, wait = (bucket.balance(limit.tpm), bucket.wait_ms(limit.tpm)) if limit.tpm else (0, 0)
        return KeyState(name, limit.tpm, balance, wait / 1000, limit.streams, running)
