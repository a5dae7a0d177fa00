"""A token bucket that may owe: what a key used and has not yet been given back by time.

Whole numbers only, so that a replay of the journal ends in exactly the state that was lost. Time is in milliseconds.
A key's budget of N tokens per minute gives back N units per millisecond: a token is UNIT units.
"""

from __future__ import annotations

from dataclasses import dataclass

UNIT = 60_000


@dataclass(slots=True)
class Bucket:
    """What is used, in units, as of a moment. Nothing used is a full bucket, whatever the budget."""

    used: int = 0
    at: int = 0

    def settle(self, tpm: int, now: int) -> None:
        """Give back what the time until `now` brings. A clock that goes back brings nothing and takes nothing."""
        if now > self.at:
            self.used = max(0, self.used - (now - self.at) * tpm)
            self.at = now

    def take(self, tokens: int, tpm: int, now: int) -> None:
        """Charge what a request really used, below zero if need be."""
        self.settle(tpm, now)
        self.used += max(0, tokens) * UNIT

    def balance(self, tpm: int) -> int:
        """Whole tokens that are left; negative is debt."""
        return (tpm * UNIT - self.used) // UNIT

    def empty(self, tpm: int) -> bool:
        """Whether new requests are refused: nothing is left, not even a part of a token."""
        return self.used >= tpm * UNIT

    def wait_ms(self, tpm: int) -> int:
        """Time until requests are admitted again; 0 if they are."""
        return (self.used - tpm * UNIT) // tpm + 1 if self.empty(tpm) else 0

    def full_in_ms(self, tpm: int) -> int:
        """Time until nothing is used any more."""
        return -(-self.used // tpm)
