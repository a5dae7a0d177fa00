"""run/budget/limits.json: what the budget service goes by, read back as the service reads it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from budget.core.limits import Limit, Limits

from control.core import budget_limits, limits, planning, policies
from control.core.header import is_rendered
from control.core.model import ApiKey, FormerDigest, Host
from control.core.policies import Governance
from control.core.settings import Settings
from tests.sources import SOURCES

ALICE = ApiKey("alice", "tests", "0a" * 32, "2026-01-01T00:00:00Z")
BOB = replace(ALICE, name="bob", digest="0b" * 32, tpm=6000)
EVE = replace(ALICE, name="eve", digest="0e" * 32, tpm=0, streams=2)


def rules(policy: str = "standard", **gateway: object) -> Governance:
    settings = Settings.model_validate({"engine": {"kind": "stub"}, "gateway": {"policy": policy, **gateway}})
    return policies.govern(settings, planning.plan_capacity(settings, Host()), policies.chosen(settings, SOURCES))


def rendered(*keys: ApiKey, **gateway: object) -> dict[str, Any]:
    text = budget_limits.limits_json(rules(**gateway), keys)  # type: ignore[arg-type]
    assert is_rendered(text)
    found: dict[str, Any] = json.loads(text)
    return found


def read(*keys: ApiKey, **gateway: object) -> Limits:
    """As the service takes it up."""
    return Limits.parse(budget_limits.limits_json(rules(**gateway), keys).encode())  # type: ignore[arg-type]


def test_everybody_has_the_limits_in_force_and_a_key_its_own_where_it_has_some() -> None:
    found = read(ALICE, BOB, EVE, limits={"tokens_per_minute": 1000})
    assert found.of("alice") == found.of("somebody") == Limit(1000, 64)
    assert found.of("bob") == Limit(6000, 64)
    assert found.of("eve") == Limit(0, 2)


def test_only_keys_with_limits_of_their_own_are_listed_and_nothing_else_of_them() -> None:
    found = rendered(EVE, ALICE, BOB)
    assert found["keys"] == {"bob": {"tpm": 6000}, "eve": {"tpm": 0, "streams": 2}}
    assert "0a0a" not in json.dumps(found) and "0b0b" not in json.dumps(found)


@pytest.mark.parametrize(("policy", "streams"), [("standard", 64), ("strict", 0), ("off", 0)])
def test_the_policy_decides_what_nobody_set(policy: str, streams: int) -> None:
    assert rendered(policy=policy)["default"] == {"tpm": 0, "streams": streams}


def test_the_longest_stream_and_the_mode_travel_along() -> None:
    assert read(max_stream_s=77).max_stream_s == 77
    assert (rendered()["observe"], rendered(mode="observe")["observe"]) == (False, True)


def test_the_same_limits_have_the_same_version_and_others_another() -> None:
    former = (FormerDigest("0c" * 32, "2026-01-31T09:00:00Z"),)
    same = (rendered(ALICE, BOB), rendered(BOB), rendered(replace(BOB, former=former, requests_per_second=1), ALICE))
    assert len({found["version"] for found in same}) == 1
    others = (rendered(), rendered(EVE), rendered(BOB, mode="observe"), rendered(BOB, max_stream_s=7))
    assert len({found["version"] for found in (*same, *others)}) == 1 + len(others)


def test_the_largest_limits_that_a_key_can_have_are_taken_up() -> None:
    most = replace(ALICE, tpm=limits.MOST_TOKENS, streams=limits.MOST_STREAMS)
    assert read(most).of("alice") == Limit(limits.MOST_TOKENS, limits.MOST_STREAMS)
