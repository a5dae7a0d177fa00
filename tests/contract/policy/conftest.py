"""Services for tests; each is ended with the test or module that started it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.policy.process import Policy, rules
from tests.contract.stub.conftest import recorded_server, servers

__all__ = ["recorded_server", "servers"]  # fixtures

StartPolicy = Callable[..., Policy]


@pytest.fixture
def start_policy(tmp_path: Path) -> Iterator[StartPolicy]:
    """Start services with rules and settings of the test's choice."""
    started: list[Policy] = []

    def start(given: dict[str, Any] | None = None, wait: bool = True, **environment: object) -> Policy:
        service = Policy(tmp_path / f"policy-{len(started)}", rules() if given is None else given, **environment)
        started.append(service)
        return service.wait_ready() if wait else service

    yield start
    for service in started:
        service.close()


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Policy]:
    """A service with the usual rules, for tests that leave it as it was."""
    service = Policy(tmp_path_factory.mktemp("policy"), rules())
    try:
        yield service.wait_ready()
    finally:
        service.close()
