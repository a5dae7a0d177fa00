"""`explain` at a clone."""

from __future__ import annotations

import json

from tests.unit.world import Operator


def test_without_an_id_everything_is_listed(operator: Operator) -> None:
    result = operator.types("explain")
    assert result.exit_code == 0
    assert "policy.max_tokens" in result.stdout and "docker-daemon" in result.stdout
    listed = json.loads(operator.types("explain", "--json").stdout)
    assert {"policy.breakers", "key.models", "disk"} <= {entry["id"] for entry in listed}


def test_a_rule_is_told_with_the_value_of_this_clone_and_where_it_comes_from(operator: Operator) -> None:
    operator.stack_yaml("engine: {kind: stub}\ngateway: {limits: {requests_per_second: 7}}\n")
    result = operator.types("explain", "policy.requests_per_second")
    assert result.exit_code == 0
    assert "in force  7 (from gateway.limits.requests_per_second, config/stack.yaml)" in result.stdout
    assert "strict    20" in result.stdout
    told = json.loads(operator.types("explain", "policy.requests_per_second", "--json").stdout)
    assert (told["value"], told["policies"]["off"]) == ("7", "no limit")


def test_a_rule_is_told_also_where_nothing_can_be_planned(operator: Operator) -> None:
    result = operator.types("explain", "policy.breakers")  # kind gpu, and this machine has none
    assert result.exit_code == 0
    assert "in force  what the replicas run at once" in result.stdout


def test_a_check_is_explained_and_an_unknown_id_is_not(operator: Operator) -> None:
    assert "Docker Compose is 2.24" in operator.types("explain", "compose-version").stdout
    result = operator.types("explain", "policy.temprature")
    assert result.exit_code == 2
    assert "did you mean policy.temperature?" in result.stderr
