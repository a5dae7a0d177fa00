"""The shipped policies as the judge reads them, rendered as on a real stack. Live gateways are held against it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from policy.judge import Rules, Verdict

from control.core import planning, policies, policy_rules
from control.core.model import Host
from control.core.settings import Settings
from tests.sources import SOURCES

POLICIES = ("standard", "strict", "off")
CONTEXT = 131_072
MODEL = "deepseek-v4-flash"
CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"
HI = [{"role": "user", "content": "hi"}]
# The least body of each route.
LEAST: dict[str, dict[str, Any]] = {
    CHAT: {"model": MODEL, "messages": HI},
    COMPLETIONS: {"model": MODEL, "prompt": "hi"},
    RESPONSES: {"model": MODEL, "input": "hi"},
    MESSAGES: {"model": MODEL, "messages": HI, "max_tokens": 16},
    COUNT: {"model": MODEL, "messages": HI},
    TOKENIZE: {"model": MODEL, "prompt": "hi"},
    DETOKENIZE: {"model": MODEL, "tokens": [1, 2]},
}


def settings(policy: str, **gateway: object) -> Settings:
    engine = {"kind": "stub", "max_model_len": CONTEXT, "served_model_name": MODEL}
    return Settings.model_validate({"engine": engine, "gateway": {"policy": policy, **gateway}})


@cache
def rendered(policy: str, mode: str = "enforce") -> bytes:
    """rules.json of a stack under this policy."""
    given = settings(policy, mode=mode)
    plan = planning.plan_capacity(given, Host())
    governance = policies.govern(given, plan, policies.chosen(given, SOURCES))
    return policy_rules.rules_json(given, plan, governance, SOURCES).encode()


@cache
def rules(policy: str, mode: str = "enforce") -> Rules:
    return Rules.parse(rendered(policy, mode))


def judge(policy: str, path: str, body: Any, models: frozenset[str] | None = None, mode: str = "enforce") -> Verdict:
    """The verdict on a body: bytes as they are, anything else as JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return rules(policy, mode).judge(path, raw, models)


def refusal(policy: str, path: str, body: Any) -> tuple[str, str | None, str] | None:
    """Code, param and rule of the refusal; None if the body passes."""
    found = judge(policy, path, body).violation
    return (found.code, found.param, found.rule) if found else None
