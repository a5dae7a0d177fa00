"""Replicas come, go, drain and die under load; what clients see of it is nothing."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable

import pytest

from tests.contract.gateway.harness import KEY, SOON_S, Gateway
from tests.eventually import eventually
from tests.load import Load, Target


def target(gateway: Gateway) -> Target:
    return Target(f"http://127.0.0.1:{gateway.port}/v1", KEY)


def used(gateway: Gateway, requests: int = 10) -> set[str]:
    """Which replicas answer now."""
    return {gateway.complete().headers["x-replica"] for _ in range(requests)}


def test_replicas_are_removed_added_and_drained_and_no_stream_is_cut(gateway: Gateway) -> None:
    # The least loaded is chosen, so a newcomer gets every request while the streams of the other run: it must get
    # some, and nobody else but `wanted` may. (To wait until both get some would be to wait until the streams end.)
    steps: list[tuple[list[int], list[int], set[str], set[str]]] = [
        ([0], [], {"engine-0"}, {"engine-0"}),
        ([0, 1], [], {"engine-0", "engine-1"}, {"engine-1"}),
        ([0, 1], [0], {"engine-1"}, {"engine-1"}),
        ([1], [], {"engine-1"}, {"engine-1"}),
        ([0, 1], [], {"engine-0", "engine-1"}, {"engine-0"}),
    ]
    with Load(target(gateway), streams=20, tokens=250, rate=30) as load:
        load.wait_until_streaming()
        assert all(replica.requests for replica in gateway.replicas)  # both carry streams (a burst is split by chance)
        for slots, draining, wanted, newcomers in steps:
            gateway.publish_replicas(slots, draining)
            eventually(lambda wanted=wanted: gateway.healthy() == wanted, SOON_S)
            eventually(lambda new=newcomers, wanted=wanted: new <= used(gateway) <= wanted, SOON_S)
    assert load.outcomes.streams == {"ok": 20}
    assert set(load.outcomes.requests) == {"ok"}


def test_ten_changes_in_a_row_lose_nothing_and_the_last_one_counts(gateway: Gateway) -> None:
    with Load(target(gateway), streams=20, tokens=150, rate=50) as load:
        load.wait_until_streaming()
        for number in range(10):
            gateway.publish_replicas([[0], [0, 1]][number % 2])
            eventually(lambda n=number: gateway.stat("cluster.vllm.membership_total") == 1 + n % 2, SOON_S)
    assert load.outcomes.streams == {"ok": 20}
    assert set(load.outcomes.requests) == {"ok"}
    eventually(lambda: gateway.healthy() == {"engine-0", "engine-1"}, SOON_S)


def test_a_gate_that_says_no_takes_its_replica_out_and_its_streams_end_whole(gateway: Gateway) -> None:
    with Load(target(gateway), streams=20, tokens=150, rate=30) as load:
        load.wait_until_streaming()
        gateway.replicas[0].set_ready(False)
        eventually(lambda: used(gateway) == {"engine-1"}, SOON_S)
    assert load.outcomes.streams == {"ok": 20}
    assert set(load.outcomes.requests) == {"ok"}


def test_no_request_reaches_a_replica_before_its_gate_says_ready(new_gateway: Callable[..., Gateway]) -> None:
    gateway = new_gateway(count=3)
    gateway.write()
    gateway.start_replicas(ready=False)
    gateway.replicas[0].set_ready(True)
    gateway.start(healthy=1)
    with Load(target(gateway), rate=100) as load:
        eventually(lambda: len(gateway.replicas[0].requests) > 50, SOON_S)
        gateway.publish_replicas([0, 1])  # removed and added again: still unknown until its gate has spoken
        gateway.publish_replicas([0, 1, 2])
        before = len(gateway.replicas[0].requests)
        eventually(lambda: len(gateway.replicas[0].requests) > before + 50, SOON_S)
        assert [len(replica.requests) for replica in gateway.replicas[1:]] == [0, 0]
        gateway.replicas[1].set_ready(True)
        eventually(lambda: len(gateway.replicas[1].requests) > 10, SOON_S)
    assert set(load.outcomes.requests) == {"ok"}
    assert {request["ready"] for replica in gateway.replicas for request in replica.requests} == {True}


@pytest.mark.parametrize("count", [2, 3])
def test_after_a_replica_is_killed_every_new_request_succeeds(new_gateway: Callable[..., Gateway], count: int) -> None:
    gateway = new_gateway(count=count)
    gateway.write()
    gateway.start_replicas()
    gateway.start()
    # Streams keep the others busy, so that the dead one has the fewest requests and would be chosen first.
    with Load(target(gateway), streams=20, tokens=200, rate=100) as load:
        load.wait_until_streaming()
        eventually(lambda: len(gateway.replicas[0].requests) > 50, SOON_S)
        gateway.replicas[0].kill()
        killed = time.time()
        eventually(lambda: len(gateway.healthy()) == count - 1, SOON_S)
        before = len(gateway.replicas[1].requests)
        eventually(lambda: len(gateway.replicas[1].requests) > before + 100, SOON_S)
    # What was in flight on it is lost and must not be run twice. Envoy learns of the death when it gets to run: on a
    # busy machine a few requests still meet a connection that has just ended.
    after = [(load.began + at - killed, words) for at, words in load.outcomes.failures if load.began + at > killed]
    assert [words for late_s, words in after if late_s > 1] == []
    assert len(after) <= 5, after


def test_with_two_of_three_killed_at_once_the_last_one_serves(new_gateway: Callable[..., Gateway]) -> None:
    gateway = new_gateway(count=3)
    gateway.write()
    gateway.start_replicas()
    gateway.start()
    for number in (0, 1):
        gateway.replicas[number].kill()
    answers = [gateway.complete() for _ in range(100)]
    assert {answer.status for answer in answers} == {200}
    assert {answer.headers["x-replica"] for answer in answers} == {"engine-2"}


def test_a_replica_that_comes_back_is_used_again(gateway: Gateway) -> None:
    gateway.replicas[0].kill()
    eventually(lambda: gateway.healthy() == {"engine-1"}, SOON_S)
    gateway.revive(0)
    eventually(lambda: used(gateway) == {"engine-0", "engine-1"}, SOON_S)


@pytest.mark.parametrize("name", ["eds.yaml", "rds.yaml", "cds.yaml", "lds.yaml", "sds.yaml"])
@pytest.mark.parametrize("how", ["no YAML", "unknown field"])
def test_a_broken_file_is_refused_and_the_last_good_one_serves(gateway: Gateway, name: str, how: str) -> None:
    good = (gateway.dynamic / name).read_text()
    first = good.index('"@type"') if '"@type"' in good else good.index("'@type'")
    end_of_line = good.index("\n", first)
    indent = " " * (first - good.rindex("\n", 0, first) - 1)
    broken = f"{good[:end_of_line]}\n{indent}no_such_field: 1{good[end_of_line:]}"
    warned = len(gateway.lines("envoy"))
    gateway.publish(name, "resources: [" if how == "no YAML" else broken)
    eventually(lambda: len(gateway.lines("envoy")) > warned, SOON_S)  # Envoy says why it refuses
    assert gateway.complete().status == 200
    assert gateway.ask("GET", "/nothing").status == 404
    gateway.publish(name, good)
    assert gateway.complete().status == 200


def newer_listeners(gateway: Gateway) -> str:
    """A listener file that differs in what a client sees."""
    return gateway.rendered()["lds.yaml"].replace("server_name: flashbox", "server_name: newer", 1)


def test_an_older_connection_closes_after_its_next_answer_so_that_new_rules_reach_everyone(gateway: Gateway) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    connection.request("GET", "/health")
    first = connection.getresponse()
    first.read()
    gateway.publish("lds.yaml", newer_listeners(gateway))
    eventually(lambda: gateway.complete().headers["server"] == "newer", SOON_S)
    connection.request("GET", "/health")
    assert (first.getheader("connection"), connection.getresponse().getheader("connection")) == (None, "close")
    connection.close()


def test_a_new_listener_file_counts_at_once_and_no_stream_is_cut(gateway: Gateway) -> None:
    with Load(target(gateway), streams=20, tokens=150, rate=30) as load:
        load.wait_until_streaming()
        gateway.publish("lds.yaml", newer_listeners(gateway))
        eventually(lambda: gateway.complete().headers["server"] == "newer", SOON_S)
    assert load.outcomes.streams == {"ok": 20}
    assert set(load.outcomes.requests) == {"ok"}
