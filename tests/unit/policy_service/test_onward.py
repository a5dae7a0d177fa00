"""What goes on to the engine: the client's own bytes, with a few members before the last brace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy.body import PIECE, Body
from policy.judge import Facts, Violation
from policy.judgement import Judgement, Question, judge
from policy.onward import AS_IT_IS, CHAT, GENERATING, Onward, Wishes, plan

from tests.judging import rules

ALL = Wishes(usage=True, affinity="prefix")
NOTHING = Wishes()
CASES = Path(__file__).parents[2] / "fixtures/cases"
HI = [{"role": "user", "content": "hi"}]
BOTH = {"include_usage": True, "continuous_usage_stats": True}
NULLS = ',"tools":null'


def planned(document: Any, wishes: Wishes = NOTHING, path: str = CHAT) -> Onward:
    return plan(wishes, path, json.dumps(document).encode(), document)


def sent(raw: bytes, onward: Onward) -> bytes:
    body = Body()
    body.append(raw)
    body.insert(onward.at, onward.added.encode())
    return b"".join(body.pieces())


# ---- members for the engine


@given(
    st.dictionaries(st.text('abc{}"\\ é', max_size=5), st.text('{}"\\,: é') | st.integers() | st.none(), max_size=4),
    st.booleans(),
    st.booleans(),
    st.text(" \t\r\n", max_size=3),
)
def test_the_rest_of_a_body_stays_byte_for_byte(fields: dict[str, Any], tools: bool, stream: bool, space: str) -> None:
    document = {**fields, **({"tools": []} if tools else {}), **({"stream": True} if stream else {})}
    raw = (space + json.dumps(document, ensure_ascii=False, indent=len(space)) + space).encode()
    onward = plan(ALL, CHAT, raw, document)
    said = sent(raw, onward)
    wanted = {**document, **({"tools": None} if tools else {}), **({"stream_options": BOTH} if stream else {})}
    assert json.loads(said) == wanted
    assert bool(onward.added) == (tools or stream)
    assert said == raw[: onward.at] + onward.added.encode() + raw[onward.at :]


def test_the_reported_request_with_an_empty_list_of_tools_becomes_one_without_tools() -> None:  # F04
    raw = (CASES / "F04.json").read_bytes()
    judged = judge(rules("standard"), Question(CHAT, None, NOTHING), raw)
    assert judged.violation is None
    assert json.loads(sent(raw, judged.onward)) == {**json.loads(raw), "tools": None}


@pytest.mark.parametrize(
    "choice, added",
    [
        ({}, NULLS),
        ({"tool_choice": None}, NULLS),
        ({"tool_choice": "none"}, NULLS),
        ({"tool_choice": "auto"}, NULLS + ',"tool_choice":null'),
        ({"tool_choice": "required"}, ""),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, ""),
    ],
)
def test_a_choice_of_no_tools_is_none_unless_the_client_insists_on_one(choice: dict[str, Any], added: str) -> None:
    assert planned({"messages": HI, "tools": [], **choice}).added == added


@pytest.mark.parametrize("tools", [None, [{"type": "function"}], {}, "", 0, False])
def test_only_an_empty_list_of_tools_is_taken_away(tools: object) -> None:
    assert planned({"messages": HI, "tools": tools, "tool_choice": "auto"}) == AS_IT_IS


@pytest.mark.parametrize("path", [*GENERATING[1:], "/tokenize", "/v1/messages/count_tokens"])
def test_other_routes_take_an_empty_list_of_tools(path: str) -> None:
    assert planned({"messages": HI, "tools": []}, NOTHING, path) == AS_IT_IS


def test_members_are_added_together() -> None:
    onward = planned({"messages": HI, "stream": True, "tools": []}, ALL)
    assert json.loads("{" + onward.added[1:] + "}") == {"stream_options": BOTH, "tools": None}


def test_what_a_client_calls_an_option_does_not_make_the_body_twice_as_long() -> None:
    given = {"x": "y" * 100_000, "y" * 100_000: 1, "list": [1] * 1000, "include_usage": False, "short": 1}
    onward = planned({"messages": HI, "stream": True, "stream_options": given}, ALL)
    assert json.loads("{" + onward.added[1:] + "}") == {"stream_options": {"short": 1, **BOTH}}


# ---- facts for the gateway


def test_without_a_wish_nothing_is_said() -> None:
    onward = planned({"messages": HI, "stream": True})
    assert onward == AS_IT_IS and onward.facts(1000) == {}


@pytest.mark.parametrize("path", ["/tokenize", "/v1/messages/count_tokens", "/v1/models", ""])
def test_a_route_that_generates_nothing_has_no_facts(path: str) -> None:
    assert planned({"messages": HI, "stream": True}, ALL, path) == AS_IT_IS


@pytest.mark.parametrize("path", GENERATING)
def test_a_route_that_generates_has_all_of_them(path: str) -> None:
    field = {"/v1/completions": "prompt", "/v1/responses": "input"}.get(path, "messages")
    onward = planned({field: HI if field == "messages" else "hi"}, ALL, path)
    assert set(onward.facts(1000)) == {"strip", "prompt_estimate"} and onward.affinity is not None


def test_no_estimate_is_longer_than_the_context() -> None:
    onward = planned({"messages": [{"role": "user", "content": "a" * 8000}]}, ALL)
    assert onward.facts(10_000)["prompt_estimate"] == 2001
    assert onward.facts(1000)["prompt_estimate"] == 1000


def test_each_wish_stands_alone() -> None:
    document = {"messages": HI, "stream": True}
    one, two = planned(document, Wishes(usage=True)), planned(document, Wishes(affinity="prefix"))
    assert one.affinity is None and one.added and one.facts(99)["strip"] == "all"
    assert two.affinity is not None and not two.added and two.facts(99) == {}


def test_a_session_is_named_by_what_the_client_calls_it() -> None:
    names = [
        planned({"messages": HI, "seed": seed}, Wishes(affinity="session", session=name)).affinity
        for seed, name in enumerate(("a", "a", "b", None))
    ]
    assert names[0] == names[1] and len(set(names)) == 3 and None not in names


def test_a_body_that_only_the_engine_can_read_is_estimated_by_its_length() -> None:
    onward = plan(ALL, CHAT, b'{"temperature":NaN,"stream":true}' * 4, None)
    assert onward == Onward(strip="", prompt_estimate=33)
    assert plan(NOTHING, CHAT, b"{", None) == AS_IT_IS


# ---- on its way


def test_a_refused_body_is_not_looked_at_any_further() -> None:
    raw = b'{"messages":[{"role":"user","content":"hi"}],"stream":true,"tools":[],"max_tokens":-1}'
    question = Question(CHAT, None, ALL)
    enforced, observed = (judge(rules("standard", mode), question, raw) for mode in ("enforce", "observe"))
    assert enforced.violation is not None and enforced.onward == AS_IT_IS
    assert observed.violation is not None and json.loads(sent(raw, observed.onward))["tools"] is None


@pytest.mark.parametrize("models", [None, frozenset({"a", "b"})])
def test_a_question_arrives_as_it_was_asked(models: frozenset[str] | None) -> None:
    question = Question(CHAT, models, Wishes(True, "session", "s"))
    assert Question.load(json.loads(json.dumps(question.dump()))) == question


@pytest.mark.parametrize("violation", [None, Violation(400, "c", "t", "m", None, "r")])
def test_a_judgement_arrives_as_it_was_given(violation: Violation | None) -> None:
    judgement = Judgement(violation, Facts("m", 1, None), Onward(3, ',"a":1', "all", 7, "0011223344556677"))
    assert Judgement.load(json.loads(json.dumps(judgement.dump()))) == judgement


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("size", [1, 100, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5])
@pytest.mark.parametrize("back", [0, 1, 70])
def test_bytes_are_inserted_where_they_belong(large: bool, size: int, back: int) -> None:
    raw, added = bytes(index % 251 for index in range(size)), b"0123456789" * 10
    at = max(0, size - back)
    body = Body()
    body.append(raw)
    if large:
        body.spill()
    body.insert(at, added)
    pieces = list(body.pieces())
    assert b"".join(pieces) == raw[:at] + added + raw[at:] and body.size == size + len(added)
    assert max(map(len, pieces)) <= PIECE
    body.close()
