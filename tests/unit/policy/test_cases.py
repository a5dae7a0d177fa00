"""Requests that clients were reported to send, and what each policy says to them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.judging import CHAT, HI, LEAST, MODEL, POLICIES, judge, refusal

CASES = Path(__file__).parents[2] / "fixtures/cases"
BOUNDED = ("standard", "strict")  # policies with bounds


def lines(name: str) -> list[bytes]:
    return [line for line in (CASES / name).read_bytes().splitlines() if line]


def passes(policy: str, body: Any) -> bool:
    return judge(policy, CHAT, body).violation is None


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": HI, **fields}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("case", ["F03", "F04", "F05", "F06", "F07", "F08", "F10", "F11"])
def test_what_real_clients_send_passes_under_every_policy(policy: str, case: str) -> None:
    assert passes(policy, (CASES / f"{case}.json").read_bytes())


@pytest.mark.parametrize("temperature", [0, 0.0, -0.0, 0.001])
def test_greedy_decoding_passes_unless_the_policy_is_strict(temperature: float) -> None:  # F01
    body = {**json.loads((CASES / "F01.json").read_bytes()), "temperature": temperature}
    assert [policy for policy in POLICIES if not passes(policy, body)] == ["strict"]
    assert refusal("strict", CHAT, body)[1:] == ("temperature", "policy.temperature")  # type: ignore[index]


def test_the_least_temperature_of_the_strict_policy_passes() -> None:
    assert passes("strict", chat(temperature=0.01))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_both_names_of_the_length_are_under_the_same_bound(policy: str, name: str) -> None:  # F11
    most = {"strict": 8192, "standard": 131_072}.get(policy, 2**63 - 1)
    other = {"max_tokens": "max_completion_tokens"}.get(name, "max_tokens")
    assert passes(policy, chat(**{name: most, other: 1}))
    assert refusal(policy, CHAT, chat(**{name: most + 1, other: 1})) == (
        "integer_above_max_value",
        name,
        "policy.max_tokens",
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_whole_floats_are_integers_and_nothing_else_is(policy: str) -> None:  # F12
    good, fraction, text = lines("F12.txt")
    assert passes(policy, good)
    for body in (fraction, text):
        assert refusal(policy, CHAT, body) == ("invalid_type", "max_tokens", "policy.shape")
    assert "6000.5" in judge(policy, CHAT, fraction).violation.message  # type: ignore[union-attr]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("line", "code", "param"),
    [
        *[(0, "invalid_type", "messages"), (1, "invalid_type", "messages"), (2, "empty_array", "messages")],
        *[(3, "invalid_type", "messages[0]"), (4, "missing_required_parameter", "messages")],
        *[(5, "invalid_type", None), (6, "invalid_type", None), (7, "invalid_type", None)],
    ],
)
def test_messages_of_the_wrong_kind_are_refused_by_name(policy: str, line: int, code: str, param: str | None) -> None:
    assert refusal(policy, CHAT, lines("F13.txt")[line]) == (code, param, "policy.shape")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("depth", [100, 1000, 10_000, 100_000])
def test_nesting_passes_up_to_a_depth_that_tools_have_and_no_further(policy: str, depth: int) -> None:  # F14
    body = subprocess.run(
        [sys.executable, str(CASES / "F14.txt"), str(depth)], capture_output=True, check=True, timeout=30
    ).stdout
    if depth == 100:
        assert passes(policy, body)
    else:
        assert refusal(policy, CHAT, body)[0] == "nesting_too_deep"  # type: ignore[index]
    assert passes(policy, chat())


@pytest.mark.parametrize("policy", POLICIES)
def test_the_deepest_nesting_is_exactly_what_the_rules_say(policy: str) -> None:
    assert passes(policy, chat(metadata=nested(127)))
    assert refusal(policy, CHAT, chat(metadata=nested(128))) == ("nesting_too_deep", "metadata", "policy.shape")


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth - 1):
        found = [found]
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_numbers_that_json_does_not_have_are_refused_by_name(policy: str) -> None:  # F15
    names = ["temperature", "temperature", "top_p", "max_tokens"]
    assert [refusal(policy, CHAT, line) for line in lines("F15.txt")] == [
        ("invalid_json", name, "policy.shape") for name in names
    ]


@pytest.mark.parametrize("policy", POLICIES)
def test_half_a_surrogate_pair_is_refused_and_nul_is_a_character(policy: str) -> None:  # F16
    first, second, nul = lines("F16.txt")
    assert refusal(policy, CHAT, first) == refusal(policy, CHAT, second) == ("invalid_json", None, "policy.shape")
    assert passes(policy, nul)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_kills_the_engine_is_refused(policy: str) -> None:  # F18
    empty, false, good = lines("F18.txt")
    assert refusal(policy, CHAT, empty)[1] == "structured_outputs.json"  # type: ignore[index]
    assert refusal(policy, CHAT, false)[1] == "structured_outputs.json_object"  # type: ignore[index]
    assert passes(policy, good)


KILLERS: list[dict[str, Any]] = [
    *[{"json": {}}, {"json": " "}, {"json": False}, {"json_object": 0}, {"json_object": "false"}, {"choice": []}],
    *[{"regex": ""}, {"grammar": ""}, {"structural_tag": ""}, {"choice": [""]}, {"choice": "yes"}],
]
LEGACY = ["guided_json", "guided_regex", "guided_choice", "guided_grammar", "structural_tag"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("form", KILLERS, ids=str)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"])
def test_every_empty_constraint_is_refused_on_every_route_that_generates(policy: str, form: Any, path: str) -> None:
    name = next(iter(form))
    assert refusal(policy, path, {**LEAST[path], "structured_outputs": form})[1].startswith(  # type: ignore[index, union-attr]
        f"structured_outputs.{name}"
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_every_empty_constraint_is_refused_under_its_older_name(policy: str) -> None:
    for name in LEGACY:
        assert refusal(policy, CHAT, chat(**{name: [] if name == "guided_choice" else ""}))[1] == name  # type: ignore[index]
        assert passes(policy, chat(**{name: None}))
    assert refusal(policy, CHAT, chat(guided_json_object=False))[1] == "guided_json_object"  # type: ignore[index]
    assert passes(policy, chat(guided_json_object=True, guided_json={"type": "object"}, guided_choice=["yes"]))


@pytest.mark.parametrize("policy", BOUNDED)
def test_huge_counts_are_refused_and_two_answers_are_not(policy: str) -> None:  # F19
    *bad, good = lines("F19.txt")
    names = ["n", "n", "prompt_logprobs", "top_logprobs"]
    rules = ["policy.n", "policy.n", "policy.prompt_logprobs", "policy.logprobs"]
    assert [refusal(policy, CHAT, line)[1:] for line in bad] == list(zip(names, rules, strict=True))  # type: ignore[index]
    assert passes(policy, good)


def test_without_bounds_n_is_still_what_an_engine_can_take() -> None:
    assert [refusal("off", CHAT, chat(n=n)) is None for n in (0, 1, 16_384, 16_385, 1_000_000)] == [
        *[False, True, True, False, False]
    ]


@pytest.mark.parametrize("policy", POLICIES)
def test_odd_numbers_get_the_verdict_that_is_due(policy: str) -> None:  # F20
    found = [refusal(policy, CHAT, line) for line in lines("F20.txt")]
    always = {0: "top_k", 2: "top_p", 3: "top_p", 9: "seed"}
    in_bounds = {"off": {}, "standard": {1: "temperature", 6: "max_tokens"}}.get(
        policy, {1: "temperature", 4: "temperature", 5: "max_tokens", 6: "max_tokens"}
    )
    assert {index: one[1] for index, one in enumerate(found) if one} == {**always, **in_bounds}


@pytest.mark.parametrize("policy", POLICIES)
def test_bytes_that_are_not_utf_8_are_called_so(policy: str) -> None:  # F21
    violation = judge(policy, CHAT, lines("F21.txt")[0]).violation
    assert violation and violation.code == "invalid_encoding" and "UTF-8" in violation.message


def good_bodies() -> Iterator[Any]:
    for case in json.loads((CASES / "F22.json").read_bytes()):
        yield pytest.param(case["body"], id=case["client"])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("body", good_bodies())
def test_the_floor_for_every_validator_holds(policy: str, body: Any) -> None:  # F22; the engine judges stream_options
    assert passes(policy, body)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_bad_field_is_found_at_the_end_of_a_large_body_as_at_its_beginning(policy: str) -> None:  # E13
    large = {"messages": [{"role": "user", "content": "y" * 2_000_000}]}
    bad = {"max_tokens": "1000"}
    last, first = json.dumps({**large, **bad}).encode(), json.dumps({**bad, **large}).encode()
    assert judge(policy, CHAT, last).violation == judge(policy, CHAT, first).violation
    assert refusal(policy, CHAT, last)[1] == "max_tokens"  # type: ignore[index]
