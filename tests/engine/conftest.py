"""Fixtures of the tests against real vLLM: its image, real servers, the stand-ins beside them.

`make test-engine` sets FLASHBOX_ENGINE; without it nothing is collected here, as the image takes minutes to build.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.stub import conftest as stand_ins
from tests.contract.stub.process import Stub
from tests.engine import stacks
from tests.engine.real import SERVERS, Real, image
from tests.integration.stack import Stack

ROOT = Path(__file__).parents[2]
collect_ignore_glob = [] if os.environ.get("FLASHBOX_ENGINE") else ["test_*.py"]
COMPARED: Counter[str] = Counter()  # what was held against the real server, for the last line of the run
Started = Callable[[str], Any]


@pytest.fixture(scope="session")
def engine_image() -> str:
    """The image of kind cpu, built by ctl.py if it is not there."""
    subprocess.run([sys.executable, "ctl.py", "images", "build", "engine-cpu"], cwd=ROOT, check=True, timeout=1800)
    return image()


@pytest.fixture(scope="session")
def real_servers(engine_image: str) -> Iterator[Started]:
    """Real servers by their letters in the recordings, each started when it is first asked for."""
    started: dict[str, Real] = {}

    def server(letter: str) -> Real:
        if letter not in started:
            started[letter] = Real(SERVERS[letter], wait=False)
            started[letter].wait()
        return started[letter]

    yield server
    for real in started.values():
        real.close()


@pytest.fixture(scope="session")
def stand_in_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """Stand-ins for the same servers."""
    started: dict[str, Stub] = {}
    folder = tmp_path_factory.mktemp("stand-ins")

    def server(letter: str) -> Stub:
        if letter not in started:
            started[letter] = Stub(folder / f"{letter}.log", stand_ins.SERVERS[letter])
        return started[letter]

    yield server
    for stub in started.values():
        stub.close()


@pytest.fixture
def start_real(engine_image: str) -> Iterator[Callable[..., Real]]:
    """Real servers with flags of the test's choice; gone with the test."""
    started: list[Real] = []

    def start(flags: str, wait: bool = True) -> Real:
        started.append(Real(flags, wait=False))
        if wait:
            started[-1].wait()
        return started[-1]

    yield start
    for real in started:
        real.close()


start_stub = stand_ins.start_stub


@pytest.fixture(scope="session")
def vllm(engine_image: str) -> Iterator[Stack]:
    """The whole stack on real vLLM."""
    with stacks.on_vllm() as stack:
        yield stack


@pytest.fixture(scope="session")
def stand_in(engine_image: str) -> Iterator[Stack]:
    """The whole stack on the stand-in."""
    with stacks.on_the_stand_in() as stack:
        yield stack


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How much was compared; no number without what it counts."""
    for what, count in sorted(COMPARED.items()):
        terminalreporter.write_line(f"compared {count:5d} {what}")
