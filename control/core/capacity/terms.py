"""The named terms of a sum, so that the arithmetic is data: it can be printed, compared and added up again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

GIB = 2**30
MIB = 2**20
Basis = Literal["host", "setting", "computed", "measured", "allowance"]


@dataclass(frozen=True)
class Term:
    """One addend in bytes, where it comes from, and how it was found."""

    name: str
    bytes: int
    basis: Basis
    how: str

    @property
    def gib(self) -> float:
        return self.bytes / GIB


def total(terms: Iterable[Term]) -> int:
    """The sum in bytes."""
    return sum(term.bytes for term in terms)
