"""Streams in flight live through every change that an operator makes on purpose."""

from __future__ import annotations

import pytest
import requests

from control.adapters import files
from control.core import endpoints
from control.core.model import Replica
from tests.counts import counts
from tests.eventually import eventually
from tests.integration.stack import Stack, docker
from tests.load import Load

STREAMS = 20
TOKENS = 120  # at 20 tokens/s: six seconds


def replicas_of(stack: Stack) -> list[Replica]:
    """The replicas as Docker has them."""
    found = []
    for slot in range(2):
        template = f'{{{{(index .NetworkSettings.Networks "{stack.project}_engine").IPAddress}}}}'
        found.append(Replica(slot, docker("inspect", "--format", template, stack.container(f"engine-{slot}"))))
    return found


def publish_endpoints(stack: Stack, draining: set[str]) -> None:
    files.publish(stack.root / "run/envoy/dynamic/eds.yaml", endpoints.eds(replicas_of(stack), draining))


def assert_nothing_was_cut(load: Load) -> None:
    assert dict(load.outcomes.streams) == {"ok": load.streams}
    assert set(load.outcomes.requests) <= {"ok"}, load.outcomes.failures[:5]


def test_a_key_is_added_and_revoked_under_streams(stack: Stack) -> None:
    with Load(stack.target(), STREAMS, TOKENS, rate=20) as load:
        load.wait_until_streaming()
        key = stack.add_key("late")
        headers = {"authorization": f"Bearer {key}"}
        eventually(lambda: requests.get(f"{load.target.url}/models", headers=headers, timeout=5).ok, 10)
        stack.must("keys", "revoke", "late")
        eventually(lambda: requests.get(f"{load.target.url}/models", headers=headers, timeout=5).status_code == 401, 10)
    assert_nothing_was_cut(load)


def test_a_replica_is_drained_out_of_the_endpoints_and_put_back(stack: Stack) -> None:
    with Load(stack.target(), STREAMS, TOKENS, rate=20) as load:
        load.wait_until_streaming()
        publish_endpoints(stack, {"engine-1"})
        eventually(lambda: len(stack.healthy_endpoints()) == 1, 10)
        publish_endpoints(stack, set())
        eventually(lambda: len(stack.healthy_endpoints()) == 2, 10)
    assert_nothing_was_cut(load)


@pytest.mark.parametrize("round_", range(counts(1, 5)))
def test_a_replica_gets_a_bare_docker_stop(stack: Stack, round_: int) -> None:
    with Load(stack.target(), STREAMS, TOKENS, rate=50) as load:
        load.wait_until_streaming()
        docker("stop", stack.container("engine-1"))
        docker("start", stack.container("engine-1"))
        stack.wait_ready(2)
    assert_nothing_was_cut(load)


def test_a_rolling_restart_of_the_replicas_cuts_nothing(stack: Stack) -> None:
    with Load(stack.target(), STREAMS, TOKENS, rate=20) as load:
        load.wait_until_streaming()
        stack.must("restart")
    assert_nothing_was_cut(load)


@pytest.mark.parametrize("round_", range(counts(1, 5)))
def test_the_gateway_stops_gracefully(stack: Stack, round_: int) -> None:
    """New requests are told to come back later; those in flight end whole."""
    with Load(stack.target(), STREAMS, TOKENS) as load:
        load.wait_until_streaming()
        stop = stack.start("stop")
        base = load.target.url.removesuffix("/v1")
        (refused,) = eventually(lambda: _refusals(load.target.url, load.target.headers), 10)
        assert refused.headers["retry-after"]
        assert refused.json()["error"]["code"] == "gateway_draining"
        assert requests.get(f"{base}/health", timeout=5).status_code == 503
        out, _ = stop.communicate(timeout=120)
        assert stop.returncode == 0, out
    assert dict(load.outcomes.streams) == {"ok": STREAMS}
    assert (
        docker("inspect", "--format", "{{.State.Status}} {{.State.ExitCode}}", stack.container("gateway")) == "exited 0"
    )
    stack.up()


def _refusals(url: str, headers: dict[str, str]) -> list[requests.Response]:
    answer = requests.get(f"{url}/models", headers=headers, timeout=5)
    return [answer] if answer.status_code == 503 else []
