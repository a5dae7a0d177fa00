"""Tokens of a key on the product's own configuration: charged as the engine counted them, whatever the end."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contract.gateway.counted import BODIES, MODEL, Clients, Counted, body, counted, limited, secret
from tests.contract.gateway.harness import CHAT, COUNT, MESSAGES, SOON_S, Answer
from tests.counts import counts
from tests.eventually import eventually

TPM = 1200
KEYS = (
    *(limited(name) for name in ("free", "whole", "left", "gone", "cut", "errors", "policy", "routes", "restarted")),
    limited("debtor", tpm=TPM),
    limited("solvent", tpm=TPM),
    limited("messages", tpm=60),
    limited("dead", tpm=60),
    limited("frozen", tpm=10**6, streams=100),
    limited("load", tpm=10**6, streams=1000),
    limited("changed"),
    replace(limited("hasty"), requests_per_second=1),
    replace(limited("expired"), expires="2020-01-01T00:00:00Z"),
)
CHECKS = "http.ingress_http.ext_authz.budget"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    """One for all tests of this file: each has keys of its own."""
    with counted(tmp_path_factory.mktemp("budget"), *KEYS) as made:
        yield made


@pytest.fixture(autouse=True)
def _sound(gateway: Counted) -> Iterator[None]:
    """Scripts have not failed, and every message was understood."""
    yield
    assert gateway.stat("http.ingress_http.lua.usage.errors") == gateway.stat("http.ingress_http.lua.auth.errors") == 0
    assert gateway.service.metric("budget_bad_descriptors_total") == 0


def statuses(answers: list[Answer]) -> dict[int, int]:
    return dict(Counter(answer.status for answer in answers))


# ---- charges


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("path", BODIES)
def test_a_whole_answer_is_charged_what_the_engine_counted(gateway: Counted, path: str, stream: bool) -> None:
    before, used = gateway.generated(), gateway.service.used("whole")
    assert gateway.ask_as("whole", path, tokens=20, stream=stream).status == 200
    now = gateway.counted("whole", used.requests + 1)
    assert now.total - used.total == gateway.generated() - before
    assert now.completion - used.completion == 20 and now.estimated == 0
    line = [line for line in gateway.service.ledger if line["key"] == "whole"][-1]
    told = {name: line[name] for name in ("key_id", "model", "route", "status", "result")}
    key = next(key for key in gateway.api_keys if key.name == "whole")
    assert told == {"key_id": key.key_id, "model": MODEL, "route": path, "status": 200, "result": "ok"}


@pytest.mark.parametrize("path", BODIES)
def test_a_client_that_leaves_pays_what_was_generated(gateway: Counted, path: str) -> None:
    before, used = gateway.generated(), gateway.service.used("left")
    gateway.clients(lambda clients: clients.leave_after(12, "left", path, tokens=4000))
    now = gateway.counted("left", used.requests + 1)
    eventually(lambda: gateway.running() == 0, SOON_S)
    charged, engine = now.total - used.total, gateway.generated() - before
    assert now.left == used.left + 1
    # The engine goes on until it notices. Answers of /v1/responses do not say their prompt before the end.
    assert 8 <= charged <= engine, (charged, engine)


def test_a_client_that_leaves_before_the_first_byte_pays_the_prompt_as_it_was_estimated(gateway: Counted) -> None:
    gateway.stubs[0].fault({"hang": True})
    try:
        gateway.clients(lambda clients: clients.give_up_after(0.5, "gone", tokens=50))
        used = gateway.counted("gone", 1)
    finally:
        gateway.stubs[0].fault({"clear": True})
    assert (used.left, used.estimated, used.completion) == (1, used.total, 0) and used.total > 0


def test_a_replica_that_breaks_off_is_paid_until_there(gateway: Counted) -> None:
    gateway.stubs[0].fault({"cut": 5})
    try:
        answer = gateway.clients(lambda clients: clients.ask("cut", tokens=50, stream=True))
        used = gateway.counted("cut", 1)
    finally:
        gateway.stubs[0].fault({"clear": True})
    assert answer.status == 0 and used.cut == 1
    prompt = gateway.ask_as("cut", tokens=1).json["usage"]["prompt_tokens"]
    assert prompt < used.total <= prompt + 5, "some of the answer, and no more than five events"


def test_errors_cost_nothing(gateway: Counted) -> None:
    gateway.stubs[0].fault({"unavailable": True})
    try:
        assert gateway.ask_as("errors").status == 503
    finally:
        gateway.stubs[0].fault({"clear": True})
    assert gateway.ask_as("errors", tokens=100_000).status == 400  # of the engine or the policy: more than the context
    headers = {"content-type": "application/json"}
    assert gateway.ask("POST", CHAT, '{"model": NaN', headers=headers, key=secret("errors")).status == 400
    used = gateway.counted("errors", 3)
    assert (used.failed, used.refused, used.total) == (1, 2, 0)


def test_only_routes_that_generate_are_counted(gateway: Counted) -> None:
    headers = {"content-type": "application/json"}
    said = [{"role": "user", "content": "x"}]
    for path, content in ((COUNT, {"model": MODEL, "messages": said}), ("/tokenize", {"model": MODEL, "prompt": "x"})):
        assert gateway.ask("POST", path, content, headers=headers, key=secret("routes")).status == 200
    assert gateway.ask("GET", "/v1/models", key=secret("routes")).status == 200
    assert gateway.ask_as("routes").status == 200
    gateway.counted("routes", 1)


# ---- refusals


def test_debt_is_refused_until_it_is_paid_and_others_go_on(gateway: Counted) -> None:
    """One answer of more than the budget is let through: nobody knows its length before."""
    first = gateway.ask_as("debtor", tokens=TPM)
    assert first.status == 200
    assert first.headers["x-ratelimit-limit-tokens"] == first.headers["x-ratelimit-remaining-tokens"] == str(TPM)
    gateway.counted("debtor", 1)
    refused = gateway.ask_as("debtor")
    assert refused.status == 429
    assert (refused.error["code"], refused.error["type"]) == ("token_budget_exhausted", "rate_limit_error")
    assert refused.headers["x-ratelimit-remaining-tokens"] == "0"
    wait = int(refused.headers["retry-after"])
    assert 1 <= wait <= 3
    assert gateway.ask_as("solvent").status == 200
    eventually(lambda: gateway.ask_as("debtor", tokens=1).status == 200, wait + SOON_S)
    assert not {"x-flashbox-limit", "x-flashbox-replica"} & refused.headers.keys()


def test_a_refusal_on_v1_messages_is_anthropics(gateway: Counted) -> None:
    assert gateway.ask_as("messages", MESSAGES, tokens=100).status == 200
    gateway.counted("messages", 1)
    refused = gateway.ask_as("messages", MESSAGES)
    assert refused.status == 429 and refused.messages_error["type"] == "rate_limit_error"
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["anthropic-ratelimit-tokens-remaining"] == "0"


def test_the_log_has_what_was_used_and_why_a_request_was_refused(gateway: Counted) -> None:
    forged = {"content-type": "application/json", "x-flashbox-would-refuse": "everybody"}
    asked = gateway.ask("POST", CHAT, body(tokens=7), headers=forged, key=secret("free"))
    usage = asked.json["usage"]
    gateway.ask_as("messages", MESSAGES, tokens=200)
    refused = gateway.ask_as("messages", MESSAGES)
    assert refused.status == 429

    def lines() -> Any:
        found = {line["request_id"]: line for line in gateway.lines("access")}
        wanted = [found.get(answer.headers["x-request-id"]) for answer in (asked, refused)]
        return wanted if all(wanted) else None

    used, over = eventually(lines, SOON_S)
    told = [used[f"{name}_tokens"] for name in ("prompt", "completion", "cached", "charged")]
    assert told == [usage["prompt_tokens"], 7, 0, usage["total_tokens"]] and used["tokens_estimated"] is False
    assert (over["limit"], over["status"], over["details"]) == ("tokens_per_minute", 429, "ext_authz_denied")
    assert used["limit"] is used["would_refuse"] is None and over["charged_tokens"] in (0, None)


def test_refusals_of_known_keys_are_counted_each_once_and_of_unknown_ones_not(gateway: Counted) -> None:
    """By a limit of requests, as a key that is over, and by the policy; strangers leave no trace in the ledger."""
    answers = [gateway.ask_as("hasty").status for _ in range(6)]
    admitted = answers.count(200)
    assert set(answers) == {200, 429}
    assert gateway.ask_as("expired").status == 401
    headers = {"content-type": "application/json"}
    assert gateway.ask("POST", CHAT, '{"messages": 3}', headers=headers, key=secret("policy")).status == 400
    strangers = [gateway.ask("POST", CHAT, "{}", key=key).status for key in ("fb-nobody", "")]
    assert strangers == [401, 401]
    hasty, expired, policy = gateway.counted("hasty", 6), gateway.counted("expired", 1), gateway.counted("policy", 1)
    assert (hasty.ok, hasty.refused, expired.refused, policy.refused) == (admitted, 6 - admitted, 1, 1)
    names = {key.name for key in gateway.api_keys}
    assert {line["key"] for line in gateway.service.ledger} <= names


def test_a_key_without_a_limit_asks_nobody(gateway: Counted) -> None:
    def calls() -> list[int]:
        return [gateway.stat(name) for name in (f"{CHECKS}.ok", f"{CHECKS}.error", "cluster.budget.upstream_rq_total")]

    before, used = calls(), gateway.service.used("free").requests
    for _ in range(5):
        assert gateway.ask_as("free", tokens=1).status == 200
    gateway.counted("free", used + 5)
    assert calls() == before
    gateway.ask_as("solvent", tokens=1)
    assert calls() == [before[0] + 1, before[1], before[2] + 1], "another key's call is seen here"


def test_a_limit_that_is_given_and_taken_counts_at_once(gateway: Counted) -> None:
    others = [key for key in gateway.api_keys if key.name != "changed"]
    assert gateway.ask_as("changed", tokens=200).status == 200
    gateway.counted("changed", 1)
    gateway.set_keys(*others, limited("changed", tpm=60))
    assert gateway.ask_as("changed", tokens=200).status == 200, "what was used without a limit is no debt"
    gateway.counted("changed", 2)
    assert gateway.ask_as("changed").status == 429
    gateway.set_keys(*others, limited("changed"))
    assert gateway.ask_as("changed").status == 200


# ---- a service that is not there


def test_a_dead_service_stops_nobody_and_what_ended_meanwhile_is_charged(gateway: Counted) -> None:
    gateway.ask_as("dead", tokens=100)
    once = gateway.counted("dead", 1)
    assert gateway.ask_as("dead").status == 429
    used = gateway.service.used("load")

    async def work(clients: Clients) -> list[Answer]:
        running = asyncio.ensure_future(clients.many(5, "load", tokens=100, stream=True))
        await asyncio.to_thread(eventually, lambda: gateway.running() == 5, SOON_S)
        await asyncio.to_thread(gateway.service.end)
        during = await clients.many(20, "load", every_s=0.05, tokens=5)
        return await running + during + [await clients.ask("dead", tokens=5)]

    before = gateway.generated()
    allowed = gateway.stat(f"{CHECKS}.failure_mode_allowed")
    try:
        answers = gateway.clients(work)
    finally:
        gateway.service.start()
    assert statuses(answers) == {200: 26}, "a key in debt, too: the service fails open"
    assert gateway.stat(f"{CHECKS}.failure_mode_allowed") > allowed
    now, dead = gateway.counted("load", used.requests + 25), gateway.counted("dead", 3)
    assert (now.total - used.total) + (dead.total - once.total) == gateway.generated() - before
    eventually(lambda: gateway.ask_as("dead").status == 429, SOON_S)
    eventually(lambda: gateway.leases("load") == 0, SOON_S)


def test_a_frozen_service_costs_no_request_no_charge_and_no_place(gateway: Counted) -> None:
    async def work(clients: Clients) -> list[Answer]:
        running = asyncio.ensure_future(clients.many(10, "frozen", tokens=100, stream=True))
        await asyncio.to_thread(eventually, lambda: gateway.leases("frozen") == 10, SOON_S)
        gateway.service.send(signal.SIGSTOP)
        late = await clients.many(10, "frozen", every_s=0.2, tokens=5)
        return await running + late

    before = gateway.generated()
    try:
        answers = gateway.clients(work)
    finally:
        gateway.service.send(signal.SIGCONT)
    assert statuses(answers) == {200: 20}
    used = gateway.counted("frozen", 20)
    assert used.total == gateway.generated() - before
    eventually(lambda: gateway.leases("frozen") == 0, SOON_S)


@pytest.mark.parametrize("how", counts((signal.SIGKILL,), (signal.SIGKILL, signal.SIGTERM)))  # type: ignore[arg-type]
def test_a_restart_of_the_service_under_load_costs_no_request_and_no_charge(
    gateway: Counted, how: signal.Signals
) -> None:
    number = counts(100, 500)

    async def work(clients: Clients) -> list[Answer]:
        load = asyncio.ensure_future(clients.many(number, "load", every_s=0.02, tokens=3))
        await asyncio.sleep(1)
        await asyncio.to_thread(gateway.service.end, how)
        await asyncio.to_thread(gateway.service.start)
        return await load

    before, used = gateway.generated(), gateway.service.used("load")
    assert statuses(gateway.clients(work)) == {200: number}
    now = gateway.counted("load", used.requests + number)
    assert now.total - used.total == gateway.generated() - before
    ids = [line["id"] for line in gateway.service.ledger if line["key"] == "load"]
    assert len(ids) == len(set(ids)), "no request was charged twice"
    eventually(lambda: gateway.leases("load") == 0, SOON_S)


def test_in_mode_observe_nobody_is_refused_and_the_log_says_who_would_have_been(tmp_path: Path) -> None:
    keys = (
        limited("debtor", tpm=60),
        limited("busy", streams=1),
        replace(limited("both", tpm=60), requests_per_second=1),
    )
    with counted(tmp_path / "g", *keys, mode="observe") as gateway:
        for name in ("debtor", "both"):
            assert gateway.ask_as(name, tokens=200).status == 200
            gateway.counted(name, 1)

        async def work(clients: Clients) -> list[Answer]:
            first = asyncio.ensure_future(clients.ask("busy", tokens=1000, stream=True))
            await asyncio.to_thread(eventually, lambda: gateway.leases("busy") == 1, SOON_S)
            return [await clients.ask("busy", tokens=1), await first]

        busy, _ = gateway.clients(work)
        answers = {"streams": busy, "tokens_per_minute": gateway.ask_as("debtor")}
        answers["limit_key_second"] = [gateway.ask_as("both") for _ in range(3)][-1]
        assert {answer.status for answer in answers.values()} == {200}
        ids = {answer.headers["x-request-id"]: mark for mark, answer in answers.items()}

        def marked() -> dict[str, str]:
            lines = [line for line in gateway.lines("access") if line["request_id"] in ids]
            return {line["request_id"]: line["would_refuse"] for line in lines}

        eventually(lambda: len(marked()) == len(ids), SOON_S)
        assert marked() == ids
        assert gateway.service.metric("budget_checks_total", key="busy", answer="would_streams") == 1


def test_limits_are_what_the_product_renders(gateway: Counted) -> None:
    rendered = json.loads(gateway.limits())
    assert rendered["keys"]["debtor"] == {"tpm": TPM, "streams": 0}
    assert gateway.service.state["limits"]["version"] == rendered["version"][:64]
