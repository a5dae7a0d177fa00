"""Nothing passes a bound: under no name, in no spelling, in no combination. And nothing good is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.fuzz_bodies import bodies
from tests.judging import (
    CHAT,
    COMPLETIONS,
    CONTEXT,
    COUNT,
    DETOKENIZE,
    HI,
    LEAST,
    MESSAGES,
    MODEL,
    POLICIES,
    RESPONSES,
    TOKENIZE,
    judge,
    refusal,
    rules,
)

BOUNDED = ("standard", "strict")
LENGTH = {"standard": (0, CONTEXT), "strict": (1, 8192)}
TEMPERATURE = {"standard": (0, 2), "strict": (0.01, 2)}
N, LOGPROBS = (1, 8), (0, 20)


def ends(policy: str, path: str) -> dict[str, tuple[float, float]]:
    """The numbers that an engine would look at on this route, with their bounds, written down once more."""
    length, temperature = LENGTH[policy], TEMPERATURE[policy]
    sampling = {"max_tokens": length, "max_completion_tokens": length, "temperature": temperature, "n": N}
    sampling |= {"best_of": N, "prompt_logprobs": LOGPROBS}
    return {
        CHAT: {**sampling, "top_logprobs": LOGPROBS},
        COMPLETIONS: {**sampling, "logprobs": LOGPROBS},
        RESPONSES: {"max_output_tokens": length, "temperature": temperature, "top_logprobs": LOGPROBS},
        MESSAGES: {"max_tokens": (1, length[1]), "temperature": temperature},
    }.get(path, {})


def beyond(policy: str, path: str, raw: bytes) -> list[str]:
    """What the engine would read in a body, with its own parser, that is not within the policy's bounds."""
    read = json.loads(raw)
    assert isinstance(read, dict)
    wrong = []
    for name, (low, high) in ends(policy, path).items():
        found = read.get(name)
        if found is None and not (path == MESSAGES and name == "max_tokens"):
            continue
        number = isinstance(found, (int, float)) and not isinstance(found, bool)
        if not number or not low <= found <= high or (name != "temperature" and found != int(found)):
            wrong.append(f"{name}={found!r}")
    return wrong


# ---- properties

NUMBERS = (
    st.integers(-(2**70), 2**70)
    | st.integers(-3, 9000)
    | st.floats()
    | st.sampled_from([8192, 8193, 8192.0, 8192.5, CONTEXT, CONTEXT + 1, 0.01, 0.0099, 2, 2.01, 1e400, 20, 21, 8, 9])
)
VALUES = NUMBERS | st.none() | st.booleans() | st.text(max_size=5) | st.sampled_from(["1000", "1e9", [], {}, [1]])
NAMES = st.sampled_from(
    [
        *["max_tokens", "max_completion_tokens", "max_output_tokens", "temperature", "n", "best_of", "logprobs"],
        *["top_logprobs", "prompt_logprobs"],
    ]
)
PATHS = st.sampled_from([CHAT, COMPLETIONS, RESPONSES, MESSAGES])
PAIRS = st.lists(st.tuples(NAMES, VALUES, st.booleans()), max_size=6)


def written(name: str, escaped: bool) -> str:
    return '"' + "".join(f"\\u{ord(letter):04x}" for letter in name) + '"' if escaped else f'"{name}"'


def with_pairs(path: str, pairs: list[tuple[str, Any, bool]]) -> bytes:
    """The least body and these, in this order, names more than once if it comes so."""
    least = [f"{json.dumps(name)}:{json.dumps(value)}" for name, value in LEAST[path].items()]
    more = [f"{written(name, escaped)}:{json.dumps(value)}" for name, value, escaped in pairs]
    return ("{" + ",".join([*least, *more]) + "}").encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("policy", BOUNDED)
