"""Gates for the tests of this folder; each is ended by its own pid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.gate.process import GateProcess


@pytest.fixture
def new_gate(tmp_path: Path) -> Iterator[Callable[[str], GateProcess]]:
    """Make gates that are not started yet."""
    made: list[GateProcess] = []

    def make(name: str) -> GateProcess:
        made.append(GateProcess(tmp_path / name, name))
        return made[-1]

    yield make
    for gate in made:
        gate.end()


@pytest.fixture
def gate(new_gate: Callable[[str], GateProcess]) -> GateProcess:
    """One gate that is not started yet."""
    return new_gate("engine-0")
