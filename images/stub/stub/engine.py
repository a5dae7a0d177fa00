"""The queue model: some sequences run, the others wait; prompts are read in turn, tokens come at a set pace."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import deque
from typing import Protocol

SLACK_S = 0.001  # what is due within this time is done in the same step
LONGEST_CATCH_UP_S = 0.25  # a step that comes later than this slows the streams down instead of bursting


class Watcher(Protocol):
    """Who wants to know what the engine does (the metrics)."""

    def first_token(self, sequence: Sequence, now: float) -> None: ...

    def later_tokens(self, count: int, interval_s: float) -> None: ...

    def step(self, tokens: int) -> None: ...

    def finished(self, sequence: Sequence, now: float) -> None: ...


class EngineDead(Exception):
    """The engine ended under a request."""


class Gone(Exception):
    """The client of a request went away, so nobody waits for it any more."""


class Aborted(Exception):
    """The server cuts the answer here and ends it in good form."""


class Sequence:
    """One answer being made: how long its prompt and itself are, and how far it is."""

    __slots__ = (
        "arrived", "finish_reason", "first", "last", "length", "max_tokens", "over", "produced", "prompt_tokens",
        "scheduled", "waiter", "wanted",
    )  # fmt: skip

    def __init__(self, prompt_tokens: int, length: int, max_tokens: int, finish_reason: str) -> None:
        self.prompt_tokens = prompt_tokens
        self.length = length  # tokens it will have, end-of-text included
        self.max_tokens = max_tokens
        self.finish_reason = finish_reason
        self.arrived = self.scheduled = self.first = self.last = 0.0
        self.produced = 0
        self.over: type[Exception] | None = None  # why there will be no more tokens
        self.wanted = 0
        self.waiter: asyncio.Future[None] | None = None

    async def reach(self, count: int) -> None:
        """Wait until `count` tokens are there; EngineDead or Gone if they never will be."""
        while self.produced < count:
            if self.over:
                raise self.over
            self.wanted = count
            self.waiter = asyncio.get_running_loop().create_future()
            await self.waiter

    def wake(self) -> None:
        """Let `reach` look again if what it waits for may be there."""
        if self.waiter and (self.over or self.produced >= self.wanted) and not self.waiter.done():
            self.waiter.set_result(None)


class Engine:
    """One scheduler for all sequences; it costs one timer, however many there are."""

    def __init__(self, max_num_seqs: int, prefill_per_s: float, decode_per_s: float, watcher: Watcher) -> None:
        self._max_num_seqs = max_num_seqs
        self._prefill_per_s = prefill_per_s
        self._interval_s = 1 / decode_per_s
        self._watcher = watcher
        self.waiting: dict[Sequence, None] = {}  # ordered, and quick to leave
        self.running: dict[Sequence, None] = {}
        self.dead = False
        self.frozen = False
        self.stall_s = 0.0  # what the first prompt of each class of length costs everybody
        self._classes_seen: set[int] = set()
        self._paused_until = 0.0
        self._unread: deque[Sequence] = deque()
        self._reading: Sequence | None = None
        self._due: list[tuple[float, int, Sequence]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def submit(self, sequence: Sequence) -> None:
        """Put a sequence in the queue; it starts at once if there is room."""
        if self.dead:
            raise EngineDead
        sequence.arrived = time.monotonic()
        self.waiting[sequence] = None
        self._admit(sequence.arrived)
        self._arm()

    def cancel(self, sequence: Sequence) -> None:
        """Forget a sequence wherever it is (its client went away); nothing counts it."""
        sequence.over = Gone
        sequence.wake()
        self.waiting.pop(sequence, None)
        if sequence in self.running:
            self._leave(sequence, time.monotonic())
            self._arm()

    def freeze(self, frozen: bool) -> None:
        """Stop all tokens (a hung worker), or let them come again."""
        if self.frozen and not frozen:
            self._paused_until = time.monotonic()  # the time that was lost is not made up for
        self.frozen = frozen
        self._arm()

    def stall_new_shapes(self, seconds: float) -> None:
        """From now on the first prompt of each class of length stops everybody for so long (0: no more)."""
        self.stall_s = seconds
        self._classes_seen.clear()

    def die(self) -> None:
        """Fail everything that is there and everything that comes."""
        self._end_all(EngineDead)

    def abort(self) -> None:
        """Cut every answer where it is; nothing comes after that."""
        self._end_all(Aborted)

    def _end_all(self, why: type[Exception]) -> None:
        self.dead = True
        for sequence in [*self.running, *self.waiting]:
            sequence.over = why
            sequence.wake()
        self.waiting.clear()
        self.running.clear()
        self._unread.clear()
        self._due.clear()

    def tokens_held(self) -> int:
        """Tokens whose keys and values a real engine would hold now."""
        return sum(sequence.prompt_tokens + sequence.produced for sequence in self.running)

    def _admit(self, now: float) -> None:
        while self.waiting and len(self.running) < self._max_num_seqs:
            sequence = next(iter(self.waiting))
            del self.waiting[sequence]
            sequence.scheduled = now
            self.running[sequence] = None
            self._unread.append(sequence)
        self._read_next(now)

    def _read_next(self, now: float) -> None:
        while self._reading is None and self._unread:
            sequence = self._unread.popleft()
            if sequence in self.running:
                self._reading = sequence
                self._push(now + self._stall(sequence, now) + sequence.prompt_tokens / self._prefill_per_s, sequence)

    def _stall(self, sequence: Sequence, now: float) -> float:
        length_class = sequence.prompt_tokens.bit_length()  # up to 1, 3, 7, 15 ... tokens
        if not self.stall_s or length_class in self._classes_seen:
            return 0.0
        self._classes_seen.add(length_class)
        self._paused_until = now + self.stall_s
        return self.stall_s

    def _leave(self, sequence: Sequence, now: float) -> None:
        del self.running[sequence]
        if self._reading is sequence:
            self._reading = None
        self._admit(now)

    def _push(self, due: float, sequence: Sequence) -> None:
        self._count += 1
        heapq.heappush(self._due, (due, self._count, sequence))

    def _arm(self) -> None:
        """Set the one timer to the earliest moment at which something is due."""
        if not self._due or self.frozen:
            return
        due = max(self._due[0][0], self._paused_until)
        if self._timer and self._timer_at <= due:
            return
        if self._timer:
            self._timer.cancel()
        self._timer_at = due
        self._timer = asyncio.get_running_loop().call_later(max(0.0, due - time.monotonic()), self._step)

    def _step(self) -> None:
        self._timer = None
        now = time.monotonic()
        tokens = 0
        if self.frozen or now < self._paused_until - SLACK_S:
            self._arm()
            return
        while self._due and self._due[0][0] <= now + SLACK_S:
            due, _, sequence = heapq.heappop(self._due)
            if sequence in self.running:
                tokens += self._produce(sequence, max(due, now - LONGEST_CATCH_UP_S, self._paused_until), now)
        if tokens:
            self._watcher.step(tokens)
        self._arm()

    def _produce(self, sequence: Sequence, due: float, now: float) -> int:
        if not sequence.produced:
            made = 1
            sequence.first = now
            self._watcher.first_token(sequence, now)
            self._reading = None
            self._read_next(due)  # from when it was due, so that a late timer does not slow the reading down
        else:
            late = max(0.0, now - due)
            made = min(1 + int(late / self._interval_s), sequence.length - sequence.produced)
            self._watcher.later_tokens(made, (now - sequence.last) / made)
        sequence.produced += made
        sequence.last = now
        if sequence.produced >= sequence.length:
            self._watcher.finished(sequence, now)
            self._leave(sequence, now)
        else:
            self._push(due + made * self._interval_s, sequence)
        sequence.wake()
        return made
