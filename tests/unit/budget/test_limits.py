"""limits.json: whole or refused, with the place that is wrong."""

from __future__ import annotations

import json

import pytest
from budget.core.limits import LONGEST_STREAM_S, Limit, Limits

GOOD = {
    "version": "abc",
    "max_stream_s": 1800,
    "default": {"tpm": 0, "streams": 64},
    "keys": {"alice": {"tpm": 6000, "streams": 4}, "bob": {"tpm": 100}, "carol": {"streams": 0}},
}


def test_a_key_has_its_own_limits_and_the_default_for_what_it_does_not_say() -> None:
    limits = Limits.parse(json.dumps(GOOD).encode())
    assert limits.of("alice") == Limit(6000, 4)
    assert limits.of("bob") == Limit(100, 64)
    assert limits.of("carol") == Limit(0, 0)
    assert limits.of("anybody") == Limit(0, 64)
    assert (limits.version, limits.max_stream_s) == ("abc", 1800.0)


@pytest.mark.parametrize("longest", [0, None])
def test_without_a_longest_stream_a_lease_ends_after_a_day(longest: object) -> None:
    assert Limits.parse(json.dumps({**GOOD, "max_stream_s": longest}).encode()).max_stream_s == LONGEST_STREAM_S


@pytest.mark.parametrize(("said", "meant"), [({}, False), ({"observe": False}, False), ({"observe": True}, True)])
def test_limits_are_in_force_unless_they_are_said_to_be_observed(said: dict[str, object], meant: bool) -> None:
    assert Limits.parse(json.dumps({**GOOD, **said}).encode()).observe is meant


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"default": None}, "default"),
        ({"default": {"tpm": "6000"}}, "default.tpm"),
        ({"default": {"tpm": -1}}, "default.tpm"),
        ({"keys": None}, "keys"),
        ({"keys": {"a": 5}}, "keys.a"),
        ({"keys": {"a": {"streams": 1.5}}}, "keys.a.streams"),
        ({"keys": {"a": {"streams": True}}}, "keys.a.streams"),
        ({"max_stream_s": "long"}, "max_stream_s"),
        ({"observe": "yes"}, "observe"),
        ({"observe": None}, "observe"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, object], where: str) -> None:
    with pytest.raises(ValueError, match=where):
        Limits.parse(json.dumps({**GOOD, **change}).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b"5"])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        Limits.parse(data)
