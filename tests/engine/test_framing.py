"""Streams byte by byte: how events are framed, named, separated and ended, and what comes before them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.engine.conftest import COMPARED, Started

ASK = [{"role": "user", "content": "Hello"}]
LENGTH = {"max_tokens": 6, "ignore_eos": True, "stream": True, "temperature": 0}
USAGE = {"stream_options": {"include_usage": True}}
CONTINUOUS = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
KEY = {"authorization": "Bearer k-two"}
STREAMS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "chat": ("C", "/v1/chat/completions", {"messages": ASK, **LENGTH}),
    "chat with usage": ("C", "/v1/chat/completions", {"messages": ASK, **LENGTH, **USAGE}),
    "chat with continuous usage": ("C", "/v1/chat/completions", {"messages": ASK, **LENGTH, **CONTINUOUS}),
    "two choices": ("C", "/v1/chat/completions", {"messages": ASK, **LENGTH, "n": 2, "temperature": 1}),
    "completion": ("C", "/v1/completions", {"prompt": "Hello", **LENGTH}),
    "completion with usage": ("C", "/v1/completions", {"prompt": "Hello", **LENGTH, **USAGE}),
    "responses": ("C", "/v1/responses", {"input": "Hello", "max_output_tokens": 64, "stream": True}),
    "messages": ("C", "/v1/messages", {"model": "tiny", "messages": ASK, "max_tokens": 6, "stream": True}),
    "a refused stream": ("C", "/v1/chat/completions", {"messages": ASK, **LENGTH, "max_tokens": 4096}),
    "V4 chat": ("D", "/v1/chat/completions", {"messages": ASK, **LENGTH}),
    "V4 chat that thinks": ("D", "/v1/chat/completions", {"messages": ASK, **LENGTH, "reasoning_effort": "high"}),
    "V4 messages": ("D", "/v1/messages", {"model": "tiny", "messages": ASK, "max_tokens": 6, "stream": True}),
}
_PAYLOAD = re.compile(r"(?m)^data: \{.*\}$")


def framing(body: bytes) -> list[str]:
    """The stream without its payloads; what repeats is there once (texts are of any length)."""
    text = _PAYLOAD.sub("data: {}", body.decode())
    found: list[str] = []
    for block in re.split(r"(?<=\n\n)", text):
        if block and found[-1:] != [block]:
            found.append(block)
    return found


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_framed_as_real_vllm_frames_it(name: str, real_servers: Started, stand_in_servers: Started) -> None:
    letter, path, body = STREAMS[name]
    seen = []
    for server in (stand_in_servers(letter), real_servers(letter)):
        status, headers, answer = server.request(
            "POST", path, json.dumps(body), {"content-type": "application/json", **KEY}
        )
        kept = {n.lower(): v for n, v in headers.items() if n.lower() not in ("date", "content-length", "x-request-id")}
        seen.append((status, kept, framing(answer) if status == 200 else json.loads(answer)["error"]))
    assert seen[0] == seen[1]
    COMPARED["streams: framing, event names and headers"] += 1
