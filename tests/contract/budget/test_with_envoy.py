"""Counting as clients of the gateway see it: charged what was used whatever the end, limits exact, no request lost."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter

import pytest

from tests.contract.budget.gateway import Answer, Client, Gateway
from tests.contract.budget.process import MESSAGES, SOON_S, Budget
from tests.contract.budget.replica import PROMPT
from tests.counts import counts
from tests.eventually import eventually

ONE = PROMPT + 20  # tokens of a request as it is by default
LONG = {"x_events": 2000, "x_pause_s": 0.02}
CHECKS = "http.ingress_http.ext_authz.budget"


def ended(budget: Budget, key: str, number: int) -> None:
    """Wait until so many requests have been counted."""
    eventually(lambda: budget.used(key).requests == number, SOON_S)


def statuses(answers: list[Answer]) -> dict[int, int]:
    return dict(Counter(answer.status for answer in answers))


# ---- charges


@pytest.mark.parametrize("form", [{}, {"x_json": 1}])
def test_a_whole_answer_is_charged_what_the_replica_said(
    gateway: Gateway, budget: Budget, form: dict[str, object]
) -> None:
    assert gateway.ask("debt", **form).status == 200
    ended(budget, "debt", 1)
    used = budget.used("debt")
    assert (used.ok, used.total, used.prompt, used.completion, used.cached) == (1, ONE, PROMPT, 20, 8)
    assert used.estimated == 0
    (line,) = budget.ledger
    told = {name: line[name] for name in ("key", "key_id", "model", "route", "status")}
    assert told == {
        **{"key": "debt", "key_id": "0123456789ab", "model": "m", "route": "/v1/chat/completions", "status": 200}
    }


def test_a_client_that_leaves_pays_what_was_generated(gateway: Gateway, budget: Budget) -> None:
    seen = gateway.run(lambda client: client.leave_after(7, "debt", **LONG))
    ended(budget, "debt", 1)
    used = budget.used("debt")
    assert used.left == 1 and PROMPT + seen <= used.total <= PROMPT + seen + 5


def test_a_replica_that_breaks_off_is_paid_until_there(gateway: Gateway, budget: Budget) -> None:
    assert gateway.ask("debt", x_reset=5, x_pause_s=0.01).status == 0
    ended(budget, "debt", 1)
    used = budget.used("debt")
    assert (used.cut, used.total) == (1, PROMPT + 5)


def test_a_client_that_leaves_before_the_first_byte_pays_the_estimate(gateway: Gateway, budget: Budget) -> None:
    gateway.run(lambda client: client.give_up_after(0.5, "debt", x_first_s=5))
    ended(budget, "debt", 1)
    used = budget.used("debt")
    assert (used.left, used.total, used.estimated) == (1, 5, 5)


@pytest.mark.parametrize(
    ("headers", "result"), [({"x_refuse": 1}, "refused"), ({"x_status": 500}, "failed"), ({"x_status": 400}, "refused")]
)
def test_an_error_costs_nothing_and_gives_its_place_back(
    gateway: Gateway, budget: Budget, headers: dict[str, object], result: str
) -> None:
    gateway.run(lambda client: client.many(4, "few", **headers))
    ended(budget, "few", 4)
    used = budget.used("few")
    assert getattr(used, result) == 4 and used.total == 0
    assert budget.key("few")["leases"] == 0


def test_debt_is_refused_in_the_callers_form_until_it_is_paid(gateway: Gateway, budget: Budget) -> None:
    budget.limit(debt={"tpm": 6000}, other={"tpm": 6000})
    eventually(lambda: "other" in {row["key"] for row in budget.state["keys"]}, SOON_S)
    assert gateway.ask("debt", x_json=1, x_events=6400).status == 200
    ended(budget, "debt", 1)
    refused = gateway.ask("debt")
    error = refused.json["error"]
    assert (refused.status, error["code"], error["type"]) == (429, "token_budget_exhausted", "rate_limit_error")
    assert refused.headers["content-type"] == "application/json"
    assert refused.headers["x-request-id"] == error["request_id"]
    assert refused.headers["x-ratelimit-remaining-tokens"] == "0"
    wait = int(refused.headers["retry-after"])
    assert 1 <= wait <= 5
    messages = gateway.ask("debt", MESSAGES)
    assert messages.status == 429 and messages.json["error"]["type"] == "rate_limit_error"
    assert messages.json["type"] == "error" and messages.headers["request-id"] == messages.json["request_id"]
    assert gateway.ask("other").status == 200
    eventually(lambda: gateway.ask("debt").status == 200, wait + SOON_S)


def test_an_admitted_request_is_told_what_is_left(gateway: Gateway, budget: Budget) -> None:
    headers = gateway.ask("debt").headers
    assert headers["x-ratelimit-limit-tokens"] == headers["x-ratelimit-remaining-tokens"] == "6000"


# ---- streams


def test_a_fifth_stream_is_refused_and_a_place_that_is_left_is_free(gateway: Gateway, budget: Budget) -> None:
    async def work(client: Client) -> Answer:
        running = asyncio.ensure_future(client.many(4, "few", **LONG))
        await asyncio.to_thread(eventually, lambda: budget.key("few")["leases"] == 4, SOON_S)
        refused = await client.ask("few")
        running.cancel()
        return refused

    refused = gateway.run(work)
    assert (refused.status, refused.json["error"]["code"]) == (429, "too_many_streams")
    assert refused.headers["retry-after"] == "1"
    eventually(lambda: budget.key("few")["leases"] == 0, SOON_S)
    assert gateway.ask("few").status == 200


def test_of_forty_at_the_same_moment_four_pass(gateway: Gateway, budget: Budget) -> None:
    answers = gateway.run(lambda client: client.many(40, "few", x_pause_s=0.1))
    assert statuses(answers) == {200: 4, 429: 36}
    ended(budget, "few", 40)
    # The gateway tells the end of refused ones too, after that of the last one that passed: they count once.
    eventually(lambda: budget.metric("budget_requests_total", key="few", result="ok") == 4, SOON_S)
    assert budget.used("few").requests == 40 and budget.used("few").refused == 36
    assert budget.key("few")["leases"] == 0


def test_of_forty_that_are_only_observed_all_pass_and_thirty_six_would_not_have(
    gateway: Gateway, budget: Budget
) -> None:
    budget.observe(few={"streams": 4})
    answers = gateway.run(lambda client: client.many(40, "few", x_pause_s=0.1))
    assert statuses(answers) == {200: 40} and not any("retry-after" in answer.headers for answer in answers)
    assert budget.metric("budget_checks_total", key="few", answer="would_streams") == 36
    ended(budget, "few", 40)
    assert budget.used("few").ok == 40 and budget.key("few")["leases"] == 0


def test_resets_and_refusals_of_the_replica_leave_no_lease(gateway: Gateway, budget: Budget) -> None:
    for headers in ({"x_reset": 3}, {"x_status": 503}):
        gateway.run(lambda client, headers=headers: client.many(4, "few", **headers))
    ended(budget, "few", 8)
    assert budget.key("few")["leases"] == 0


def test_clients_that_leave_while_the_service_is_asked_leave_no_lease(gateway: Gateway, budget: Budget) -> None:
    budget.limit(few={"streams": 10_000})
    eventually(lambda: budget.key("few").get("streams") == 10_000, SOON_S)

    async def leave(client: Client) -> None:
        for _ in range(counts(20, 200)):
            await asyncio.gather(*(client.give_up_after(0.001 * n, "few", x_first_s=0.2) for n in range(2, 22)))

    def all_told() -> bool:
        begun = gateway.stat("http.ingress_http.downstream_rq_total")
        return 0 < begun == budget.used("few").requests

    gateway.run(leave)
    eventually(all_told, SOON_S)
    assert gateway.stat("http.ingress_http.downstream_rq_active") == 0
    assert budget.key("few")["leases"] == 0


def test_a_gateway_that_died_holds_no_place_once_it_is_back(gateway: Gateway, budget: Budget) -> None:
    async def work(client: Client) -> None:
        running = asyncio.ensure_future(client.many(4, "few", **LONG))
        await asyncio.to_thread(eventually, lambda: budget.key("few")["leases"] == 4, SOON_S)
        await asyncio.to_thread(gateway.end)
        running.cancel()

    gateway.run(work)
    assert budget.key("few")["leases"] == 4, "nobody has said that they ended"
    gateway.start()
    assert gateway.ask("few").status == 200
    eventually(lambda: budget.key("few")["leases"] == 0, SOON_S)


def test_a_hot_restart_keeps_places_and_loses_no_charge(gateway: Gateway, budget: Budget) -> None:
    async def work(client: Client) -> tuple[list[Answer], Answer]:
        running = asyncio.ensure_future(client.many(4, "few", x_events=200, x_pause_s=0.02))
        await asyncio.to_thread(eventually, lambda: budget.key("few")["leases"] == 4, SOON_S)
        gateway.hot_restart()  # from this thread: Envoy ends with the one that started it
        refused = await client.ask("few", connection="close")
        return await running, refused

    answers, refused = gateway.run(work)
    assert refused.status == 429 and statuses(answers) == {200: 4}
    ended(budget, "few", 5)
    assert budget.used("few").total == 4 * (PROMPT + 200) and budget.key("few")["leases"] == 0


# ---- a service that is not there


def test_a_dead_service_stops_nobody_and_what_ended_meanwhile_is_charged(gateway: Gateway, budget: Budget) -> None:
    async def work(client: Client) -> list[Answer]:
        running = asyncio.ensure_future(client.many(10, "few2", x_events=100, x_pause_s=0.01))
        await asyncio.sleep(0.3)
        await asyncio.to_thread(budget.end)
        during = await client.many(20, "few2", every_s=0.05, x_events=5)
        return await running + during

    answers = gateway.run(work)
    assert statuses(answers) == {200: 30}
    budget.start()
    ended(budget, "few2", 30)
    assert budget.used("few2").total == 10 * (PROMPT + 100) + 20 * (PROMPT + 5)


def test_a_key_in_debt_gets_through_while_the_service_is_dead_and_not_after(gateway: Gateway, budget: Budget) -> None:
    gateway.ask("debt", x_json=1, x_events=10**6)
    ended(budget, "debt", 1)
    assert gateway.ask("debt").status == 429
    budget.end()
    assert gateway.ask("debt").status == 200
    assert gateway.stat(f"{CHECKS}.failure_mode_allowed") >= 1
    budget.start()
    eventually(lambda: gateway.ask("debt").status == 429, SOON_S)


def test_a_frozen_service_loses_no_charge_and_no_place(gateway: Gateway, budget: Budget) -> None:
    budget.limit(frozen={"tpm": 10**6, "streams": 100})
    eventually(lambda: "frozen" in {row["key"] for row in budget.state["keys"]}, SOON_S)

    async def work(client: Client) -> list[Answer]:
        running = asyncio.ensure_future(client.many(20, "frozen", x_events=50, x_pause_s=0.01))
        await asyncio.to_thread(eventually, lambda: budget.key("frozen")["leases"] == 20, SOON_S)
        budget.send(signal.SIGSTOP)
        late = await client.many(10, "frozen", every_s=0.3)
        return await running + late

    answers = gateway.run(work)
    budget.send(signal.SIGCONT)
    assert statuses(answers) == {200: 30}
    ended(budget, "frozen", 30)
    assert budget.used("frozen").total == 20 * (PROMPT + 50) + 10 * ONE
    assert budget.key("frozen")["leases"] == 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_restart_under_fifty_requests_a_second_costs_no_request_and_no_charge(
    gateway: Gateway, budget: Budget, how: signal.Signals
) -> None:
    async def work(client: Client) -> list[Answer]:
        load = asyncio.ensure_future(client.many(200, "load", every_s=0.02, x_pause_s=0.01))
        await asyncio.sleep(1.5)
        await asyncio.to_thread(budget.end, how)
        await asyncio.to_thread(budget.start)
        return await load

    budget.limit(load={"tpm": 10**6, "streams": 1000})
    answers = gateway.run(work)
    assert statuses(answers) == {200: 200}
    ended(budget, "load", 200)
    assert budget.used("load").total == 200 * ONE
    ids = [line["id"] for line in budget.ledger if line["key"] == "load"]
    assert len(ids) == len(set(ids)) == 200
    eventually(lambda: budget.key("load")["leases"] == 0, SOON_S)


# ---- keys without a limit


def test_a_key_without_a_limit_asks_nobody_and_its_usage_is_counted(gateway: Gateway, budget: Budget) -> None:
    gateway.run(lambda client: client.many(10, "free"))
    ended(budget, "free", 10)
    assert budget.used("free").total == 10 * ONE
    assert budget.metric("budget_checks_total", key="free", answer="admitted") == 0
    assert gateway.stat(f"{CHECKS}.ok") == 0
