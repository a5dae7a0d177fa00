"""Answers of engines with and without usage: what went over the wire, without what differs each time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.contract.stub.process import Stub

FIXTURES = Path(__file__).parents[2] / "fixtures"
CHAT, TEXT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
BOTH = {"include_usage": True, "continuous_usage_stats": True}
SAID = [{"role": "user", "content": 'Say "usage":{ and {"usage": 3}, please'}]
BODIES: Mapping[str, Mapping[str, Any]] = {
    CHAT: {"messages": SAID, "max_tokens": 6},
    TEXT: {"prompt": "Once upon a time", "max_tokens": 6},
    RESPONSES: {"input": "Once upon a time", "max_output_tokens": 6},
    MESSAGES: {"model": "tiny", "messages": SAID, "max_tokens": 6},
}
_IDS = re.compile(rb'"((?:[a-z_]*_)?id)":"[^"]*"')
_TIMES = re.compile(rb'"(created|created_at|completed_at)":[0-9.]+')
_SIGNATURES = re.compile(rb'"signature":"[0-9a-f]*"')


def neutral(answer: bytes) -> bytes:
    """The same for every answer to one request: no ids, no times."""
    answer = _IDS.sub(rb'"\1":"x"', answer)
    return _SIGNATURES.sub(b'"signature":"x"', _TIMES.sub(rb'"\1":1', answer))


def direct(stub: Stub, path: str, body: Mapping[str, Any]) -> bytes:
    """What the engine itself answers."""
    status, _, answer = stub.request("POST", path, json.dumps(body))
    assert status == 200, answer
    return neutral(answer)


def recorded_pairs() -> Iterator[tuple[str, bytes, bytes]]:
    """Chat streams of real servers: one that was asked for all usage, and the same one that was not."""
    for version in ("0.26.0", "0.32.0", "0.33.0"):
        lines = (FIXTURES / f"vllm-{version}/responses.jsonl").read_text().splitlines()
        found = {(entry["server"], entry["name"]): entry["body"] for entry in map(json.loads, lines)}
        for server in sorted({server for server, _ in found}):
            asked, plain = (found.get((server, f"chat.{name}")) for name in ("stream_continuous_usage", "stream"))
            if asked and plain and "chars" not in asked + plain:
                yield f"{version}-{server}", neutral(asked.encode()), neutral(plain.encode())


def events(answer: bytes) -> list[bytes]:
    """One by one, each with its empty line."""
    return [event + b"\n\n" for event in answer.split(b"\n\n") if event]


def pieces(answer: bytes, size: int) -> list[bytes]:
    """Of one size, but for the last."""
    return [answer[at : at + size] for at in range(0, len(answer), size)]


def joined(answer: bytes, count: int) -> list[bytes]:
    """So many events in each piece."""
    all_events = events(answer)
    return [b"".join(all_events[at : at + count]) for at in range(0, len(all_events), count)]
