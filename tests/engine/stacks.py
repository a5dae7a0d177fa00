"""The whole stack on real vLLM, and the whole stack on the stand-in, and the clients of both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import openai

from tests.integration.stack import Stack, new_stack

MODEL = "deepseek-v4-flash"
OpenAI, Anthropic = openai.OpenAI, anthropic.Anthropic


@contextmanager
def on_vllm() -> Iterator[Stack]:
    """Gateway, gate and real vLLM, by `ctl.py up --profile cpu`."""
    with new_stack("engine") as stack:
        # Counts of tokens are compared: the gate asks nothing of an engine that answers.
        stack.settings(engine__drain_s=60, gateway__drain_s=60, engine__probe_s=3600)
        stack.must("up", "--profile", "cpu", timeout_s=800)
        stack.target()
        yield stack


@contextmanager
def on_the_stand_in() -> Iterator[Stack]:
    """The same with the stand-in."""
    with new_stack("stand-in") as stack:
        stack.settings(engine__drain_s=60, gateway__drain_s=60, engine__replicas=1, engine__max_model_len=8192)
        stack.up()
        stack.target()
        yield stack


def clients(stack: Stack) -> tuple[OpenAI, Anthropic]:
    """The clients of both APIs, with the stack's key."""
    target = stack.target()
    base = target.url.removesuffix("/v1")
    return (
        OpenAI(base_url=target.url, api_key=target.key, max_retries=0, timeout=120),
        Anthropic(base_url=base, api_key=target.key, max_retries=0, timeout=120),
    )


def events(stream: Any) -> list[Any]:
    """All events of a client's stream."""
    return [event.model_dump() for event in stream]
