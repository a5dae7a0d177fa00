"""run/policy/rules.json: the policy's bounds in the schemas, and what travels with them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from policy.rulebook import Rulebook

from control.core import planning, policies, policy_rules
from control.core.errors import FlashboxError
from control.core.header import is_rendered
from control.core.model import Host
from control.core.policies import Governance
from control.core.settings import Settings
from tests import sources

CHAT = "config/schemas/chat.yaml"
SHARED = "config/schemas/shared.yaml"
SCHEMAS = {
    CHAT: """\
routes: [/v1/chat/completions]
schema:
  type: object
  properties:
    max_tokens: {type: [integer, "null"], x-bound: max_tokens}
    n: {type: integer, minimum: 2, maximum: 100, x-bound: n}
    list: {items: [{x-bound: temperature}]}
    shared: {$ref: "#/$defs/text"}
""",
    SHARED: "$defs: {text: {type: string}, top: {x-bound: logprobs}}\n",
}


def settings(**gateway: object) -> Settings:
    return Settings.model_validate({"engine": {"kind": "stub", "max_model_len": 4096}, "gateway": gateway})


def rules(given: Settings, schemas: dict[str, str] = SCHEMAS, **changed: Any) -> dict[str, Any]:
    plan = planning.plan_capacity(given, Host())
    governance: Governance = policies.govern(given, plan, policies.chosen(given, sources.SOURCES))
    text = policy_rules.rules_json(given, plan, replace(governance, **changed), schemas)
    assert is_rendered(text)
    found: dict[str, Any] = json.loads(text)
    return found


def complaints(schemas: dict[str, str]) -> list[str]:
    with pytest.raises(FlashboxError) as caught:
        policy_rules.routes(schemas)
    return caught.value.what.split("\n")


def test_a_bound_of_the_policy_takes_the_place_of_its_name() -> None:
    schema = rules(settings(policy="strict"))["routes"]["/v1/chat/completions"]["schema"]
    assert schema["properties"]["max_tokens"] == {"type": ["integer", "null"], "minimum": 1, "maximum": 8192}
    assert schema["properties"]["list"]["items"] == [{"minimum": 0.01, "maximum": 2}]
    assert schema["$defs"]["top"] == {"minimum": 0, "maximum": 20}


def test_a_bound_that_is_the_context_is_the_models() -> None:
    schema = rules(settings())["routes"]["/v1/chat/completions"]["schema"]
    assert schema["properties"]["max_tokens"]["maximum"] == 4096


def test_of_the_policys_end_and_the_schemas_own_the_tighter_counts() -> None:
    schema = rules(settings())["routes"]["/v1/chat/completions"]["schema"]
    assert schema["properties"]["n"] == {"type": "integer", "minimum": 2, "maximum": 8}


def test_without_bounds_only_the_schemas_own_are_left() -> None:
    schema = rules(settings(policy="off"))["routes"]["/v1/chat/completions"]["schema"]
    assert schema["properties"]["max_tokens"] == {"type": ["integer", "null"]}
    assert schema["properties"]["n"] == {"type": "integer", "minimum": 2, "maximum": 100}


def test_an_open_end_bounds_nothing() -> None:
    schema = rules(settings(), bounds={"max_tokens": (None, 5.0)})["routes"]["/v1/chat/completions"]["schema"]
    assert schema["properties"]["max_tokens"] == {"type": ["integer", "null"], "maximum": 5}


def test_what_the_service_needs_beside_the_schemas_is_there() -> None:
    found = rules(settings(mode="observe", on_overflow="truncate", max_body_mib=3))
    assert (found["policy"], found["mode"], found["truncate"]) == ("standard", "observe", True)
    assert (found["max_body_bytes"], found["max_depth"], found["context"]) == (3 * 1_048_576, 128, 4096)
    assert (found["usage"], found["affinity"]) == (True, "prefix")
    assert rules(settings(affinity="session"))["affinity"] == "session"
    assert found["served_model"] == "deepseek-v4-flash"
    assert found["tokenize_url"] == "http://172.31.78.2:9901/tokenize"
    assert found["routes"]["/v1/chat/completions"]["form"] == "openai"


def test_the_version_says_whether_two_files_say_the_same() -> None:
    one = rules(settings())
    assert rules(settings()) == one
    assert rules(settings(mode="observe"))["version"] != one["version"]
    assert rules(settings(), {**SCHEMAS, CHAT: SCHEMAS[CHAT].replace("100", "101")})["version"] == one["version"]
    assert rules(settings(), {**SCHEMAS, CHAT: SCHEMAS[CHAT].replace("integer", "number")})["version"] != one["version"]


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        (CHAT, SCHEMAS[CHAT].replace("x-bound: n}", "x-bound: nn}"), f"{CHAT}: x-bound: nn: unknown bound"),
        (SHARED, "$defs: {a: [{x-bound: max_token}]}", f"{SHARED}: x-bound: max_token: unknown bound (did you mean"),
        (SHARED, SCHEMAS[CHAT], f"{SHARED}: routes: /v1/chat/completions is in {CHAT} already"),
        (SHARED, "form: xml", f"{SHARED}: form: Input should be 'openai' or 'anthropic'"),
        (SHARED, "rotes: []", f"{SHARED}: rotes: Extra inputs are not permitted"),
        (SHARED, "a: 1\na: 1", f"{SHARED}: a: written 2 times"),
        (SHARED, "[]", f"{SHARED}: file: Input should be a valid dictionary"),
    ],
)
def test_a_schema_file_that_cannot_be_meant_is_told(path: str, text: str, line: str) -> None:
    assert complaints({**SCHEMAS, path: text})[0].startswith(line)


def test_without_any_schema_nothing_is_rendered() -> None:
    assert complaints({}) == ["config/schemas: missing"]


# ---- the shipped schemas


def test_every_route_that_takes_a_body_has_a_schema_and_no_other() -> None:
    routes = sources.SOURCES["config/envoy/rds.yaml.j2"]
    public = set(re.findall(r'route\("POST", "([^"]+)"', routes))
    assert public and public == set(policy_rules.routes(sources.SOURCES))


def test_every_bound_of_a_policy_is_in_a_schema() -> None:
    text = "".join(text for path, text in sources.SOURCES.items() if path.startswith("config/schemas/"))
    assert set(re.findall(r"x-bound: (\w+)[,}\s]", text)) - {"NAME"} == set(policies.BOUNDS)


@pytest.mark.parametrize("policy", ["standard", "strict", "off"])
def test_the_policy_service_takes_the_rules_of_every_policy_and_judges_by_them(policy: str) -> None:
    given = settings(policy=policy)
    book = Rulebook.parse(json.dumps(rules(given, dict(sources.SOURCES))).encode())

    def refused(**fields: object) -> str | None:
        body = {"model": "deepseek-v4-flash", "messages": [{"role": "user", "content": "hi"}], **fields}
        violation = book.rules.judge("/v1/chat/completions", json.dumps(body).encode()).violation
        return violation.rule if violation else None

    bounded = policy != "off"
    assert refused() is None and refused(max_tokens=4096, temperature=0.5) is None
    assert refused(max_tokens=8193) == ("policy.max_tokens" if bounded else None)
    assert refused(temperature=0) == ("policy.temperature" if policy == "strict" else None)
    assert refused(temperature=0.01) is None
    assert refused(temperature=2.5) == ("policy.temperature" if bounded else None)
    assert refused(n=9) == ("policy.n" if bounded else None)
    assert refused(top_logprobs=21, logprobs=True) == ("policy.logprobs" if bounded else None)
    assert refused(max_tokens="9") == "policy.shape"
