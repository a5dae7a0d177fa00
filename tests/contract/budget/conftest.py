"""A counting service, alone or behind Envoy with a fake replica."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.budget.gateway import Gateway
from tests.contract.budget.process import Budget
from tests.contract.budget.replica import Replica


@pytest.fixture
def budget(tmp_path: Path) -> Iterator[Budget]:
    service = Budget(tmp_path)
    service.limit(few={"streams": 4}, debt={"tpm": 6000})
    service.start()
    yield service
    service.end()


@pytest.fixture
def replica() -> Iterator[Replica]:
    fake = Replica()
    yield fake
    fake.close()


@pytest.fixture
def gateway(tmp_path: Path, budget: Budget, replica: Replica) -> Iterator[Gateway]:
    envoy = Gateway(tmp_path, replica.port, budget.port, budget.checks)
    envoy.start()
    yield envoy
    envoy.end()
