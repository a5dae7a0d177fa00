"""Events that are like the one before them are known by a few searches: what comes out is what reading them gives."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from tests.contract.usage.answers import pieces
from tests.contract.usage.conftest import Scripted
from tests.contract.usage.gateway import Used

HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
PROMPT, CACHED = 9, 4
PRINT = ',"system_fingerprint":"vllm-1"'


def usage(completion: int, **more: object) -> dict[str, object]:
    return {"prompt_tokens": PROMPT, "total_tokens": PROMPT + completion, "completion_tokens": completion, **more}


def event(delta: Mapping[str, object], said: object, finish: str | None = None, **more: Any) -> bytes:
    """One event of a chat; `head`, `inside`, `behind` are more of its members, `index` its choice."""
    head, behind = {**HEAD, **more.get("head", {})}, more.get("behind", {})
    inside = {"index": more.get("index", 0), "delta": delta, "logprobs": None, "finish_reason": finish}
    choice = {**inside, **({"stop_reason": None} if finish else {}), **more.get("inside", {"token_ids": None})}
    found = {**head, "choices": [choice], "usage": said, **behind}
    return b"data: " + json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def word(completion: int, text: str = "word", **more: Any) -> bytes:
    return event({"content": text}, usage(completion), **more)


def final(completion: int) -> bytes:
    said = json.dumps(usage(completion, prompt_tokens_details={"cached_tokens": CACHED}), separators=(",", ":"))
    return f'data: {{"id":"chatcmpl-1","choices":[],"usage":{said}{PRINT}}}\n\ndata: [DONE]\n\n'.encode()


OPENING = event({"role": "assistant", "content": ""}, usage(0), behind={"prompt_token_ids": None})
CALL = [{"index": 3, "function": {"arguments": '{"usage":{"prompt_tokens":1},' * 2_300}}]
LOGPROBS = {"content": [{"token": '"usage":{', "logprob": -1.5, "bytes": [34], "top_logprobs": []}] * 20}
# Two usual events stand before each of these and one behind it; each says that there are 3 tokens.
ODD: Mapping[str, bytes] = {
    "usual": word(3),
    "text that looks like usage": word(
        3, 'a"},"usage":{"prompt_tokens":1,"total_tokens":1,"completion_tokens":1}}\n\n'
    ),
    "text that looks like an end": word(3, '"finish_reason":"stop","choices":[],"index":7,'),
    "backslashes": word(3, '\\\\",\\"usage\\":{'),
    "newlines": word(3, "\n\n\r\ndata: [DONE]\n\n"),
    "bytes of any kind": word(3, "\u2028é\x7f😀\x00"),
    "much text": word(3, "long " * 14_000),
    "arguments of a call": event({"tool_calls": CALL}, usage(3)),
    "logprobs": word(3, inside={"logprobs": LOGPROBS, "finish_reason": None, "token_ids": [1]}),
    "many tokens behind the end": word(3, inside={"token_ids": list(range(500))}),
    "members behind": word(3, behind={"kv_transfer_params": None}),
    "many members behind": word(3, behind={"kv_transfer_params": {"blocks": list(range(2_000))}}),
    "details": event({"content": "w"}, usage(3, completion_tokens_details={"reasoning_tokens": 2})),
    "no details": event({"content": "w"}, usage(3, completion_tokens_details=None)),
    "another order": event({"content": "w"}, dict(sorted(usage(3).items()))),
    "another time": word(3, head={"created": 2}),
    "another name": word(3, head={"id": "chatcmpl-2", "model": "a longer name"}),
    "spaces": word(3).replace(b'":', b'": ').replace(b',"', b', "'),
    "no space": word(3).replace(b"data: ", b"data:"),
    "a name of its own": b"event: message\n" + word(3),
    "two lines of data": word(3).replace(b',"choices"', b',\ndata: "choices"'),
    "a comment before": b": ping\n\n" + word(3),
    "a comment with a quote": b': it"s [fine {\n\n' + word(3),
    "a number for a client that reconnects": b"id: 7\nretry: 10\n" + word(3),
}


def without(answer: bytes) -> bytes:
    """The same with no usage in it: every object behind such a name goes, with the comma before it."""
    return re.sub(rb',\s*"usage"\s*:\s*\{(?:[^{}]|\{[^{}]*\})*\}', b"", answer)


def splits(parts: Sequence[bytes]) -> list[list[bytes]]:
    """One event in each piece; then as it never arrives: by one byte, by some, and all at once."""
    whole = b"".join(parts)
    return [list(parts), pieces(whole, 7), pieces(whole, 4_096), [whole]]


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("strip", ["all", "chunks"])
def test_an_odd_event_between_usual_ones_loses_its_usage_and_nothing_else(
    scripted: Scripted, name: str, strip: str
) -> None:
    parts = [OPENING, word(1), word(2), ODD[name], word(4)]
    last = event({}, usage(5), "stop")
    expected = b"".join(map(without, parts)) + without(last)
    end = final(5) if strip == "chunks" else b"data: [DONE]\n\n"
    if strip == "all":
        expected = expected[:-3] + PRINT.encode() + b"}\n\n"
    for split in splits([*parts, last, final(5)]):
        answer = scripted.answer(split, strip)
        assert answer.body == expected + end
        assert answer.used == Used(PROMPT + 5, PROMPT, 5, CACHED, False)


@pytest.mark.parametrize("name", [name for name in ODD if name != "a comment with a quote"])
@pytest.mark.parametrize("strip", ["all", "chunks", ""])
@pytest.mark.parametrize("behind", [True, False])
def test_an_odd_event_counts_as_the_engine_says(scripted: Scripted, name: str, strip: str, behind: bool) -> None:
    parts = [OPENING, word(1), word(2), ODD[name], *([word(4)] if behind else [])]
    for split in splits(parts):
        used = scripted.answer(split, strip).used
        assert used == Used(PROMPT + 3 + behind, PROMPT, 3 + behind, 0, False)


@pytest.mark.parametrize("strip", ["all", "chunks", ""])
@pytest.mark.parametrize("count", [2, 10, 12])
def test_choices_that_take_turns_are_added_up_when_the_final_event_never_comes(
    scripted: Scripted, strip: str, count: int
) -> None:
    openings = [event({"role": "assistant"}, usage(0), index=index) for index in range(count)]
    turns = [word(number, index=index) for number in (1, 2, 3) for index in range(count)]
    text, expected = b"".join([*openings, *turns]), 3 * count
    for split in ([*openings, *turns], [text], pieces(text, 61), pieces(text, 1_009)):
        used = scripted.answer(split, strip).used
        assert used == Used(PROMPT + expected, PROMPT, expected, 0, False)


@pytest.mark.parametrize("strip", ["all", "chunks", ""])
@pytest.mark.parametrize("cut", [True, False])
def test_a_long_answer_that_is_cut_is_charged_to_four_in_a_thousand(scripted: Scripted, strip: str, cut: bool) -> None:
    """Metadata is written more seldom then; an answer that ends is charged to the token."""
    for count in (1, 255, 256, 257, 700):
        scripted.upstream.set([OPENING, *map(word, range(1, count + 1))])
        scripted.upstream.cut = cut
        headers = scripted.gateway.headers(strip)
        with pytest.raises(http.client.IncompleteRead) if cut else nullcontext():
            scripted.gateway.send("/", b"{}", headers)
        used = scripted.gateway.used(headers)
        assert used is not None and used.total == used.prompt + used.completion and not used.estimated
        assert count - count // 256 * cut <= used.completion <= count


def test_usage_that_is_null_stays_and_counts_nothing(scripted: Scripted) -> None:
    silent = event({"content": "word"}, None)
    for split in splits([silent] * 3):
        for strip in ("all", "chunks", ""):
            answer = scripted.answer(split, strip)
            assert answer.body == silent * 3
            assert answer.used is not None and answer.used.estimated and answer.used.completion == 3


def test_an_end_that_the_engine_gives_a_reason_for_waits_for_the_fingerprint(scripted: Scripted) -> None:
    for name in ("fresh replica", "fresh replica"):
        scripted.upstream.name = name
        answer = scripted.answer([OPENING, word(1), word(2, finish="length"), final(2)], "all")
        assert answer.body.endswith(
            b'"finish_reason":"length","stop_reason":null,"token_ids":null}]%s}\n\ndata: [DONE]\n\n' % PRINT.encode()
        )


def test_each_replica_keeps_its_own_fingerprint(scripted: Scripted) -> None:
    """With two choices the first one's end comes long before the final event, so an earlier answer has to serve."""

    def ask(replica: str, mark: bytes) -> bytes:
        scripted.upstream.name = replica
        ends = [word(2, index=0, finish="stop"), word(3, index=1), word(4, index=1, finish="stop")]
        parts = [event({"role": "assistant"}, usage(0), index=index) for index in (0, 1)]
        return scripted.answer([*parts, word(1), *ends, final(6).replace(b"vllm-1", mark)], "all").body

    for _ in range(2):
        for replica, mark in (("replica one", b"vllm-a"), ("replica two", b"vllm-b")):
            body = ask(replica, mark)
            assert body.count(mark) == 2 and body.count(b"system_fingerprint") == 2
