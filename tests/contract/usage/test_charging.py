"""What an answer is said to cost: what the engine counted, however the answer came and however it ended."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pytest
from policy.usage import plan

from tests.contract.stub.process import Stub
from tests.contract.usage.answers import BODIES, BOTH, CHAT, MESSAGES, RESPONSES, TEXT, direct, neutral, pieces
from tests.contract.usage.conftest import Scripted
from tests.contract.usage.gateway import ESTIMATE, Gateway, Used
from tests.counts import SOAK
from tests.eventually import eventually

SOON_S = 20.0
NOTHING = Used(0, 0, 0, 0, False)
FORMS = [(path, stream) for path in BODIES for stream in (False, True)]


def engine_counts(stub: Stub) -> tuple[int, int]:
    """Tokens of prompts and of answers, by the engine's own counters."""
    return tuple(int(stub.metric(f"vllm:{kind}_tokens_total")) for kind in ("prompt", "generation"))  # type: ignore[return-value]


def body_of(path: str, stream: bool, **more: object) -> dict[str, Any]:
    return {**BODIES[path], "temperature": 0, "stream": stream, **more}


# ---- the stand-in behind the gateway


@pytest.mark.parametrize("path, stream", FORMS)
def test_a_client_that_never_asks_gets_what_the_engine_sends_it(
    fronted: tuple[Gateway, Stub], path: str, stream: bool
) -> None:
    gateway, stub = fronted
    answer = gateway.ask(path, body_of(path, stream))
    assert answer.status == 200
    assert neutral(answer.body) == direct(stub, path, body_of(path, stream))


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("options", [{"include_usage": True}, BOTH, {"continuous_usage_stats": True}, {}, None])
def test_a_client_gets_the_usage_it_asks_for(
    fronted: tuple[Gateway, Stub], path: str, options: Mapping[str, bool] | None
) -> None:
    gateway, stub = fronted
    body = body_of(path, True, stream_options=options)
    assert neutral(gateway.ask(path, body).body) == direct(stub, path, body)


@pytest.mark.parametrize("path, stream", FORMS)
@pytest.mark.parametrize("options", [None, {"include_usage": True}, BOTH])
def test_the_cost_is_what_the_engine_counted(
    fronted: tuple[Gateway, Stub], path: str, stream: bool, options: Mapping[str, bool] | None
) -> None:
    gateway, stub = fronted
    asked = {"stream_options": options} if stream and options and path in (CHAT, TEXT) else {}
    before = engine_counts(stub)
    used = gateway.ask(path, body_of(path, stream, **asked)).used
    after = eventually(lambda: engine_counts(stub) > before and engine_counts(stub), SOON_S)
    prompt, completion = (new - old for new, old in zip(after, before, strict=True))
    assert used == Used(prompt + completion, prompt, completion, 0, False)


@pytest.mark.parametrize("path, n", [*((path, 1) for path in BODIES), (CHAT, 2), (TEXT, 2)])
def test_a_client_that_leaves_pays_what_was_generated_for_it(fronted: tuple[Gateway, Stub], path: str, n: int) -> None:
    gateway, _ = fronted
    limit = "max_output_tokens" if path == RESPONSES else "max_tokens"
    body = body_of(path, True, **{limit: 100_000}, **({"n": n, "temperature": 1} if n > 1 else {}))
    raw = json.dumps(body).encode()
    change = plan(path, raw, body)
    headers = gateway.headers(change.strip)
    received = read_and_leave(gateway.port, path, change.changed(raw), headers, 20)
    used = gateway.used(headers)
    assert used is not None
    tokens = received - 2  # events that are no tokens: roles, beginnings
    assert tokens <= used.completion <= tokens + 2_000
    assert used.estimated == (path in (RESPONSES, MESSAGES))
    assert used.prompt == ESTIMATE if path == RESPONSES else used.prompt > ESTIMATE
    assert used.total == used.prompt + used.completion


