"""Replicas die without notice; only what ran on them is lost, and nothing is run twice."""

from __future__ import annotations

import re

import pytest

from tests.counts import counts
from tests.eventually import eventually
from tests.integration.stack import Stack, docker
from tests.load import Load

RATE = 100


def served(stack: Stack) -> int:
    """Generations that both stand-ins have begun, by their own metrics, since they started."""
    total = 0
    for slot in range(2):
        page = docker(
            "exec", stack.container(f"engine-{slot}"), "python3", "-c",
            "import urllib.request;print(urllib.request.urlopen('http://127.0.0.1:8000/metrics').read().decode())",
        )  # fmt: skip
        total += sum(float(v) for v in re.findall(r"^vllm:request_success_total{[^}]*} ([0-9.e+]+)$", page, re.M))
    return int(total)


def kill_server(stack: Stack) -> None:
    """SIGKILL to the server under the gate of engine-1."""
    pid = stack.gate("engine-1")["pid"]
    docker("exec", stack.container("engine-1"), "python3", "-c", f"import os,signal; os.kill({pid}, signal.SIGKILL)")


def kill_container(stack: Stack) -> None:
    """SIGKILL to the whole container: its address is gone, so connects time out instead of being refused."""
    docker("kill", stack.container("engine-1"))


@pytest.mark.parametrize("round_", range(counts(2, 10)))
@pytest.mark.parametrize("kill", [kill_server, kill_container])
def test_requests_sent_after_a_death_succeed(stack: Stack, kill, round_: int) -> None:  # type: ignore[no-untyped-def]
    with Load(stack.target(), rate=RATE) as load:
        eventually(lambda: len(load.outcomes.started) > 100, 30)
        kill(stack)
        killed_at = max(load.outcomes.started)
        eventually(lambda: len(load.outcomes.started) > 100 and max(load.outcomes.started) > killed_at + 6, 30)
    # A request needs 50 ms; what was sent before the death may have been in flight on the dead replica.
    later = [(at, words) for at, words in load.outcomes.failures if at > killed_at + 0.2]
    assert not later, later[:5]
    assert len(load.outcomes.failures) <= 20, load.outcomes.failures
    docker("start", stack.container("engine-1"))
    stack.wait_ready(2)


def test_a_request_is_never_run_twice(stack: Stack) -> None:
    """Requests that clients sent, and generations that replicas began, agree when no replica dies."""
    before = served(stack)
    with Load(stack.target(), rate=RATE) as load:
        eventually(lambda: len(load.outcomes.started) > counts(300, 2000), 60)
    assert set(load.outcomes.requests) == {"ok"}
    assert served(stack) - before == sum(load.outcomes.requests.values())
