"""Requests of a key at the same time: exactly as many as it may have, and no place is lost, whatever ends one."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.contract.gateway.counted import Clients, Counted, body, counted, limited, secret
from tests.contract.gateway.harness import CHAT, MESSAGES, SOON_S, Answer
from tests.counts import counts
from tests.eventually import eventually

MOST = 4
NAMES = ("fifth", "messages", "burst", "left", "reset", "refused", "policy", "killed")
LONG = {"tokens": 4000, "stream": True}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    """One for the tests that leave it as it was; four streams are what everybody may have."""
    keys = [*(limited(name, streams=None) for name in NAMES), limited("early", streams=1000)]
    limits = {"requests_per_second": 0, "requests_per_minute": 0, "streams": MOST}
    with counted(tmp_path_factory.mktemp("streams"), *keys, limits=limits) as made:
        yield made


def statuses(answers: list[Answer]) -> dict[int, int]:
    return dict(Counter(answer.status for answer in answers))


async def hold(
    gateway: Counted, clients: Clients, name: str, most: int = MOST, tokens: int = 4000
) -> asyncio.Future[list[Answer]]:
    """Streams in so many places of the key; one more for each that was let in unasked (a slow machine)."""
    begun: list[asyncio.Future[Answer]] = []

    def all_hold() -> bool:
        return gateway.leases(name) == most or gateway.running() == len(begun) != gateway.leases(name)

    while len(begun) < 3 * most and (missing := most - gateway.leases(name)) > 0:
        begun += [asyncio.ensure_future(clients.ask(name, tokens=tokens, stream=True)) for _ in range(missing)]
        await asyncio.to_thread(eventually, all_hold, SOON_S)
    assert gateway.leases(name) == most
    return asyncio.gather(*begun)


def nothing_is_held(gateway: Counted, name: str) -> None:
    """Every place is free again, and can be taken."""
    eventually(lambda: gateway.leases(name) == 0, SOON_S)
    assert statuses(gateway.clients(lambda clients: clients.many(MOST, name, tokens=5))) == {200: MOST}
    eventually(lambda: gateway.leases(name) == 0, SOON_S)


def test_a_fifth_of_four_is_refused_others_are_not_and_a_place_that_is_left_is_free(gateway: Counted) -> None:
    async def work(clients: Clients) -> tuple[Answer, Answer]:
        running = await hold(gateway, clients, "fifth")
        refused, other = await clients.ask("fifth"), await clients.ask("burst")
        running.cancel()
        return refused, other

    refused, other = gateway.clients(work)
    assert (refused.status, other.status) == (429, 200)
    assert (refused.error["code"], refused.error["type"]) == ("too_many_streams", "rate_limit_error")
    assert refused.headers["retry-after"] == "1"
    nothing_is_held(gateway, "fifth")


def test_a_refusal_on_v1_messages_is_anthropics(gateway: Counted) -> None:
    async def work(clients: Clients) -> Answer:
        running = await hold(gateway, clients, "messages")
        refused = await clients.ask("messages", MESSAGES)
        running.cancel()
        return refused

    refused = gateway.clients(work)
    assert refused.status == 429 and refused.messages_error["type"] == "rate_limit_error"
    assert refused.headers["retry-after"] == "1"


def test_of_forty_at_the_same_moment_exactly_four_pass(gateway: Counted) -> None:
    for _ in range(counts(2, 20)):
        used = gateway.service.used("burst")
        answers = gateway.clients(lambda clients: clients.many(40, "burst", tokens=200))
        assert statuses(answers) == {200: MOST, 429: 40 - MOST}
        now = gateway.counted("burst", used.requests + 40)
        assert (now.ok - used.ok, now.refused - used.refused) == (MOST, 40 - MOST)
        eventually(lambda: gateway.leases("burst") == 0, SOON_S)


def test_clients_that_leave_hold_nothing(gateway: Counted) -> None:
    async def work(clients: Clients) -> None:
        await asyncio.gather(*(clients.leave_after(n, "left", tokens=4000) for n in (1, 2, 5, 9)))

    gateway.clients(work)
    nothing_is_held(gateway, "left")


def test_clients_that_leave_while_the_service_is_asked_hold_nothing_and_are_told(gateway: Counted) -> None:
    rounds, at_once = counts(10, 100), 20
    content = json.dumps(body(tokens=50)).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {secret('early')}\r\n"
    request = f"{head}content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content
    total = "http.ingress_http.downstream_rq_total"
    before = gateway.stat(total)

    async def leave_after(seconds: float) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(request)
        await asyncio.sleep(seconds)
        writer.close()

    async def work(_: Clients) -> None:
        for n in range(rounds):
            await asyncio.gather(*(leave_after(Random(n * at_once + m).uniform(0, 0.01)) for m in range(at_once)))

    gateway.clients(work)
    eventually(lambda: gateway.stat("http.ingress_http.downstream_rq_active") == 0, SOON_S)
    asked = gateway.stat(total) - before
    assert asked > 0
    gateway.counted("early", asked)
    nothing_is_held(gateway, "early")


@pytest.mark.parametrize("fault", [{"cut": 3}, {"unavailable": True}], ids=["reset", "refused"])
def test_replicas_that_reset_or_refuse_leave_nothing_held(gateway: Counted, fault: dict[str, object]) -> None:
    name = "reset" if "cut" in fault else "refused"
    gateway.stubs[0].fault(fault)
    try:
        answers = gateway.clients(lambda clients: clients.many(MOST, name, tokens=50, stream=True))
    finally:
        gateway.stubs[0].fault({"clear": True})
    assert 200 not in statuses(answers)
    nothing_is_held(gateway, name)


def test_bodies_that_are_refused_hold_nothing(gateway: Counted) -> None:
    headers = {"content-type": "application/json"}
    for _ in range(2 * MOST):
        assert gateway.ask("POST", CHAT, '{"messages": 3}', headers=headers, key=secret("policy")).status == 400
    nothing_is_held(gateway, "policy")


def test_a_killed_service_forgets_places_and_late_ends_free_none_of_the_new(gateway: Counted) -> None:
    async def work(clients: Clients) -> tuple[list[Answer], Answer]:
        old = await hold(gateway, clients, "killed", tokens=2000)
        await asyncio.to_thread(gateway.service.end)
        await asyncio.to_thread(gateway.service.start)
        healthy = "cluster.budget.membership_healthy"
        await asyncio.to_thread(eventually, lambda: gateway.stat(healthy) == 1, SOON_S)
        new = asyncio.ensure_future(clients.many(MOST, "killed", **LONG))
        await asyncio.to_thread(eventually, lambda: gateway.leases("killed") == MOST, SOON_S)
        answers = await old
        await asyncio.to_thread(gateway.counted, "killed", len(answers))
        assert gateway.leases("killed") == MOST, "the ends of the old ones free no place of the new ones"
        refused = await clients.ask("killed")
        new.cancel()
        return answers, refused

    answers, refused = gateway.clients(work)
    assert set(statuses(answers)) == {200} and refused.status == 429
    nothing_is_held(gateway, "killed")


def test_a_hot_restart_keeps_places_and_loses_no_charge(tmp_path: Path) -> None:
    with counted(tmp_path / "g", limited("few", streams=MOST)) as gateway:

        async def work(clients: Clients) -> tuple[list[Answer], Answer]:
            running = await hold(gateway, clients, "few", tokens=2000)
            gateway.signal(signal.SIGHUP)
            await asyncio.to_thread(eventually, lambda: gateway.said("restarted"), SOON_S)
            refused = await asyncio.to_thread(gateway.ask_as, "few")  # on a connection of its own: to the new Envoy
            return await running, refused

        answers, refused = gateway.clients(work)
        assert refused.status == 429 and set(statuses(answers)) == {200}
        used = gateway.counted("few", len(answers) + 1)
        assert used.total == gateway.generated() and used.ok == len(answers)
        nothing_is_held(gateway, "few")


def test_a_gateway_that_died_holds_no_place_once_it_is_back(tmp_path: Path) -> None:
    with counted(tmp_path / "g", limited("few", streams=MOST)) as gateway:

        async def work(clients: Clients) -> None:
            running = await hold(gateway, clients, "few")
            await asyncio.to_thread(gateway.kill)
            running.cancel()

        gateway.clients(work)
        assert gateway.leases("few") == MOST, "nobody has said that they ended"
        gateway.start()
        assert gateway.ask_as("few").status == 200
        eventually(lambda: gateway.leases("few") == 0, SOON_S)


def test_a_drain_waits_for_the_last_charge(tmp_path: Path) -> None:
    """The service is away when the last stream ends: the gateway stays until it has said what that cost."""
    with counted(tmp_path / "g", limited("few", streams=MOST)) as gateway:

        async def work(clients: Clients) -> list[Answer]:
            running = await hold(gateway, clients, "few", most=2, tokens=500)
            await asyncio.to_thread(gateway.service.end)
            gateway.signal(signal.SIGTERM)
            return await running

        answers = gateway.clients(work)
        assert set(statuses(answers)) == {200}
        eventually(lambda: gateway.stat("http.ingress_http.downstream_rq_active") == 0, SOON_S)
        generated = gateway.generated()
        eventually(lambda: gateway.stat("cluster.budget_done.upstream_rq_retry") > 0, SOON_S)
        assert not gateway.said("drained")
        gateway.service.start()
        assert gateway.wait() == 0
        assert gateway.counted("few", len(answers)).total == generated
        assert (gateway.said("drained") or {})["charges_lost"] == 0
