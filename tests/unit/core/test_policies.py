"""Policies: the shipped ones say what was promised, and a file that cannot be meant is told whole."""

from __future__ import annotations

import pytest
import yaml
from pydantic import ValidationError

from control.core import planning, policies
from control.core.errors import FlashboxError
from control.core.model import Host
from control.core.policies import Governance, Policy
from control.core.settings import Settings
from tests.sources import SOURCES

STRICT = "config/policies/strict.yaml"


def shipped(name: str) -> Policy:
    path = f"config/policies/{name}.yaml"
    return policies.parse(SOURCES[path], path)


def governance(policy: str = "standard", kind: str = "stub", **gateway: object) -> Governance:
    settings = Settings.model_validate(
        {"engine": {"kind": kind, "max_model_len": 4096}, "gateway": {"policy": policy, **gateway}}
    )
    plan = planning.plan_capacity(settings, Host())
    return policies.govern(settings, plan, policies.chosen(settings, SOURCES))


def complaints(changed: dict[str, object], path: str = STRICT) -> list[str]:
    text = yaml.safe_dump({**yaml.safe_load(SOURCES[STRICT]), **changed})
    with pytest.raises(FlashboxError) as caught:
        policies.parse(text, path)
    return caught.value.what.split("\n")


def test_strict_has_the_numbers_that_were_written_down() -> None:
    rules = governance("strict")
    assert rules.bounds["max_tokens"][1] == 8192
    assert rules.bounds["temperature"][0] == 0.01
    assert rules.max_body_bytes == 262_144_000
    assert (rules.max_connections, rules.max_pending_requests, rules.max_requests) == (1000, 1000, 10_000)
    assert (rules.idle_timeout_s, rules.route_timeout_s) == (300, 300)
    assert min(rules.key_per_second, rules.key_per_minute, rules.ip_per_second, rules.ip_per_minute) > 0
    assert (rules.tokens_per_minute, rules.streams) == (0, 0)  # nobody wrote these down


def test_standard_lets_agents_work() -> None:
    rules = governance("standard")
    assert rules.bounds["temperature"][0] == 0
    assert rules.bounds["max_tokens"] == (0, 4096)
    assert rules.max_body_bytes == 32 * 1024 * 1024
    assert (rules.route_timeout_s, rules.idle_timeout_s, rules.max_stream_s) == (0, 300, 14_400)
    assert (rules.key_per_second, rules.key_per_minute, rules.ip_per_second, rules.ip_per_minute) == (20, 600, 0, 0)
    assert (rules.tokens_per_minute, rules.streams) == (0, 64)


def test_off_bounds_and_limits_nothing() -> None:
    rules = governance("off")
    assert rules.bounds == {}
    assert (rules.key_per_second, rules.key_per_minute, rules.ip_per_second, rules.ip_per_minute) == (0, 0, 0, 0)
    assert (rules.tokens_per_minute, rules.streams) == (0, 0)
    assert rules.max_stream_s > 0


def test_every_shipped_file_is_named_after_its_policy_and_the_setting_knows_each() -> None:
    names = {path.rpartition("/")[2].removesuffix(".yaml") for path in SOURCES if path.startswith("config/policies/")}
    assert names == {"standard", "strict", "off"} == {shipped(name).policy for name in names}


def test_a_setting_is_stronger_than_the_policy_and_zero_is_a_value() -> None:
    rules = governance("strict", limits={"requests_per_second": 0, "requests_per_minute": 7}, route_timeout_s=0)
    assert (rules.key_per_second, rules.key_per_minute, rules.route_timeout_s) == (0, 7, 0)
    assert governance("strict", max_body_mib=1).max_body_bytes == 1_048_576
    assert governance("standard", idle_timeout_s=1.5, max_stream_s=2).idle_timeout_s == 1.5
    more = governance("strict", max_requests=5)
    assert (more.max_connections, more.max_pending_requests, more.max_requests) == (5, 5, 5)


