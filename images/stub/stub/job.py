"""A request that was understood: what all kinds of answers have in common from there on."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stub.engine import Sequence as EngineSequence
from stub.plan import Plan


@dataclass
class Choice:
    """One answer of a request, planned, and being made by the engine."""

    index: int
    plan: Plan
    prompt: Sequence[int]
    sequence: EngineSequence


@dataclass
class Job:
    """One request."""

    id: str
    model: str
    fingerprint: str
    choices: list[Choice]
    stream: bool
    include_usage: bool = False
    continuous_usage: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    token_ids: bool = False
    prompts: list[list[int]] = field(default_factory=list)
    echo: bool = False
    echoed: str = ""  # what a chat repeats before its answer
    role: str = "assistant"
    batch: bool = False  # of several conversations: its usage has no details
    tools: bool = False  # whether a tool parser looks at the answer
    asked: Mapping[str, Any] = field(default_factory=dict)  # fields that the answer repeats
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(map(len, self.prompts))

    @property
    def completion_tokens(self) -> int:
        """Tokens of all answers at their end."""
        return sum(choice.plan.length for choice in self.choices)

    def usage(self) -> dict[str, Any]:
        """Token counts at the end."""
        return usage(self.prompt_tokens, self.completion_tokens)


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    """The `usage` object, its fields in vLLM's order."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }


def choice_of(index: int, plan: Plan, prompt: Sequence[int], max_tokens: int) -> Choice:
    """A choice with its engine sequence, not yet submitted."""
    reason = "stop" if plan.finish_reason == "tool_calls" else plan.finish_reason  # the engine knows no tools
    return Choice(index, plan, prompt, EngineSequence(len(prompt), plan.length, max_tokens, reason))


def request_id(prefix: str, header: str | None, body: Mapping[str, Any]) -> str:
    """The id of an answer: the client's own if it sent one, else a new one."""
    own = header or body.get("request_id")
    return f"{prefix}{own if isinstance(own, str) and own else secrets.token_hex(8)}"


def stream_options(values: Mapping[str, Any], flags: Mapping[str, int]) -> tuple[bool, bool]:
    """include_usage and continuous_usage_stats; the second counts only with the first, a flag turns both on."""
    if "--enable-force-include-usage" in flags:
        return True, True
    options = values["stream_options"] or {}
    include = bool(options.get("include_usage"))
    return include, include and bool(options.get("continuous_usage_stats"))
