"""`explain`: every rule has words for people, and its values are read from what holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from budget.core.replies import CODES
from policy.judge import complaint
from policy.judge.verdict import MODELS, SHAPE

from control.core import checks, explain, explain_docs, explain_policy, explain_refusals, layers, planning, policies
from control.core import schema as settings_schema
from control.core.errors import UsageError
from control.core.explain import Entry, Explanation, Here
from control.core.model import Host
from tests.sources import ROOT, SOURCES

RULES = {entry.id: entry for entry in explain_policy.ENTRIES}
ALL = (*explain_policy.ENTRIES, *explain_refusals.ENTRIES, *explain.of_checks())


def explained(wanted: str, *assignments: str, planned: bool = True) -> Explanation:
    resolved = layers.resolve([layers.assignment_layer(["engine.kind=stub", *assignments])])
    settings = resolved.settings
    plan = planning.plan_capacity(settings, Host())
    rules = policies.govern(settings, plan, policies.chosen(settings, SOURCES)) if planned else None
    return explain.explained(explain.find(ALL, wanted), Here(policies.every(SOURCES), resolved, rules))


def test_everything_that_a_policys_file_says_has_a_rule() -> None:
    named = {f"policy.{name}" for name in (*policies.BOUNDS, *policies.PolicyLimits.model_fields)}
    named |= {"policy.body", "policy.route_timeout", "policy.idle_timeout", "policy.max_stream", "policy.breakers"}
    assert named <= set(RULES)
    assert {"policy.mode", "policy.overflow", "policy.affinity", "policy.shape"} <= set(RULES)


def test_every_setting_of_the_policys_is_named_by_a_rule() -> None:
    null = {
        path
        for path, leaf in settings_schema.leaves().items()
        if path.startswith("gateway.") and leaf.default is None and "policy's" in leaf.help
    }
    null |= {path for path in settings_schema.leaves() if path.startswith("gateway.limits.")}
    assert null <= {path for rule in RULES.values() for path in rule.settings}
    assert {path for rule in RULES.values() for path in rule.settings} <= set(settings_schema.leaves())


def test_every_check_can_be_explained() -> None:
    for check in checks.CHECKS:
        entry = explain.find(ALL, check.id)
        assert (entry.title, entry.why, entry.change) == (check.title, check.why, check.fix)


@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.id)
def test_every_entry_says_why_and_how_to_change_it(entry: Entry) -> None:
    assert entry.title and entry.why and entry.change
    assert entry.answer or not entry.refuses or entry.id == "policy.overflow"
    if entry.refuses and entry.id.startswith("policy."):
        assert re.search(r"\b[45]\d\d\b", entry.answer) or entry.id == "policy.overflow", entry.answer


def test_ids_are_unique() -> None:
    assert len({entry.id for entry in ALL}) == len(ALL)


def test_every_code_that_an_answer_names_is_one_that_somebody_sends() -> None:
    places = [*(ROOT / "config/envoy").rglob("*"), *(ROOT / "images/policy").rglob("*.py")]
    told = "\n".join(path.read_text(encoding="utf-8") for path in places if path.is_file())
    for entry in ALL:
        for code in re.findall(r"code (\w+)", entry.answer):
            assert code in told, f"{entry.id}: nobody sends {code}"


def test_every_rule_that_a_refusal_names_can_be_explained() -> None:
    named = {SHAPE, MODELS, *complaint.BOUNDS.values()}
    text = (ROOT / "images/policy/policy/refusals.py").read_text(encoding="utf-8")
    named |= set(re.findall(r'"((?:body|key)\.\w+)"', text))
    assert len(named) > 10
    for rule in named:
        explain.find(ALL, rule)


def test_a_value_is_told_for_each_policy_and_for_here() -> None:
    found = explained("policy.max_tokens", "engine.max_model_len=4096")
    assert found.policies == {"standard": "0 to the context", "strict": "1 to 8192", "off": "no bound"}
    assert found.value == "0 to 4096"
    assert found.origin == "config/policies/standard.yaml; gateway.policy, default"


def test_a_setting_that_is_stronger_is_the_origin() -> None:
    found = explained("policy.requests_per_minute", "gateway.limits.requests_per_minute=5", "gateway.policy=off")
    assert (found.policies["off"], found.value) == ("no limit", "5")
    assert found.origin == "gateway.limits.requests_per_minute, --set gateway.limits.requests_per_minute=5"


def test_the_choice_of_another_policy_is_told_with_its_origin() -> None:
    found = explained("policy.temperature", "gateway.policy=strict")
    assert found.value == "0.01 to 2"
    assert found.origin == "config/policies/strict.yaml; gateway.policy, --set gateway.policy=strict"


def test_a_choice_that_no_policy_makes_has_its_settings_origin() -> None:
    found = explained("policy.mode", "gateway.mode=observe")
    assert (found.policies, found.value, found.origin) == ({}, "observe", "gateway.mode, --set gateway.mode=observe")
    assert explained("policy.overflow").origin == "gateway.on_overflow, default"


@pytest.mark.parametrize("entry", explain_policy.ENTRIES, ids=lambda entry: entry.id)
def test_every_rule_has_words_for_every_policy_planned_or_not(entry: Entry) -> None:
    for policy in ("standard", "strict", "off"):
        found = explained(entry.id, f"gateway.policy={policy}")
        assert all(found.policies.values())
        assert bool(found.value) == (entry.in_force is not None)
        unplanned = explained(entry.id, f"gateway.policy={policy}", planned=False)
        assert unplanned.value == found.policies.get(policy, "")
        assert all(len(line) < 130 for text in found.lines() for line in text.split("\n"))


def test_numbers_of_the_breakers_are_those_of_this_plan() -> None:
    assert explained("policy.breakers").value == "256/256/256 connections/waiting/requests"
    assert explained("policy.breakers", "gateway.policy=strict").value.startswith("1000/1000/10000 ")


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        ("policy.max_token", "policy.max_tokens"),
        ("breakers", "policy.breakers"),
        ("gatewayport", "gateway-port"),
        ("xyzzy", None),
    ],
)
def test_an_id_that_is_none_is_told_with_the_likely_one(wanted: str, meant: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        explain.find(ALL, wanted)
    assert caught.value.what == f"{wanted}: nothing has this id" + (f" (did you mean {meant}?)" if meant else "")


def test_the_page_has_a_row_and_a_section_for_each_rule_and_is_linked() -> None:
    page = explain_docs.markdown(policies.every(SOURCES), explain_policy.ENTRIES, explain_refusals.ENTRIES)
    for rule in explain_policy.ENTRIES:
        assert f"\n## {rule.id}\n" in page
        assert (f"\n| `{rule.id}` | " in page) == (rule.of_policy is not None)
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1
    assert explain_docs.PATH.removeprefix("docs/") in (Path(ROOT) / "docs/operations.md").read_text(encoding="utf-8")


def test_what_is_printed_is_the_same_as_the_data() -> None:
    found = explained("policy.body")
    data, text = found.as_data(), " ".join(" ".join(found.lines()).split())
    for value in (data["title"], data["answer"], data["why"], data["change"], data["value"]):
        assert str(value) in text


@pytest.mark.parametrize(
    ("code", "entry"), [("token_budget_exhausted", "policy.tokens_per_minute"), ("too_many_streams", "policy.streams")]
)
def test_a_refusal_is_found_by_its_code_which_is_what_a_client_tells(code: str, entry: str) -> None:
    assert explain.find(ALL, code).id == entry


def test_a_code_of_several_refusals_names_all_of_them() -> None:
    with pytest.raises(UsageError, match=r"did you mean policy.breakers or body.capacity\?"):
        explain.find(ALL, "over_capacity")


def test_every_code_of_the_budget_service_can_be_explained() -> None:
    for code in CODES.values():
        assert explain.find(ALL, code).answer