def test_budgets_of_the_settings_are_stronger_than_the_policys() -> None:
    rules = governance("standard", limits={"tokens_per_minute": 1_000_000_000, "streams": 0})
    assert (rules.tokens_per_minute, rules.streams) == (1_000_000_000, 0)
    assert governance("off", limits={"streams": 100_000}).streams == 100_000


@pytest.mark.parametrize("more", [{"tokens_per_minute": 1_000_000_001}, {"streams": 100_001}, {"streams": -1}])
def test_a_budget_beyond_what_can_be_counted_is_refused(more: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        governance(limits=more)


@pytest.mark.parametrize(
    ("replicas", "autoscaler", "affinity", "found"),
    [
        (1, {}, None, "none"),
        (2, {}, None, "prefix"),
        (2, {"enabled": True, "min_replicas": 1}, None, "prefix"),  # the standby one counts
        (1, {}, "session", "session"),
        (4, {}, "none", "none"),
        (4, {}, "session", "session"),
    ],
)
def test_conversations_stay_on_a_replica_where_there_are_several(
    replicas: int, autoscaler: dict[str, object], affinity: str | None, found: str
) -> None:
    settings = Settings.model_validate(
        {"engine": {"kind": "stub", "replicas": replicas}, "autoscaler": autoscaler, "gateway": {"affinity": affinity}}
    )
    plan = planning.plan_capacity(settings, Host())
    assert policies.govern(settings, plan, policies.chosen(settings, SOURCES)).affinity == found


def test_breakers_of_the_engines_follow_replicas_and_their_seats() -> None:
    assert governance("standard").max_requests == 2 * 2 * 64  # two stubs with 64 seats, and as many waiting


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"policy": "standard"}, "policy: expected the name of the file, found standard"),
        ({"policy": "tight"}, "policy: Input should be 'standard', 'strict' or 'off'"),
        ({"validate": "shape"}, "bounds: expected none, since validate is shape"),
        ({"bounds": {"max_token": {}}}, "bounds.max_token: unknown bound (did you mean max_tokens?)"),
        ({"bounds": {"xyz": {}}}, "bounds.xyz: unknown bound (known: max_tokens, temperature, n, logprobs, "),
        ({"bounds": {"n": {"minimum": 9, "maximum": 8}}},
         "bounds.n: expected a minimum up to the maximum, found 9 above 8"),
        ({"bounds": {"n": {"minimum": 1, "max": 8}}}, "bounds.n.max: Extra inputs are not permitted"),
        ({"bounds": {"n": {"minimum": True}}}, "bounds.n.minimum: Input should be a valid number"),
        ({"body_mib": 0}, "body_mib: Input should be greater than or equal to 1"),
        ({"timeouts": {"route_s": 0, "idle_s": 0, "max_stream_s": 1}}, "timeouts.idle_s: Input should be greater"),
        ({"breakers": {"max_connections": 0, "max_pending_requests": 1, "max_requests": 1}},
         "breakers.max_connections"),
        ({"extra": 1}, "extra: Extra inputs are not permitted"),
    ],
)  # fmt: skip
def test_a_policy_that_cannot_be_meant_is_told_with_its_place(changed: dict[str, object], line: str) -> None:
    assert complaints(changed)[0].startswith(f"{STRICT}: {line}")


def test_everything_wrong_in_a_policy_is_told_at_once() -> None:
    assert len(complaints({"policy": "off", "bounds": {"nn": {}, "n": {"minimum": 2, "maximum": 1}}})) == 3


def test_an_open_end_is_no_bound() -> None:
    text = SOURCES[STRICT].replace("n: {minimum: 1, maximum: 8}", "n: {minimum: null, maximum: 8}")
    bound = policies.parse(text, STRICT).bounds["n"]
    assert (bound.minimum, bound.maximum) == (None, 8)


def test_a_missing_policy_is_named() -> None:
    with pytest.raises(FlashboxError, match=r"config/policies/standard\.yaml: missing"):
        policies.chosen(Settings(), {})
