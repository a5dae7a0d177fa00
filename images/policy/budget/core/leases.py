"""Which requests of which key run now. A lease is taken when a request is admitted and given back when it ends.

A lease that is never given back, since its gateway died or a message was lost, goes with the gateway's next boot id or
at its expiry. Times are in milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BOOTS_KEPT = 16


@dataclass(slots=True)
class Lease:
    """One running request."""

    expires: int
    gateway: str


@dataclass(slots=True)
class Boots:
    """The boot id that each gateway has now, and those that are over."""

    current: dict[str, str] = field(default_factory=dict)
    over: dict[tuple[str, str], None] = field(default_factory=dict)

    def started(self, gateway: str, boot: str) -> bool:
        """Whether this message is the first of a gateway that was started again."""
        before = self.current.get(gateway)
        if before == boot or (gateway, boot) in self.over:
            return False
        self.current[gateway] = boot
        if before is None:
            return False
        self.over[gateway, before] = None
        while len(self.over) > BOOTS_KEPT:
            self.over.pop(next(iter(self.over)))
        return True


class Leases:
    """All running requests."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, Lease]] = {}
        self._boots = Boots()

    def take(self, client: str, request: str, most: int, lease: Lease, now: int) -> bool:
        """A place for this request; False if `most` places are taken. The same request takes one place."""
        held = self._held.setdefault(client, {})
        mine = held.get(request)
        if mine is not None and mine.expires > now:
            return True
        if len(held) >= most:
            _expire(held, now)
        if len(held) >= most:
            return False
        held[request] = lease
        return True

    def give_back(self, client: str, request: str) -> None:
        """The request has ended. One that is not known was refused, or is from before a restart."""
        held = self._held.get(client)
        if held is not None:
            held.pop(request, None)
            if not held:
                del self._held[client]

    def seen(self, gateway: str, boot: str) -> bool:
        """Forget what a gateway held before it was started anew; False for a message of a gateway that is gone."""
        if self._boots.started(gateway, boot):
            for client in list(self._held):
                for request in [one for one, lease in self._held[client].items() if lease.gateway == gateway]:
                    self.give_back(client, request)
        return (gateway, boot) not in self._boots.over

    def sweep(self, now: int) -> None:
        """Drop what has expired."""
        for client in list(self._held):
            _expire(self._held[client], now)
            if not self._held[client]:
                del self._held[client]

    def clear(self) -> int:
        """Forget all of them; their number."""
        number = sum(map(len, self._held.values()))
        self._held.clear()
        return number

    def counts(self) -> dict[str, int]:
        """Running requests by key; keys without one are left out."""
        return {client: len(held) for client, held in self._held.items()}

    def of(self, client: str) -> int:
        """Running requests of one key."""
        return len(self._held.get(client, ()))


def _expire(held: dict[str, Lease], now: int) -> None:
    for request in [one for one, lease in held.items() if lease.expires <= now]:
        del held[request]
