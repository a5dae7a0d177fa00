"""Gateways for the tests of this folder; each is ended by its own pid, and a failing test shows its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.gateway import counting, policy_pair
from tests.contract.gateway.harness import Gateway, gateway_settings


@pytest.fixture(scope="session", autouse=True)
def _shared_services_end() -> Iterator[None]:
    yield
    policy_pair.end_shared()
    counting.end_shared()


@pytest.fixture
def new_gateway(tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    """Make gateways that are not started yet; keyword arguments are settings of `gateway`."""
    made: list[Gateway] = []

    def make(count: int = 2, drain_s: float = 60.0, **settings: Any) -> Gateway:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        # Envoy's socket path has a limit of 107 bytes, and pytest's folders are long.
        chosen = gateway_settings(**settings)
        made.append(Gateway(folder, chosen, count=count, drain_s=drain_s))
        return made[-1]

    yield make
    for gateway in made:
        gateway.end()
        if gateway.log.exists():
            print(f"--- log of {gateway.folder}\n{gateway.log.read_text()}")


@pytest.fixture
def gateway(new_gateway: Callable[..., Gateway]) -> Gateway:
    """A gateway that serves with two ready replicas."""
    made = new_gateway()
    made.write()
    made.start_replicas()
    made.start()
    return made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with two ready replicas for tests that change nothing; body limit 1 MiB."""
    made = Gateway(tmp_path_factory.mktemp("gateway"), gateway_settings(max_body_mib=1))
    with made.serving():
        yield made
