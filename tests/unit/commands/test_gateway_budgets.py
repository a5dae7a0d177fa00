"""`gateway status`: balances, leases, affinity, and whether requests pass unchecked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from control.adapters import image_builder
from control.steps import budget_look, gateway_live, ready, replicas
from tests.unit.live_gateway import LiveWorld
from tests.unit.world import Operator, gateway

ALLOWED = "cluster.vllm.ratelimit.budget.failure_mode_allowed"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveWorld]:
    for module in (ready, replicas, gateway_live):
        monkeypatch.setattr(module, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(budget_look, "LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(image_builder, "build_all", lambda *_: [])
    with gateway() as (address, _):
        yield LiveWorld(address=address)


@pytest.fixture
def operator(tmp_path: Path, world: LiveWorld) -> Operator:
    made = Operator(tmp_path, world)
    result = made.types("up", "--profile", "stub")
    assert result.exit_code == 0, result.output
    return made


def status(operator: Operator) -> dict[str, Any]:
    result = operator.types("gateway", "status", "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def shown(operator: Operator) -> str:
    return " ".join(operator.types("gateway", "status").stdout.split())


def test_each_key_is_shown_with_what_it_has_left_and_what_it_runs(operator: Operator, world: LiveWorld) -> None:
    keys = [{"key": "alice", "tpm": 6000, "balance": -411, "wait_s": 4.1, "streams": 64, "leases": 3}]
    world.budget = {"keys": keys}
    (told,) = status(operator)["budget"]["keys"]
    assert (told["tokens_left"], told["wait_s"], told["streams"], told["streams_limit"]) == (-411, 4.1, 3, 64)
    assert "alice 6,000 owes 411 100 in 4.1 s 3 64" in shown(operator)


def test_a_service_that_is_well_goes_by_the_rendered_limits(operator: Operator) -> None:
    told = status(operator)["budget"]
    assert (told["fails_open"], told["limits"]["applied"]) == ([], True)
    assert "budget check: answers" in shown(operator) and "FAILS OPEN" not in shown(operator)


def test_limits_that_are_rendered_and_not_taken_up_are_not_applied_yet(operator: Operator, world: LiveWorld) -> None:
    world.budget = {"limits": {"version": "0" * 64, "error": None}}
    assert status(operator)["budget"]["limits"]["applied"] is False
    assert "not applied yet" in shown(operator)


@pytest.mark.parametrize("broken", ["stopped", "mute", "unhealthy", "growing"])
def test_a_check_that_fails_open_is_the_first_thing_said_of_budgets(
    operator: Operator, world: LiveWorld, broken: str
) -> None:
    if broken == "stopped":
        world.status["budget"] = "exited"
    elif broken == "mute":
        world.budget = None
    elif broken == "unhealthy":
        world.clusters = "budget::172.31.78.4:9400::health_flags::/failed_active_hc\n"
    else:
        world.stats = [[f"{ALLOWED}: {number}"] for number in range(1, 9)]
    assert len(status(operator)["budget"]["fails_open"]) == 1
    assert "FAILS OPEN" in shown(operator)


def test_a_counter_that_stands_still_is_no_alarm(operator: Operator, world: LiveWorld) -> None:
    world.stats = [[f"{ALLOWED}: 5"]]
    told = status(operator)["budget"]
    assert (told["unchecked"], told["fails_open"]) == (5, [])


def test_affinity_is_shown_with_what_decided_it(operator: Operator) -> None:
    assert "affinity prefix (2 replicas)" in shown(operator)
    (operator.folder / "config/stack.yaml").write_text("gateway: {affinity: none}\n")
    rules = status(operator)["rules"]
    assert rules["affinity"] == "none" and "config/stack.yaml" in rules["affinity_from"]


def test_budgets_are_among_the_rules_with_their_origin(operator: Operator) -> None:
    text = "gateway: {limits: {tokens_per_minute: 1000000}}\n"
    (operator.folder / "config/stack.yaml").write_text(text)
    rules = {rule["rule"]: rule for rule in status(operator)["rules"]["values"]}
    assert (rules["streams"]["value"], rules["streams"]["from"]) == (64, "policy")
    assert rules["tokens_per_minute"]["value"] == 1_000_000
    assert "tokens_per_minute 1000000 config/stack.yaml" in shown(operator)