def read_and_leave(port: int, path: str, raw: bytes, headers: Mapping[str, str], count: int) -> int:
    """Read at least so many events with text, then close the connection; how many came."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=SOON_S)) as connection:
        lines = [f"POST {path} HTTP/1.1", "host: x", f"content-length: {len(raw)}", "content-type: application/json"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + raw)
        read = b""
        while (seen := read.count(b'"text":"' if path == TEXT else b'"delta":')) < count:
            piece = connection.recv(65536)
            read += piece
            assert piece and not read.endswith(b"\r\n0\r\n\r\n"), read  # the end came before
    return seen


def test_a_client_that_leaves_before_the_answer_pays_for_its_prompt(scripted: Scripted) -> None:
    scripted.upstream.set([b"data: {}\n\n"])
    scripted.upstream.apart_s = 5
    try:
        headers = scripted.gateway.headers("all")
        with closing(socket.create_connection(("127.0.0.1", scripted.gateway.port))) as connection:
            lines = ["POST / HTTP/1.1", "host: x", "content-length: 2", *(f"{k}: {v}" for k, v in headers.items())]
            connection.sendall("\r\n".join([*lines, "", "{}"]).encode())
            eventually(lambda: scripted.gateway.stat("cluster.engine.upstream_rq_active") == 1, SOON_S)
        assert scripted.gateway.used(headers) == Used(ESTIMATE, ESTIMATE, 0, 0, True)
    finally:
        scripted.upstream.apart_s = 0.0005


# ---- an engine that writes what it is told


@pytest.mark.parametrize("path", list(BODIES))
@pytest.mark.parametrize("split", [1, 7, 150])
def test_an_engine_that_resets_the_connection_is_paid_what_it_wrote(
    stubs: dict[str, Stub], scripted: Scripted, path: str, split: int
) -> None:
    options = {"stream_options": BOTH} if path in (CHAT, TEXT) else {}
    whole = direct(stubs["plain"], path, body_of(path, True, **options))
    token = b'"text":"' if path == TEXT else b'"delta":'
    at = -1
    for _ in range(4 if path == CHAT else 3):  # a chat begins with its role
        at = whole.index(token, at + 1)
    scripted.upstream.set(pieces(whole[: whole.index(b"\n\n", at) + 2], split))
    scripted.upstream.cut = True
    headers = scripted.gateway.headers("all" if options else "")
    with pytest.raises(Exception):  # noqa: B017 - the connection is cut
        scripted.gateway.send("/", b"{}", headers)
    used = scripted.gateway.used(headers)
    assert used is not None and used.completion == 3
    assert used.estimated == (path in (RESPONSES, MESSAGES))


@pytest.mark.parametrize(
    "status", ["400 Bad Request", "404 Not Found", "429 Too Many", "500 No", "503 Busy", "204 None"]
)
def test_an_answer_that_is_no_success_costs_nothing(scripted: Scripted, status: str) -> None:
    pieces_ = [] if status.startswith("204") else [b'{"usage":{"prompt_tokens":5,"completion_tokens":5}}']
    scripted.upstream.set(pieces_, status, "application/json")
    assert scripted.gateway.send("/", b"{}", scripted.gateway.headers("")).used == NOTHING


def test_a_request_that_the_policy_service_does_not_know_is_left_alone(scripted: Scripted) -> None:
    scripted.upstream.set([b'{"usage":{"prompt_tokens":5,"completion_tokens":5}}'], kind="application/json")
    answer = scripted.gateway.send("/", b"{}", {"x-id": "unknown"})
    assert answer.used is None and answer.body.startswith(b'{"usage"')


@pytest.mark.parametrize("path, stream", FORMS)
def test_the_cost_does_not_depend_on_where_an_answer_is_split(
    stubs: dict[str, Stub], scripted: Scripted, path: str, stream: bool
) -> None:
    options = {"stream_options": BOTH} if stream and path in (CHAT, TEXT) else {}
    whole = direct(stubs["v4"], path, body_of(path, stream, **options))
    kind = "text/event-stream" if stream else "application/json"
    places = range(1, len(whole), 1 if SOAK else 29)
    answers = []
    for split in [*([whole[:at], whole[at:]] for at in places), pieces(whole, 1), pieces(whole, 13)]:
        scripted.upstream.set(split, kind=kind)
        answers.append(scripted.gateway.send("/", b"{}", scripted.gateway.headers("")))
        assert answers[-1].body == whole
    (used,) = {answer.used for answer in answers}
    assert used is not None and used.completion == 6 and used.prompt > 0 and not used.estimated


CRAFTED = {"usage": {"input_tokens": 0, "output_tokens": 0, "prompt_tokens": 0, "completion_tokens": 0}}
TOOL = {
    "type": "function",
    "name": "usage",
    "description": 'ends with a backslash \\ and "usage":{"input_tokens":1,"output_tokens":1}',
    "parameters": {"type": "object", "properties": {"response": CRAFTED, "message": CRAFTED, **CRAFTED}},
}


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_that_the_answer_repeats_does_not_change_the_cost(fronted: tuple[Gateway, Stub], stream: bool) -> None:
    gateway, _ = fronted
    plain = gateway.ask(RESPONSES, body_of(RESPONSES, stream)).used
    body = body_of(RESPONSES, stream, tools=[TOOL], tool_choice="none", metadata={"usage": "{}", "a": '"usage":{'})
    answer = gateway.ask(RESPONSES, body)
    assert answer.status == 200 and b'"usage":{"input_tokens":0' in answer.body, answer.body
    used = answer.used
    assert used is not None and plain is not None
    assert not used.estimated and used.completion == plain.completion and used.prompt >= plain.prompt


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("number", [0, 999_999_999])
def test_what_a_model_writes_into_a_call_is_not_the_cost(scripted: Scripted, size: int, number: int) -> None:
    own = {"input_tokens": number, "output_tokens": number}
    content = [{"type": "tool_use", "id": "1", "name": "f", "input": {"usage": own, "message": {"usage": own}}}]
    message = {"id": "x", "content": content, "usage": {"input_tokens": 3, "output_tokens": 4}, "stop": {"usage": own}}
    for text in (json.dumps(message), json.dumps(message, separators=(",", ":")), json.dumps(message, indent=2)):
        scripted.upstream.set(pieces(text.encode(), size), kind="application/json")
        used = scripted.gateway.send("/", b"{}", scripted.gateway.headers("")).used
        assert used == Used(7, 3, 4, 0, False)


@pytest.mark.parametrize("where", ["before", "after"])
def test_usage_is_found_anywhere_in_an_answer_of_megabytes(scripted: Scripted, where: str) -> None:
    usage = {"usage": {"prompt_tokens": 30_000, "total_tokens": 30_005, "completion_tokens": 5}}
    entry = {"72": {"logprob": -5.57, "rank": 1, "decoded_token": '\\"usage":{"prompt_tokens":1}'}}
    much = {"prompt_logprobs": [None, *[entry] * 40_000]}
    text = json.dumps({"id": "x", **much, **usage} if where == "after" else {"id": "x", **usage, **much}).encode()
    assert len(text) > 3_000_000
    scripted.upstream.set(pieces(text, 50_000), kind="application/json")
    answer = scripted.gateway.send("/", b"{}", scripted.gateway.headers(""))
    assert answer.body == text
    assert answer.used == Used(30_005, 30_000, 5, 0, False)


DETAILS = {"cached_tokens": 8}
CACHED = {
    CHAT: {"prompt_tokens": 9, "total_tokens": 11, "completion_tokens": 2, "prompt_tokens_details": DETAILS},
    RESPONSES: {"input_tokens": 9, "input_tokens_details": DETAILS, "output_tokens": 2, "total_tokens": 11},
    MESSAGES: {"input_tokens": 9, "output_tokens": 2, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 8},
}


@pytest.mark.parametrize("path", CACHED)
def test_tokens_that_came_from_the_cache_are_told(scripted: Scripted, path: str) -> None:
    text = json.dumps({"id": "x", "usage": CACHED[path]}).encode()
    scripted.upstream.set([text], kind="application/json")
    assert scripted.gateway.send("/", b"{}", scripted.gateway.headers("")).used == Used(11, 9, 2, 8, False)