@settings(max_examples=600, deadline=None)
@given(path=PATHS, pairs=PAIRS)
@example(path=CHAT, pairs=[("max_tokens", 5, False), ("max_tokens", 10**9, False)])
@example(path=CHAT, pairs=[("max_tokens", 5, False), ("max_tokens", 10**9, True)])
@example(path=CHAT, pairs=[("max_tokens", True, False)])
@example(path=MESSAGES, pairs=[("max_tokens", None, False)])
def test_what_passes_is_within_all_bounds_as_the_engine_reads_it(
    policy: str, path: str, pairs: list[tuple[str, Any, bool]]
) -> None:
    raw = with_pairs(path, pairs)
    if judge(policy, path, raw).violation is None:
        assert beyond(policy, path, raw) == []


@pytest.mark.parametrize("policy", BOUNDED)
def test_of_five_thousand_odd_bodies_none_passes_a_bound(policy: str) -> None:
    passed = [(path, raw) for path, raw in bodies(7, 5000) if judge(policy, path, raw).violation is None]
    assert len(passed) > 500, "the generator should make good ones too"
    assert [raw for path, raw in passed if beyond(policy, path, raw)] == []


def test_of_the_odd_bodies_many_are_refused_and_many_of_those_for_a_bound() -> None:
    found = [refusal("strict", path, raw) for path, raw in bodies(7, 3000)]
    assert sum(one is not None for one in found) > 500
    assert sum(bool(one) and one[2] not in ("policy.shape",) for one in found) > 50


def test_the_same_seed_makes_the_same_bodies() -> None:
    assert list(bodies(3, 50)) == list(bodies(3, 50)) != list(bodies(4, 50))


@settings(max_examples=300, deadline=None)
@given(pairs=st.lists(st.tuples(NAMES, VALUES, st.booleans()), max_size=6), path=PATHS)
def test_the_judge_reads_what_the_engine_reads(pairs: list[tuple[str, Any, bool]], path: str) -> None:
    raw = with_pairs(path, pairs)
    verdict = judge("off", path, raw)
    if verdict.violation is None:
        assert verdict.document == json.loads(raw, parse_int=as_wide)


def as_wide(digits: str) -> float:
    """What does not fit into 64 bits is a float to the judge, and beyond every bound."""
    return int(digits) if -(2**63) <= int(digits) < 2**64 else float(digits)


def is_json(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)  # of others the refusal tells the place


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=150, deadline=None)
@given(data=st.data(), path=PATHS)
def test_the_order_of_fields_changes_no_verdict(policy: str, path: str, data: st.DataObject) -> None:
    fields = {**LEAST[path], **data.draw(st.dictionaries(NAMES, VALUES.filter(is_json), max_size=5))}
    one = {name: fields[name] for name in data.draw(st.permutations(list(fields)))}
    assert judge(policy, path, one).violation == judge(policy, path, fields).violation


def test_the_order_of_fields_changes_no_verdict_on_bodies_with_several_faults() -> None:
    for path, raw in bodies(11, 1500):
        try:
            body = orjson.loads(raw)
        except ValueError:
            continue
        if isinstance(body, dict) and raw.count(b"[") + raw.count(b"{") < 128:
            turned = dict(reversed(list(body.items())))
            assert rules("strict").judge(path, orjson.dumps(turned)).violation == judge("strict", path, body).violation


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    WORDS
    | st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(path=st.sampled_from(list(LEAST)), more=st.dictionaries(WORDS.map(lambda word: f"x_{word}"), JSON))
