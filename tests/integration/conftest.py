"""Fixtures of the integration tests: real Docker, real Compose, real Envoy, the stand-in engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.stack import Stack, docker, new_stack, remove_stale_stacks


@pytest.fixture(scope="session", autouse=True)
def _docker_answers() -> None:
    """Without an engine these tests fail, with Docker's own words; they are never skipped."""
    docker("version", "--format", "{{.Server.Version}}")
    remove_stale_stacks()


@pytest.fixture(scope="session")
def running() -> Iterator[Stack]:
    """A stack of two replicas, started once; tests that use it leave it whole."""
    with new_stack("shared") as stack:
        stack.settings(engine__max_num_seqs=64, engine__drain_s=60, gateway__drain_s=60, stub__decode_tokens_per_s=20)
        stack.up()
        stack.target()
        yield stack


@pytest.fixture
def stack(running: Stack) -> Stack:
    """The shared stack, with both replicas healthy in Envoy before the test begins."""
    running.wait_ready(2)
    return running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    """A failed test leaves a folder with rendered files, states, logs and Envoy's view."""
    report = yield
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, Stack) and value.root.exists():
                into = Path("/tmp/flashbox-evidence") / item.name
                value.evidence(into)
                report.sections.append(("evidence", str(into)))
    return report
