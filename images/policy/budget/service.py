"""What the gateway asks and tells. Whatever goes wrong here is no refusal: no count is worth a request."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc

from budget.core import descriptors, lines
from budget.core.counts import Counts, Decision
from budget.core.descriptors import BadDescriptor, Check, Ended, Refused, Release
from budget.journal import Journal
from budget.ledger import Ledger
from budget.log import say
from budget.metrics import Metrics

OK = rls_pb2.RateLimitResponse.OK
SAY_AGAIN_S = 60.0


class Desk:
    """What happens with one message; synchronous, so that no two mix."""

    def __init__(self, counts: Counts, journal: Journal, ledger: Ledger, metrics: Metrics) -> None:
        self._counts, self._journal, self._ledger, self._metrics = counts, journal, ledger, metrics
        self._refused: Counter[tuple[str, str, str, str]] = Counter()
        self._said = 0.0

    def hear(self, message: Any, now: int, wall_s: float) -> None:
        """One call of the gateway."""
        for descriptor in message.descriptors:
            try:
                said = descriptors.read({entry.key: entry.value for entry in descriptor.entries})
            except BadDescriptor as error:
                self._bad(str(error))
                continue
            if isinstance(said, Refused):
                self._refuse(said.client, said.key_id, said.path, said.reason)
            elif isinstance(said, Release):
                self._counts.release(said, now)
            elif isinstance(said, Ended):
                self._charge(said, now, wall_s)

    def check(self, ask: Check, now: int) -> Decision:
        """May this request go on?"""
        begun = time.perf_counter()
        decision = self._counts.check(ask, now)
        self._metrics.checks.labels(ask.client, _word(decision)).inc()
        if decision.refused:
            self._refuse(ask.client, ask.key_id, ask.path, decision.refused)
        self._metrics.check_seconds.observe(time.perf_counter() - begun)
        return decision

    def _refuse(self, key: str, key_id: str, path: str, why: str) -> None:
        self._metrics.refused(key)
        self._refused[key, key_id, path, why] += 1

    def _charge(self, ended: Ended, now: int, wall_s: float) -> None:
        """Into the journal first: from there the ledger can be made whole, not the other way round."""
        if not ended.total and self._counts.was_refused(ended.id):
            return  # counted already. One with tokens passed all the same: the answer to its check came too late
        if ended.flawed:
            self._bad("a figure of a charge is not a number")
        line = lines.ended(ended, wall_s)
        owed = self._counts.owed(ended.id, ended.total)
        if not self._counts.charge(ended.client, ended.id, owed, line, now):
            self._metrics.repeated.inc()
            return
        self._journal.charged(now, owed, line)
        self._ledger.add(line)
        self._metrics.ended(ended)

    def note_refused(self, wall_s: float) -> None:
        """One line for all refusals of a kind since the last time: a client that insists fills no disk."""
        for who, number in self._refused.items():
            self._ledger.add(lines.refused(who, number, wall_s))
        self._refused.clear()

    def _bad(self, why: str) -> None:
        self._metrics.bad.inc()
        if time.monotonic() - self._said > SAY_AGAIN_S:
            self._said = time.monotonic()
            say("descriptor not understood", error=why)


def _word(decision: Decision) -> str:
    return decision.refused or (f"would_{decision.would}" if decision.would else "admitted")


class BudgetService(rls_pb2_grpc.RateLimitServiceServicer):  # type: ignore[misc]
    """Envoy's rate limit service, which is told what has ended."""

    def __init__(self, desk: Desk, now: Callable[[], int]) -> None:
        self._desk, self._now = desk, now

    async def ShouldRateLimit(self, message: Any, context: Any) -> Any:
        """One call."""
        try:
            self._desk.hear(message, self._now(), time.time())
        except Exception as error:  # noqa: BLE001 - an error here would be the client's, or be repeated for a minute
            say("call failed", error=f"{type(error).__name__}: {error}")
        return rls_pb2.RateLimitResponse(overall_code=OK)
