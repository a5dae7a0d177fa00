"""The table of keys that the gateway's script carries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from control.core import key_table, planning, policies
from control.core.model import ApiKey, FormerDigest, Host
from control.core.policies import Governance
from control.core.settings import Settings
from tests.sources import SOURCES

ALICE = ApiKey("alice", "tests", "0a" * 32, "2026-01-01T00:00:00Z")
BOB = replace(ALICE, name="bob", digest="0b" * 32)


def rules(**limits: int) -> Governance:
    """Without a limit of streams, which the policy has, unless it is given."""
    limits = {"streams": 0, **limits}
    settings = Settings.model_validate({"engine": {"kind": "stub"}, "gateway": {"limits": limits}})
    return policies.govern(settings, planning.plan_capacity(settings, Host()), policies.chosen(settings, SOURCES))


def test_a_key_without_limits_of_its_own_has_the_policys() -> None:
    table = key_table.table([ALICE], rules(requests_per_second=20, requests_per_minute=600))
    costs = 'cost_second = 50000000, per_minute = 600, cost_minute = 1663894, shape_minute = "many"'
    assert table.limits == (f'["20/600"] = {{per_second = 20, {costs}}},',)
    assert table.keys == (f'["{"0a" * 32}"] = {{name = "alice", limits = LIMITS["20/600"]}},',)


def test_a_keys_own_limits_are_stronger_and_zero_is_none() -> None:
    own = replace(BOB, requests_per_second=0, requests_per_minute=5)
    table = key_table.table([own, ALICE], rules(requests_per_second=20, requests_per_minute=0))
    assert table.limits == (
        '["0/5"] = {per_minute = 5, cost_minute = 166666667, shape_minute = "5"},',
        '["20/0"] = {per_second = 20, cost_second = 50000000},',
    )
    assert [row.partition("limits = ")[2] for row in table.keys] == ['LIMITS["20/0"]},', 'LIMITS["0/5"]},']


def test_expiry_is_unix_seconds_and_models_are_one_text() -> None:
    table = key_table.table([replace(ALICE, expires="2026-01-31T09:00:00Z", models=("a/b", "c"))], rules())
    assert 'expires = 1769850000, models = "a/b,c"}' in table.keys[0]


def test_a_former_secret_is_the_same_key_until_it_ends_and_never_longer_than_the_key() -> None:
    former = (FormerDigest("0c" * 32, "2026-01-31T09:00:00Z"), FormerDigest("0d" * 32, "2026-03-31T09:00:00Z"))
    key = replace(ALICE, expires="2026-02-28T09:00:00Z", former=former)
    ends = {row[2:4]: row.partition("expires = ")[2] for row in key_table.table([key], rules()).keys}
    assert ends == {"0a": "1772269200},", "0c": "1769850000},", "0d": "1772269200},"}
    assert all('name = "alice"' in row for row in key_table.table([key], rules()).keys)


def test_the_order_of_the_keys_changes_nothing() -> None:
    assert key_table.table([ALICE, BOB], rules()) == key_table.table([BOB, ALICE], rules())


def test_no_text_can_leave_its_quotes() -> None:
    table = key_table.table([replace(ALICE, name='a"b\\c\nd', models=("é]]",))], rules())
    assert r'name = "a\034b\092c\010d"' in table.keys[0]
    assert r'models = "\195\169]]"' in table.keys[0]


def test_a_former_digest_stands_for_the_same_key_until_its_own_end() -> None:
    key = replace(ALICE, models=("m",), former=(FormerDigest("0c" * 32, "2026-01-31T09:00:00Z"),))
    new, old = key_table.table([key], rules()).keys
    assert new == f'["{"0a" * 32}"] = {{name = "alice", limits = LIMITS["20/600"], models = "m"}},'
    assert (
        old == f'["{"0c" * 32}"] = {{name = "alice", limits = LIMITS["20/600"], expires = 1769850000, models = "m"}},'
    )


@pytest.mark.parametrize(
    ("everybody", "own", "counted"),
    [
        ({}, {}, False),
        ({"streams": 64}, {}, True),
        ({"tokens_per_minute": 1000}, {}, True),
        ({"streams": 64}, {"streams": 0}, False),
        ({"streams": 64, "tokens_per_minute": 1000}, {"streams": 0}, True),
        ({"streams": 64, "tokens_per_minute": 1000}, {"streams": 0, "tpm": 0}, False),
        ({}, {"tpm": 1}, True),
        ({}, {"streams": 1, "tpm": 0}, True),
    ],
)
def test_a_key_is_asked_for_only_if_it_has_a_limit_of_tokens_or_streams(
    everybody: dict[str, int], own: dict[str, int], counted: bool
) -> None:
    (row,) = key_table.table([replace(ALICE, **own)], rules(**everybody)).keys  # type: ignore[arg-type]
    assert ("budget = true" in row) is counted


def test_of_a_rotated_key_both_digests_are_counted() -> None:
    key = replace(ALICE, tpm=5, former=(FormerDigest("0c" * 32, "2026-01-31T09:00:00Z"),))
    assert [row.endswith(", budget = true},") for row in key_table.table([key], rules()).keys] == [True, True]
