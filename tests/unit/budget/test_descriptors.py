"""What the gateway says: read whole, in any form in which Envoy writes metadata, and never more than it said."""

from __future__ import annotations

import pytest
from budget.core.descriptors import BadDescriptor, Check, Ended, Refused, Release, check, read, result_of
from hypothesis import given
from hypothesis import strategies as st

WHO = {"client": "alice", "id": "r-1"}
CHARGE = {"op": "charge", **WHO}


def test_a_check_names_the_gateway_and_its_boot() -> None:
    said = check({**WHO, "boot": "gw:77:x", "path": "/v1/messages", "key_id": "ab12"})
    assert said == Check("alice", "r-1", "/v1/messages", "ab12", "gw", "77:x")


def test_a_check_without_a_boot_id_is_still_a_check() -> None:
    assert check({**WHO, "boot": "-"}) == Check("alice", "r-1", "", "", "-", "")


def test_a_refusal_of_the_gateway_itself() -> None:
    told = {"path": "/v1/messages", "key_id": "ab12", "reason": "limit_key_minute"}
    assert read({"op": "refused", **WHO, **told}) == Refused("alice", "ab12", "/v1/messages", "limit_key_minute")
    assert read({"op": "refused", **WHO, "reason": "-"}) == Refused("alice", "", "", "")


def test_a_release() -> None:
    assert read({"op": "release", **WHO}) == Release("alice", "r-1")


def test_a_charge_with_everything() -> None:
    told = {"status": "200", "flags": "-", "total": "31", "prompt": "11", "completion": "20", "cached": "8"}
    said = read({**CHARGE, **told, "key_id": "ab12", "model": "m", "path": "/v1/completions", "estimated": "true"})
    assert said == Ended("alice", "r-1", "ab12", "m", "/v1/completions", 200, "ok", 31, 11, 20, 8, True)


@pytest.mark.parametrize("total", ["", "-"])
def test_without_a_total_prompt_and_completion_are_charged(total: str) -> None:
    said = read({**CHARGE, "total": total, "prompt": "11", "completion": "20.0"})
    assert isinstance(said, Ended) and said.total == 31


def test_a_total_of_nothing_is_a_total() -> None:
    said = read({**CHARGE, "total": "0", "prompt": "11"})
    assert isinstance(said, Ended) and said.total == 0


@pytest.mark.parametrize(("raw", "number"), [("7", 7), ("7.0", 7), ("1e3", 1000), ("-5", 0), ("1e30", 10**12)])
def test_numbers_as_lua_writes_them_within_bounds(raw: str, number: int) -> None:
    said = read({**CHARGE, "total": raw})
    assert isinstance(said, Ended) and (said.total, said.flawed) == (number, False)


@pytest.mark.parametrize("raw", ["%RESPONSE_CODE%", "nan", "inf", "true", "7 "[::-1] + "x"])
def test_a_figure_that_is_none_is_nothing_but_is_noticed_and_the_rest_counts(raw: str) -> None:
    said = read({**CHARGE, "total": raw, "prompt": "11", "completion": "20"})
    assert isinstance(said, Ended) and (said.total, said.flawed) == (31, True)


def test_cached_tokens_are_a_part_of_the_prompt() -> None:
    said = read({**CHARGE, "prompt": "5", "cached": "9"})
    assert isinstance(said, Ended) and said.cached == 5


NOBODY = ({}, {"op": "check"}, {"op": "release", "client": "a"}, {"op": "charge", "id": "r"}, {"op": "other", **WHO})


@pytest.mark.parametrize("entries", [*NOBODY, {"op": "release", "client": "-", "id": "r"}])
def test_what_names_no_request_is_refused(entries: dict[str, str]) -> None:
    with pytest.raises(BadDescriptor):
        read(entries)


@pytest.mark.parametrize("entries", [{}, {"client": "a"}, {"id": "r"}, {"client": "-", "id": "r"}])
def test_a_check_that_names_no_request_is_refused(entries: dict[str, str]) -> None:
    with pytest.raises(BadDescriptor):
        check(entries)


@pytest.mark.parametrize(
    ("status", "flags", "result"),
    [
        (200, "-", "ok"),
        (200, "", "ok"),
        (200, "DC", "left"),
        (0, "DC", "left"),
        (200, "UR", "cut"),
        (200, "UPE,DC", "left"),
        (0, "-", "cut"),
        (400, "-", "refused"),
        (429, "RL", "refused"),
        (503, "UH", "failed"),
    ],
)
def test_one_word_for_each_end(status: int, flags: str, result: str) -> None:
    assert result_of(status, flags) == result


NAMES = st.sampled_from(["op", "client", "id", "status", "total", "prompt", "cached", "boot", "flags", "estimated"])


@given(st.dictionaries(NAMES, st.one_of(st.text(max_size=300), st.sampled_from(["check", "release", "charge"]))))
def test_nothing_that_is_said_breaks_the_reader(entries: dict[str, str]) -> None:
    try:
        said = read(entries)
    except BadDescriptor:
        return
    assert said.client and said.id
