"""Who may hold how many bytes: large bodies get their place one after another, small ones never wait for them.

Nothing here knows gRPC or a clock: the time is passed in, and a wait ends when a future does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from policy.config import MIB

PARKED_BYTES = 32 * MIB  # what waiting bodies of unknown length brought along before they turned out to be large
WAITING = 64  # uploads in the queue of one worker: each leaves a quarter of a MiB in gRPC's buffers
STALLED_S = 5.0  # a large upload that somebody waits for has to bring PROGRESS_BYTES in this time
PROGRESS_BYTES = MIB
SMALL_S = 15.0  # a small upload has to be over in this time once half of the place for small ones is taken


class NoRoom(Exception):
    """No place, and no use to wait longer."""


@dataclass(eq=False)
class Ticket:
    """One body's claim. `evicted` is done when its place is needed by others and it makes no progress."""

    room: Room
    since: float
    evicted: asyncio.Future[None]
    held: int = 0  # bytes received
    reserved: int = 0  # bytes of a large body's place; 0: it is small
    receiving: bool = True
    marked: int = 0
    marked_at: float = 0.0

    def grow(self, count: int) -> None:
        """Bytes have come in; NoRoom when they may not be held."""
        if not self.reserved and self.room.small_held + count > self.room.small:
            raise NoRoom("small")
        self.held += count
        self.room.count(self, count)

    async def enlarge(self, need: int, clock: Callable[[], float], wait_s: float) -> None:
        """Wait for a large body's place; first come, first served."""
        await self.room.admit(self, need, wait_s)
        self.marked, self.marked_at = self.held, clock()

    def complete(self) -> None:
        """All bytes are here: what was reserved beyond them is free again."""
        self.receiving = False
        if self.reserved:
            self.room.shrink(self)

    def release(self) -> None:
        """The body is gone. May be called twice."""
        self.room.forget(self)
        self.held = self.reserved = 0
        self.receiving = False


@dataclass(eq=False)
class Room:
    """The places of one worker."""

    small: int
    large: int
    small_held: int = 0
    parked: int = 0
    reserved: int = 0
    tickets: set[Ticket] = field(default_factory=set)
    queue: deque[tuple[Ticket, int, asyncio.Future[None]]] = field(default_factory=deque)

    @property
    def held(self) -> int:
        """Bytes of bodies in this worker."""
        return sum(ticket.held for ticket in self.tickets)

    @property
    def waiting(self) -> int:
        return len(self.queue)

    def ticket(self, now: float) -> Ticket:
        """A claim for a new body; small until it says otherwise."""
        made = Ticket(self, now, asyncio.get_running_loop().create_future())
        self.tickets.add(made)
        return made

    def count(self, ticket: Ticket, count: int) -> None:
        """Bytes of a small body; those of a large one lie in what it has reserved."""
        if not ticket.reserved:
            self.small_held += count

    async def admit(self, ticket: Ticket, need: int, wait_s: float) -> None:
        """Return when `need` bytes are reserved; the bytes that came before count as parked meanwhile."""
        full = len(self.queue) >= WAITING or self.parked + ticket.held > PARKED_BYTES
        if need > self.large or full:
            raise NoRoom("large")
        brought, turn = ticket.held, asyncio.get_running_loop().create_future()
        self.small_held -= brought
        self.parked += brought
        self.queue.append((ticket, need, turn))
        self._next()
        try:
            await asyncio.wait_for(turn, wait_s)
        except asyncio.TimeoutError:
            raise NoRoom("large") from None
        finally:
            self.parked -= brought
            if not ticket.reserved:  # it left, or waited too long: its bytes are small ones again until it is forgotten
                self.small_held += brought
                self.queue = deque(entry for entry in self.queue if entry[0] is not ticket)
                self._next()

    def _next(self) -> None:
        while self.queue and self.reserved + self.queue[0][1] <= self.large:
            ticket, need, turn = self.queue.popleft()
            if turn.done():  # it has given up
                continue
            ticket.reserved = need
            self.reserved += need
            turn.set_result(None)

    def shrink(self, ticket: Ticket) -> None:
        """Keep only what the complete body takes."""
        self.reserved -= ticket.reserved - ticket.held
        ticket.reserved = max(1, ticket.held)
        self._next()

    def forget(self, ticket: Ticket) -> None:
        """Give back what a ticket holds."""
        if ticket not in self.tickets:
            return
        self.tickets.discard(ticket)
        if ticket.reserved:
            self.reserved -= ticket.reserved
            self._next()
        else:
            self.small_held -= ticket.held

    def sweep(self, now: float) -> int:
        """Evict uploads that stand still while others need their place; how many."""
        evicted = [ticket for ticket in self.tickets if ticket.receiving and self._in_the_way(ticket, now)]
        for ticket in evicted:
            if not ticket.evicted.done():
                ticket.evicted.set_result(None)
        return len(evicted)

    def _in_the_way(self, ticket: Ticket, now: float) -> bool:
        if not ticket.reserved:
            return self.small_held > self.small // 2 and now - ticket.since > SMALL_S
        if not self.queue or now - ticket.marked_at < STALLED_S:
            return False
        moved = ticket.held - ticket.marked >= PROGRESS_BYTES
        ticket.marked, ticket.marked_at = ticket.held, now
        return not moved
