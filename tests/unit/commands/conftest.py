"""An operator at a clean clone, a gateway that listens, and no waiting between looks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from control.adapters import image_builder
from control.steps import ready, replicas
from tests.unit.world import Operator, World, gateway


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operator]:
    for module in (ready, replicas):
        monkeypatch.setattr(module, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(image_builder, "build_all", lambda *_: [])
    with gateway() as (address, asked):
        world = World(address=address)
        world.asked = asked  # type: ignore[attr-defined]
        yield Operator(tmp_path, world)
