"""Turns of one conversation go to one replica; what is hot, gone or without a name goes elsewhere."""

from __future__ import annotations

import http.client
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.gateway.harness import CHAT, KEY, SOON_S, Answer, Gateway
from tests.contract.gateway.judged import judged
from tests.counts import counts
from tests.eventually import eventually

CONVERSATIONS, TURNS = 40, 3
REPLICAS = {"engine-0", "engine-1"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Two replicas, and the default of that."""
    with judged(tmp_path_factory.mktemp("affinity"), count=2) as made:
        yield made


def turn(number: int, turns: int = 1, **more: Any) -> dict[str, Any]:
    """A request of conversation `number` that has had so many turns."""
    said = [{"role": "system", "content": "You are helpful."}]
    for at in range(turns):
        said += [{"role": "user", "content": f"{number}: question {at}"}, {"role": "assistant", "content": f"{at}"}]
    return {"model": "m", "messages": said[:-1], "max_tokens": 1, **more}


def ask(gateway: Gateway, content: object, **headers: str) -> Answer:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return gateway.ask("POST", CHAT, content, headers={"content-type": "application/json", **sent})


def homes(gateway: Gateway, numbers: range, turns: int = 1) -> dict[int, str]:
    """Where each conversation is answered now."""
    return {number: ask(gateway, turn(number, turns)).headers["x-replica"] for number in numbers}


class Held:
    """A request that runs until it is let go."""

    def __init__(self, gateway: Gateway, content: dict[str, Any]) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        held = json.dumps({**content, "stream": True, "act": "stall", "max_tokens": 2})
        self._connection.request("POST", CHAT, held, headers)
        self._answer = self._connection.getresponse()
        self.replica = self._answer.headers["x-replica"]

    def close(self) -> None:
        """Leave."""
        self._answer.close()
        self._connection.close()


def quiet(gateway: Gateway) -> None:
    """Nothing runs on a replica."""
    eventually(lambda: gateway.stat("cluster.vllm.upstream_rq_active") == 0, SOON_S)


def test_every_turn_of_a_conversation_is_answered_by_its_own_replica(gateway: Gateway) -> None:
    numbers = range(CONVERSATIONS)
    first = homes(gateway, numbers)
    for turns in range(2, TURNS + 1):
        assert homes(gateway, numbers, turns) == first
    spread = Counter(first.values())
    assert spread.keys() == REPLICAS and min(spread.values()) >= CONVERSATIONS // 5, "and both have some"


def test_a_hot_prefix_sheds_to_the_other_replica_and_comes_home(gateway: Gateway) -> None:
    home = ask(gateway, turn(7)).headers["x-replica"]
    held = [Held(gateway, turn(7)) for _ in range(16)]
    carried = Counter(one.replica for one in held)
    for one in held:
        one.close()
    quiet(gateway)
    assert held[0].replica == held[1].replica == home, "two at once are not hot"
    assert carried.keys() == REPLICAS and carried[home] > 8, carried
    assert ask(gateway, turn(7, 2)).headers["x-replica"] == home


def test_a_client_cannot_choose_its_replica_and_replicas_learn_the_name_of_the_gateway(gateway: Gateway) -> None:
    before = [len(replica.requests) for replica in gateway.replicas]
    answered = {ask(gateway, turn(3), x_flashbox_affinity=f"mine-{n}").headers["x-replica"] for n in range(12)}
    assert len(answered) == 1
    seen = [request for replica, n in zip(gateway.replicas, before, strict=True) for request in replica.requests[n:]]
    names = {line for request in seen for line in request["headers"] if line.lower().startswith("x-flashbox-affinity")}
    assert len(names) == 1 and "mine" not in names.pop()


def test_what_has_no_beginning_goes_anywhere(gateway: Gateway) -> None:
    """A later response: its beginning is in the engine, and nothing in the request names it."""
    content = {"model": "m", "input": "x", "previous_response_id": "resp_1", "max_output_tokens": 16}
    headers = {"content-type": "application/json"}
    answers = [gateway.ask("POST", "/v1/responses", content, headers=headers) for _ in range(counts(30, 200))]
    assert {answer.status for answer in answers} == {200}
    assert {answer.headers["x-replica"] for answer in answers} == REPLICAS


def test_a_replica_that_drains_or_is_removed_or_unhealthy_gives_only_its_own_away_and_gets_them_back(
    gateway: Gateway,
) -> None:
    numbers = range(counts(12, 40))
    first = homes(gateway, numbers)

    def all_on(replica: str) -> bool:
        return set(homes(gateway, numbers).values()) == {replica}

    def at_home() -> bool:
        return homes(gateway, numbers) == first

    gateway.publish_replicas([0, 1], draining=[0])
    eventually(lambda: all_on("engine-1"), SOON_S)
    gateway.publish_replicas([0, 1])
    eventually(at_home, SOON_S)
    gateway.publish_replicas([0])
    eventually(lambda: all_on("engine-0"), SOON_S)
    gateway.publish_replicas([0, 1])
    eventually(at_home, SOON_S)
    gateway.replicas[1].set_ready(False)
    eventually(lambda: all_on("engine-0"), SOON_S)
    gateway.replicas[1].set_ready(True)
    eventually(at_home, SOON_S)


def test_a_stream_on_a_draining_replica_goes_on_while_its_conversation_moves(gateway: Gateway) -> None:
    held = Held(gateway, turn(5))
    slot = int(held.replica[-1])
    gateway.publish_replicas([0, 1], draining=[slot])
    try:
        eventually(lambda: ask(gateway, turn(5, 2)).headers["x-replica"] != held.replica, SOON_S)
        assert gateway.stat("cluster.vllm.upstream_rq_active") == 1, "it still runs"
    finally:
        held.close()
        gateway.publish_replicas([0, 1])
    eventually(lambda: ask(gateway, turn(5, 3)).headers["x-replica"] == held.replica, SOON_S)
    quiet(gateway)


def test_a_killed_replica_costs_no_request_and_only_its_conversations_move(gateway: Gateway) -> None:
    numbers = range(counts(20, 40))
    first = homes(gateway, numbers)
    gateway.replicas[1].kill()
    for _ in range(2):
        now = {number: ask(gateway, turn(number)) for number in numbers}
        assert {answer.status for answer in now.values()} == {200}
        assert {answer.headers["x-replica"] for answer in now.values()} == {"engine-0"}
    gateway.revive(1)
    eventually(lambda: gateway.healthy() == REPLICAS, SOON_S)
    eventually(lambda: homes(gateway, numbers) == first, SOON_S)


def test_replicas_that_are_full_are_all_tried(gateway: Gateway) -> None:
    before = [len(replica.requests) for replica in gateway.replicas]
    assert ask(gateway, {**turn(1), "act": "refuse"}).status == 503
    tried = [len(replica.requests) - n for replica, n in zip(gateway.replicas, before, strict=True)]
    assert min(tried) >= 1, tried


def test_sessions_go_by_their_header_and_by_their_beginning_without_it(tmp_path: Path) -> None:
    with judged(tmp_path / "g", count=2, affinity="session") as gateway:
        named = {n: ask(gateway, turn(n), x_session_id="s-1").headers["x-replica"] for n in range(12)}
        assert len(set(named.values())) == 1, "one session, whatever it says"
        assert {ask(gateway, turn(1), x_session_id=f"s-{n}").headers["x-replica"] for n in range(24)} == REPLICAS
        first = homes(gateway, range(30))
        assert set(first.values()) == REPLICAS and homes(gateway, range(30), 2) == first


def test_without_affinity_the_least_loaded_is_chosen(tmp_path: Path) -> None:
    with judged(tmp_path / "g", count=2, affinity="none") as gateway:
        held = [Held(gateway, turn(1)) for _ in range(8)]
        assert Counter(one.replica for one in held) == {"engine-0": 4, "engine-1": 4}
        for one in held:
            one.close()
