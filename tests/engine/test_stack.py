"""The whole stack on real vLLM, beside the whole stack on the stand-in: the same clients get answers of one shape."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import requests

from tests.contract.stub.recordings import shape
from tests.engine.conftest import COMPARED
from tests.engine.stacks import MODEL, Anthropic, OpenAI, clients, events
from tests.integration.stack import Stack

ASK: list[Any] = [{"role": "user", "content": "Hello"}]
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[Any] = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}]
ANTHROPIC_TOOLS: list[Any] = [{"name": "weather", "input_schema": WEATHER}]
RESPONSES_TOOLS: list[Any] = [{"type": "function", "name": "weather", "parameters": WEATHER}]
FIXED = {"temperature": 0, "seed": 7}


CALLS: dict[str, Callable[[OpenAI, Anthropic], Any]] = {
    "models": lambda o, _: o.models.list().model_dump(),
    "chat": lambda o, _: o.chat.completions.create(model=MODEL, messages=ASK, max_tokens=64, **FIXED).model_dump(),
    "chat, tools": lambda o, _: o.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=64, tools=TOOLS, **FIXED
    ).model_dump(),
    "chat, streamed with tools and usage": lambda o, _: events(
        o.chat.completions.create(
            model=MODEL, messages=ASK, max_tokens=64, tools=TOOLS, stream=True,
            stream_options={"include_usage": True}, **FIXED,
        )
    ),
    "completions": lambda o, _: o.completions.create(model=MODEL, prompt="Once", max_tokens=64, **FIXED).model_dump(),
    "responses": lambda o, _: o.responses.create(model=MODEL, input="Hello", max_output_tokens=64).model_dump(),
    "responses, streamed with tools": lambda o, _: events(
        o.responses.create(model=MODEL, input="Hello", max_output_tokens=64, tools=RESPONSES_TOOLS, stream=True)
    ),
    "messages": lambda _, a: a.messages.create(model=MODEL, messages=ASK, max_tokens=64).model_dump(),
    "messages, streamed with tools": lambda _, a: events(
        a.messages.create(model=MODEL, messages=ASK, max_tokens=64, tools=ANTHROPIC_TOOLS, stream=True)
    ),
    "count of tokens": lambda _, a: a.messages.count_tokens(model=MODEL, messages=ASK).model_dump(),
}  # fmt: skip


def understood(answer: Any) -> Any:
    """Keys and types; of a stream the kinds of events, as texts are of any length."""
    if not isinstance(answer, list):
        return shape(answer)
    found: list[Any] = []
    for event in map(shape, answer):
        if event not in found:
            found.append(event)
    return found


@pytest.mark.parametrize("name", CALLS)
def test_a_client_gets_an_answer_of_the_same_shape_from_both(name: str, vllm: Stack, stand_in: Stack) -> None:
    real, ours = (understood(CALLS[name](*clients(stack))) for stack in (vllm, stand_in))
    assert ours == real
    COMPARED["answers to the openai and anthropic clients through the gateway"] += 1


REFUSED: dict[str, dict[str, Any]] = {
    "unknown model": {"model": "nope", "messages": ASK},
    "no messages": {"model": MODEL},
    "temperature": {"model": MODEL, "messages": ASK, "temperature": 9},
    "too long": {"model": MODEL, "messages": ASK, "max_tokens": 9000},
    "tool choice": {"model": MODEL, "messages": ASK, "tool_choice": "required"},
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_the_same_through_the_gateway(name: str, vllm: Stack, stand_in: Stack) -> None:
    seen = []
    for stack in (vllm, stand_in):
        target = stack.target()
        answer = requests.post(f"{target.url}/chat/completions", json=REFUSED[name], headers=target.headers, timeout=60)
        body = answer.json()
        body["error"].pop("request_id", None)
        seen.append((answer.status_code, body, answer.headers["content-type"], "x-request-id" in answer.headers))
    assert seen[0] == seen[1]
    assert seen[0][0] in (400, 404)
    COMPARED["refusals through the gateway, word by word"] += 1


def test_the_gate_says_ready_after_a_completion_and_without_a_key_nobody_gets_in(vllm: Stack) -> None:
    assert vllm.gate("engine-0")["phase"] == "ready"
    assert requests.post(f"{vllm.url}/chat/completions", json={"messages": ASK}, timeout=30).status_code == 401
    assert vllm.must("smoke").code == 0


def test_a_restart_of_the_only_replica_finishes_the_streams_of_real_vllm(vllm: Stack) -> None:
    client, tokens, ends = clients(vllm)[0], 3000, []
    flowing = threading.Barrier(4)

    def read() -> None:
        stream = client.chat.completions.create(
            model=MODEL, messages=ASK, max_tokens=tokens, stream=True, extra_body={"ignore_eos": True},
            stream_options={"include_usage": True},
        )  # fmt: skip
        seen = [next(stream)]
        flowing.wait(60)
        seen += list(stream)
        assert seen[-1].usage is not None
        ends.append((next(e for e in reversed(seen) if e.choices).choices[0].finish_reason, seen[-1].usage))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    flowing.wait(60)
    vllm.must("restart", "engine-0", timeout_s=800)
    for reader in readers:
        reader.join(60)
    assert [(reason, usage.completion_tokens) for reason, usage in ends] == [("length", tokens)] * 3
    assert vllm.gate("engine-0")["phase"] == "ready"