def test_unknown_fields_never_matter(policy: str, path: str, more: dict[str, Any]) -> None:
    assert judge(policy, path, {**more, **LEAST[path]}).violation is None


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=400, deadline=None)
@given(raw=st.binary(max_size=200), path=st.sampled_from([*LEAST, "/v1/other"]))
def test_no_bytes_make_the_judge_fail(policy: str, raw: bytes, path: str) -> None:
    assert judge(policy, path, raw).violation is not None


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=300, deadline=None)
@given(data=st.data(), path=st.sampled_from(list(LEAST)))
def test_no_damage_to_a_good_body_makes_the_judge_fail(policy: str, path: str, data: st.DataObject) -> None:
    raw = bytearray(json.dumps(LEAST[path]).encode())
    at = data.draw(st.integers(0, len(raw)))
    raw[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    violation = judge(policy, path, bytes(raw)).violation
    assert violation is None or json.loads(violation.body("openai", "id"))["error"]["message"]


def test_no_odd_body_makes_the_judge_fail_and_each_refusal_is_complete() -> None:
    for path, raw in bodies(21, 4000):
        violation = judge("strict", path, raw).violation
        if violation:
            assert violation.status == 400 and violation.code and violation.message.endswith("."), violation
            assert violation.rule.startswith("policy.") and len(violation.message) < 300


# ---- bounds, one by one

OTHERS: list[tuple[str, str, Any]] = [
    *[(CHAT, "max_tokens", value) for value in ("1000", True, [], {}, 6000.5, 10**30, -1, 1e18)],
    *[(CHAT, "max_completion_tokens", value) for value in ("1000", True, 6000.5, 10**30, -1)],
    *[(CHAT, "n", value) for value in ("2", True, 9, 0, 1.5, -1)],
    *[(CHAT, "temperature", value) for value in ("0.5", True, 2.5, -0.1, [])],
    *[(CHAT, "top_logprobs", value) for value in ("5", 21, -1, True)],
    *[(CHAT, "prompt_logprobs", value) for value in ("5", 21, -1, True)],
    *[(CHAT, "logprobs", value) for value in (1, "yes", 5)],
    *[(CHAT, "stream", value) for value in (1, "yes", "true")],
    *[(CHAT, "top_k", value) for value in (0.01, "5", -2, 2**63)],
    *[(CHAT, "top_p", value) for value in (-1, 0, 1.1, "0.5")],
    *[(CHAT, "min_p", value) for value in (-0.1, 1.1)],
    *[(CHAT, "seed", value) for value in (2**63, -(2**63) - 1, 1.5, "1")],
    *[(CHAT, "repetition_penalty", 0), (CHAT, "presence_penalty", 2.5), (CHAT, "frequency_penalty", -2.5)],
    *[(CHAT, "tools", {}), (CHAT, "tools", ["f"]), (CHAT, "stop", 5), (CHAT, "stop", [5]), (CHAT, "logit_bias", [1])],
    *[(CHAT, "response_format", "json"), (CHAT, "response_format", {}), (CHAT, "model", 5), (CHAT, "model", ["a"])],
    *[(CHAT, "stop", ["x"] * 1025), (CHAT, "stop_token_ids", [1] * 129), (CHAT, "allowed_token_ids", [1] * 1025)],
    *[(CHAT, "messages", [{"role": role, "content": "x"}]) for role in ("wizard", "", 5, None)],
    *[(CHAT, "logit_bias", {str(n): 1 for n in range(1025)})],
    *[(COMPLETIONS, "logprobs", value) for value in ("5", 21, -1, True)],
    *[(COMPLETIONS, "prompt", value) for value in ("", [], 5, None, {}, [True], [1.5], [[1, "a"]], ["x"] * 257, [-1])],
    *[(COMPLETIONS, "prompt", [[1]] * 257), (COMPLETIONS, "best_of", 9), (COMPLETIONS, "best_of", "9")],
    *[(RESPONSES, "max_output_tokens", value) for value in ("1000", True, 6000.5, 10**30, -1)],
    *[(RESPONSES, "input", value) for value in ("", [], 5, None, {}, ["x"])],
    *[(RESPONSES, "text", "x"), (RESPONSES, "text", {"format": "json"}), (RESPONSES, "top_logprobs", 21)],
    *[(MESSAGES, "max_tokens", value) for value in (None, 0, -1, "16", True, 10**30)],
    *[(MESSAGES, "messages", value) for value in ([], "hi", [{"role": "user"}], [{"role": "user", "content": None}])],
    *[(MESSAGES, "system", 5), (MESSAGES, "tools", [{}]), (MESSAGES, "stop_sequences", "x")],
    *[(COUNT, "messages", []), (TOKENIZE, "prompt", 5), (TOKENIZE, "messages", "x")],
    *[(DETOKENIZE, "tokens", value) for value in ("x", ["1"], [1.5], [-1], [True], None)],
]


@pytest.mark.parametrize("policy", BOUNDED)
@pytest.mark.parametrize(("path", "name", "value"), OTHERS, ids=lambda value: repr(value)[:30])
def test_what_hurts_is_refused_and_the_field_is_named(policy: str, path: str, name: str, value: Any) -> None:
    code, param, _ = refusal(policy, path, {**LEAST[path], name: value})  # type: ignore[misc]
    assert param and (param == name or param.startswith((f"{name}[", f"{name}.")))
    assert code


FINE: list[tuple[str, str, Any]] = [
    *[(CHAT, "max_tokens", value) for value in (1, 8192, 8192.0, 4096.0, None)],
    *[(CHAT, "n", value) for value in (1, 8, 2.0, None)],
    *[(CHAT, "temperature", value) for value in (0.01, 1, 2, 2.0, None)],
    *[(CHAT, "top_k", value) for value in (-1, 0, 40, 40.0)],
    *[(CHAT, "top_p", value) for value in (1, 0.0001)],
    *[(CHAT, "seed", value) for value in (2**63 - 1, -(2**63) + 1, 0)],
    *[(CHAT, "stop", value) for value in ("", [], [""], "x", ["x", "y"], None)],
    *[(CHAT, "model", value) for value in ("", None, "another")],
    *[(CHAT, "reasoning_effort", value) for value in ("max", "xhigh", "minimal", None)],
    *[(CHAT, "tool_choice", value) for value in ("auto", "none", "required", {"type": "function"}, None)],
    *[(CHAT, "tools", [{"type": "custom", "custom": {"name": "x"}}]), (CHAT, "tools", [])],
    *[(CHAT, "messages", [{"role": "function", "name": "f", "content": ""}]), (CHAT, "messages", [{"role": "user"}])],
    *[(CHAT, "messages", [{"role": "user", "content": ["x", {"image_url": {"url": "data:"}}]}])],
    *[(CHAT, "metadata", value) for value in ([[]], {"a": {"b": 1}}, "x")],
    *[(COMPLETIONS, "prompt", value) for value in ("x", ["a"], [5, 6], [[5], [6]], ["x"] * 256, [7] * 100_000)],
    *[(COMPLETIONS, "logprobs", value) for value in (0, 20, None)],
    *[(RESPONSES, "input", [{"type": "function_call_output", "call_id": "c", "output": "x"}])],
    *[(RESPONSES, "input", [{"type": "reasoning", "summary": [], "encrypted_content": None}])],
    *[(MESSAGES, "system", value) for value in ("x", [{"type": "text", "text": "x", "cache_control": {}}], None)],
    *[(MESSAGES, "messages", [{"role": "user", "content": [{"type": "image", "source": {"type": "base64"}}]}])],
    *[(MESSAGES, "tools", [{"name": "bash", "type": "bash_20250124"}]), (MESSAGES, "thinking", {"type": "disabled"})],
    *[(TOKENIZE, "prompt", ""), (TOKENIZE, "messages", HI), (DETOKENIZE, "tokens", [])],
]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("path", "name", "value"), FINE, ids=lambda value: repr(value)[:30])
def test_what_is_right_passes(policy: str, path: str, name: str, value: Any) -> None:
    assert refusal(policy, path, {**LEAST[path], name: value}) is None


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("path", list(LEAST))
def test_the_least_body_of_every_route_passes_and_lacks_nothing_it_may_lack(policy: str, path: str) -> None:
    assert refusal(policy, path, LEAST[path]) is None
    needed = {CHAT: 1, COMPLETIONS: 1, RESPONSES: 1, MESSAGES: 3, COUNT: 2, TOKENIZE: 1, DETOKENIZE: 1}[path]
    lacking = [{k: v for k, v in LEAST[path].items() if k != name} for name in LEAST[path]]
    found = [refusal(policy, path, body) for body in lacking]
    assert sum(one is not None and one[0] == "missing_required_parameter" for one in found) == needed


def test_the_strict_policy_has_the_numbers_that_sites_write_down() -> None:
    body = {"model": MODEL, "messages": HI}
    assert refusal("strict", CHAT, {**body, "max_tokens": 8192, "temperature": 0.01}) is None
    assert refusal("strict", CHAT, {**body, "max_tokens": 8193}) is not None
    assert refusal("strict", CHAT, {**body, "temperature": 0.0099}) is not None
