"""What the judge says of a body besides yes and no: words, forms, facts, models."""

from __future__ import annotations

import json
from typing import Any

import pytest
from policy.judge import Facts, Rules, Violation

from tests.judging import CHAT, COMPLETIONS, HI, LEAST, MESSAGES, MODEL, RESPONSES, judge, refusal, rendered, rules

SECRET = "my-secret-prompt"


def violation(path: str, body: Any, policy: str = "standard", **kwargs: Any) -> Violation:
    found = judge(policy, path, body, **kwargs).violation
    assert found is not None
    return found


# ---- words


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({}, "messages", "Missing required parameter: messages."),
        ({"messages": [{}]}, "messages[0].role", "Missing required parameter: messages[0].role."),
        (
            {"messages": [*HI, {"role": "user", "content": [{"text": 5}]}]},
            "messages[1].content[0].text",
            "Invalid type for messages[1].content[0].text: expected a string, found 5.",
        ),
        (
            {"messages": HI, "max_tokens": 131_073},
            "max_tokens",
            "Invalid value for max_tokens: expected at most 131072, found 131073.",
        ),
        (
            {"messages": HI, "temperature": 2.5},
            "temperature",
            "Invalid value for temperature: expected at most 2, found 2.5.",
        ),
        ({"messages": HI, "top_p": 0}, "top_p", "Invalid value for top_p: expected more than 0, found 0."),
        ({"messages": HI, "n": "2"}, "n", "Invalid type for n: expected an integer, found a string of 1 character."),
        ({"messages": HI, "stream": 1}, "stream", "Invalid type for stream: expected true or false, found 1."),
        ({"messages": HI, "stop": 1}, "stop", "Invalid type for stop: expected a string or a list, found 1."),
        (
            {"messages": HI, "logit_bias": {"5": "x"}},
            "logit_bias.5",
            "Invalid type for logit_bias.5: expected a number, found a string of 1 character.",
        ),
        (
            {"messages": [{"role": "wizard"}]},
            "messages[0].role",
            "Invalid value for messages[0].role: expected system, developer, user, assistant, tool, function or "
            "latest_reminder, found a string of 6 characters.",
        ),
        (
            {"messages": HI, "tools": [{"function": {"name": ""}}]},
            "tools[0].function.name",
            "Invalid value for tools[0].function.name: expected at least 1 character, found an empty string.",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_refusal_says_where_what_was_expected_and_what_was_found(body: Any, param: str, message: str) -> None:
    found = violation(CHAT, body)
    assert (found.status, found.type, found.param, found.message) == (400, "invalid_request_error", param, message)


@pytest.mark.parametrize(
    "body",
    [
        {"messages": SECRET},
        {"messages": [SECRET]},
        {"messages": [{"role": [SECRET]}]},
        {"messages": [{"role": "user", "content": {SECRET: SECRET}}]},
        {"messages": HI, "logit_bias": {f"{SECRET} {SECRET}": "x"}},
        {"messages": HI, f"{SECRET} {SECRET}": [[[[]]]] * 60, "max_tokens": SECRET},
        {"messages": HI, "structured_outputs": {"json_object": SECRET}},
        {"messages": HI, "model": [SECRET]},
        SECRET,
        f'{{"messages": [{{"role": "user", "content": "{SECRET}" x'.encode(),
        f'{{"{SECRET}": NaN}}'.encode(),
        f'{{"messages": "{SECRET}\\ud800"}}'.encode(),
        f'{{"{SECRET} {SECRET}": {"[" * 200}{"]" * 200}}}'.encode(),
        f'{{"messages": "{SECRET} é"}}'.encode("latin-1"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_no_refusal_repeats_what_the_client_wrote(body: Any) -> None:
    found = violation(CHAT, body)
    assert SECRET not in found.message and SECRET not in str(found.param)


@pytest.mark.parametrize("number", [10**60, -(10**200), 1.23456789e-300, 123456789.123456789])
def test_a_number_is_repeated_only_while_it_is_short(number: float) -> None:
    assert len(violation(CHAT, {"messages": HI, "n": number}).message) < 110


@pytest.mark.parametrize(
    ("raw", "code", "said"),
    [
        (b"", "invalid_json", "empty"),
        (b" \n", "invalid_json", "empty"),
        (b"{", "invalid_json", "line 1"),
        (b'{"a": 1,}', "invalid_json", "trailing comma"),
        (b"{} {}", "invalid_json", "line 1 column 4"),
        (b'{"temperature": -Infinity}', "invalid_json", "NaN and Infinity"),
        (b'{"x": nan}', "invalid_json", "not valid JSON"),
        (b"\xef\xbb\xbf{}", "invalid_encoding", "byte order mark"),
        ("{}".encode("utf-16"), "invalid_encoding", "UTF-8"),
        ("{}".encode("utf-16-le"), "invalid_encoding", "UTF-8"),
        ("{}".encode("utf-16-be"), "invalid_encoding", "UTF-8"),
        ("{}".encode("utf-32"), "invalid_encoding", "UTF-8"),
        (b'{"a": "\xc3"}', "invalid_encoding", "byte 7"),
        (b'{"a": "' + b"x" * 3_000_000 + b'\xff"}', "invalid_encoding", "byte 3000007"),
        (b'{"a": "' + "é".encode() * 1_500_000 + b'\xed\xa0\x80"}', "invalid_encoding", "byte 3000007"),
        (b'{"a": "' + "é".encode() * 1_500_000 + b"\xc3", "invalid_encoding", "byte 3000007"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_body_that_cannot_be_read_is_refused_in_words_that_help(raw: bytes, code: str, said: str) -> None:
    found = violation(CHAT, raw)
    assert found.code == code and said in found.message, found
    assert found.rule == "policy.shape"


def test_a_fault_far_down_a_long_list_is_found_and_its_field_named() -> None:
    long: list[Any] = [{"role": "user", "content": "x"}] * 6000
    assert refusal("standard", CHAT, {"messages": [*long, "wrong"]})[1] == "messages"  # type: ignore[index]
    assert refusal("standard", CHAT, {"messages": [*long[:400], "wrong"]})[1] == "messages[400]"  # type: ignore[index]
    assert refusal("standard", CHAT, {"messages": long}) is None


@pytest.mark.parametrize("name", ["5", "05", "-1", "99999999999999999999999", "", "٣"])
def test_a_name_of_digits_is_no_place_in_a_list(name: str) -> None:
    assert refusal("standard", CHAT, {"messages": HI, "logit_bias": {name: "x"}})[0] == "invalid_type"  # type: ignore[index]


def test_of_several_faults_the_field_of_the_schema_that_comes_first_is_told() -> None:
    assert violation(CHAT, {"top_p": 7, "messages": "x", "n": "x"}).param == "messages"


def test_of_an_anyof_the_branch_that_came_furthest_is_told() -> None:
    document = json.loads(rendered("off"))
    inner = {"type": "object", "properties": {"a": {"type": "object", "required": ["b"]}}}
    document["routes"] = {
        "/x": {"form": "openai", "schema": {"properties": {"f": {"anyOf": [{"type": "null"}, inner]}}}}
    }
    found = Rules.parse(json.dumps(document).encode()).judge("/x", b'{"f": {"a": {}}}').violation
    assert found and (found.code, found.param) == ("missing_required_parameter", "f.a.b")


def test_a_path_without_a_schema_takes_nothing() -> None:
    assert violation("/v1/embeddings", {"input": "x"}).status == 404


# ---- forms


def test_the_body_of_a_refusal_is_openais_error_or_anthropics() -> None:
    found = violation(MESSAGES, {**LEAST[MESSAGES], "max_tokens": 0})
    assert json.loads(found.body("openai", "r1")) == {
        "error": {
            "message": "Invalid value for max_tokens: expected at least 1, found 0.",
            "type": "invalid_request_error",
            "param": "max_tokens",
            "code": "integer_below_min_value",
            "request_id": "r1",
        }
    }
    assert json.loads(found.body("anthropic", "r1")) == {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "Invalid value for max_tokens: expected at least 1, found 0.",
        },
        "request_id": "r1",
    }


def test_anthropics_form_belongs_to_anthropics_routes() -> None:
    forms = {path: route["form"] for path, route in json.loads(rendered("standard"))["routes"].items()}
    assert forms == {path: "anthropic" if path.startswith("/v1/messages") else "openai" for path in LEAST}


# ---- facts


@pytest.mark.parametrize(
    ("path", "fields", "expected"),
    [
        (CHAT, {}, None),
        (CHAT, {"max_tokens": 5}, 5),
        (CHAT, {"max_tokens": 5.0}, 5),
        (CHAT, {"max_tokens": 5, "max_completion_tokens": 9}, 9),
        (CHAT, {"max_tokens": 5, "max_completion_tokens": None}, 5),
        (CHAT, {"max_tokens": 5, "max_completion_tokens": 0}, 0),
        (COMPLETIONS, {"max_tokens": 5, "max_completion_tokens": 9}, 5),
        (RESPONSES, {"max_output_tokens": 7, "max_tokens": 5}, 7),
        (MESSAGES, {"max_tokens": 3}, 3),
        (CHAT, {"max_tokens": "5"}, None),
        (CHAT, {"max_tokens": 5.5}, None),
        (CHAT, {"max_tokens": 1e300}, None),
        (CHAT, {"max_tokens": True}, None),
    ],
)
def test_the_length_that_is_told_is_the_one_the_engine_goes_by(path: str, fields: Any, expected: int | None) -> None:
    assert judge("standard", path, {**LEAST[path], **fields}).facts.max_tokens == expected


def test_facts_are_told_of_a_refused_body_as_far_as_they_are_there() -> None:
    verdict = judge("standard", CHAT, {"model": MODEL, "stream": True, "messages": "x"})
    assert verdict.violation and verdict.facts == Facts(MODEL, None, True)
    assert judge("standard", CHAT, b"{").facts == judge("standard", CHAT, []).facts == Facts(None, None, None)
    assert judge("standard", CHAT, {"model": "x" * 1000, "stream": "yes"}).facts == Facts("x" * 128, None, None)


# ---- models


def test_a_model_that_is_not_the_callers_is_not_found() -> None:
    found = violation(CHAT, {**LEAST[CHAT], "model": "other"}, models=frozenset({MODEL}))
    assert (found.status, found.code, found.param, found.rule) == (404, "model_not_found", "model", "key.models")
    assert found.type == "not_found_error" and "other" in found.message


@pytest.mark.parametrize("body", [{"messages": HI}, {"messages": HI, "model": None}, {"messages": HI, "model": ""}])
def test_a_request_without_a_model_asks_for_the_served_one(body: Any) -> None:
    assert judge("standard", CHAT, body, models=frozenset({MODEL})).violation is None
    assert violation(CHAT, body, models=frozenset({"other"})).code == "model_not_found"


@pytest.mark.parametrize("path", list(LEAST))
def test_models_are_checked_on_every_route(path: str) -> None:
    assert violation(path, LEAST[path], models=frozenset({"other"})).rule == "key.models"
    assert judge("standard", path, LEAST[path], models=frozenset({MODEL, "x"})).violation is None


def test_of_a_model_named_twice_the_last_one_counts() -> None:
    raw = b'{"model": "mine", "messages": [{"role": "user", "content": "x"}], "mod\\u0065l": "other"}'
    assert violation(CHAT, raw, models=frozenset({"mine"})).rule == "key.models"


def test_where_shape_is_only_observed_no_other_fault_hides_a_model_that_is_not_the_callers() -> None:
    mine = frozenset({"mine"})
    wrong = {"model": "other", "messages": "x"}
    assert violation(CHAT, wrong, mode="observe", models=mine).rule == "key.models"
    for raw in (b"\xef\xbb\xbf" + json.dumps(LEAST[CHAT]).encode(), json.dumps(LEAST[CHAT]).encode("utf-16")):
        assert violation(CHAT, raw, mode="observe", models=mine).rule == "key.models"
        assert violation(CHAT, raw, mode="observe").rule == violation(CHAT, raw, models=mine).rule == "policy.shape"


# ---- rules


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b"null", b'{"routes": 5}', b'{"routes": {"/x": {}}, "max_depth": 1, "mode": "x"}'],
    ids=repr,
)
def test_rules_that_are_not_complete_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        Rules.parse(data)


def test_a_schema_that_is_none_is_refused() -> None:
    document = json.loads(rendered("standard"))
    for schema in ({"type": "nonsense"}, {"$ref": "#/$defs/nowhere"}, {"properties": 5}):
        document["routes"]["/x"] = {"form": "openai", "schema": schema}
        with pytest.raises(ValueError):
            Rules.parse(json.dumps(document).encode())


def test_every_bound_of_a_policy_is_worked_into_a_schema() -> None:
    for policy in ("standard", "strict", "off"):
        assert b"x-bound" not in rendered(policy)
        assert set(rules(policy).routes) == set(LEAST)
