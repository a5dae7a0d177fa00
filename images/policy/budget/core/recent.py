"""What happened lately, by request id: long enough that no repeated message finds it forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

KEPT_MS = 180_000  # the gateway repeats for 60 s; a message that was on its way may come later still
MOST = 200_000

T = TypeVar("T")


class Recent(Generic[T]):
    """Facts by request id, the oldest first, for KEPT_MS."""

    def __init__(self, kept_ms: int = KEPT_MS, most: int = MOST) -> None:
        self._kept_ms, self._most = kept_ms, most
        self._facts: dict[str, tuple[int, T]] = {}

    def __contains__(self, request: str) -> bool:
        return request in self._facts

    def __len__(self) -> int:
        return len(self._facts)

    def add(self, request: str, fact: T, now: int) -> None:
        """Remember; the first fact of an id stays."""
        self._facts.setdefault(request, (now, fact))
        if len(self._facts) > self._most:
            del self._facts[next(iter(self._facts))]

    def discard(self, request: str) -> bool:
        """Forget one; whether it was known."""
        return self._facts.pop(request, None) is not None

    def forget(self, now: int) -> None:
        """Drop what is too old."""
        while self._facts:
            oldest = next(iter(self._facts))
            if now - self._facts[oldest][0] <= self._kept_ms:
                return
            del self._facts[oldest]

    def __iter__(self) -> Iterator[tuple[int, T]]:
        return iter(self._facts.values())
