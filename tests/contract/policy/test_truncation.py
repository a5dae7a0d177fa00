"""`on_overflow: truncate` against the stand-in engine: what passes fits, and nothing but old turns is missing."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.policy.conftest import StartPolicy
from tests.contract.policy.process import CHAT, COMPLETIONS, MESSAGES, Policy, rules
from tests.contract.stub.process import Stub, free_port

CONTEXT = 1024  # of the recorded server


def truncating(stub: Stub, **changed: Any) -> dict[str, Any]:
    return rules(truncate=True, context=CONTEXT, tokenize_url=f"http://127.0.0.1:{stub.port}/tokenize", **changed)


@pytest.fixture(scope="module")
def service(recorded_server: Stub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Policy]:
    started = Policy(tmp_path_factory.mktemp("truncating"), truncating(recorded_server))
    try:
        yield started.wait_ready()
    finally:
        started.close()


def conversation(turns: int, size: int = 60) -> list[dict[str, Any]]:
    """A system prompt, turns with a tool call each, a last question."""
    found: list[dict[str, Any]] = [{"role": "system", "content": "Be brief. é"}]
    for turn in range(turns):
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        found += [
            {"role": "user", "content": f"question {turn} " + "x" * size},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{turn}", "content": f"result {turn}"},
            {"role": "assistant", "content": f"answer {turn} " + "y" * size},
        ]
    return [*found, {"role": "user", "content": "and now?"}]


def body_of(messages: list[dict[str, Any]], **fields: Any) -> bytes:
    return json.dumps({"model": "tiny", "messages": messages, **fields}, ensure_ascii=False, indent=1).encode()


def test_a_conversation_that_is_too_long_loses_its_oldest_turns_and_is_then_taken(
    service: Policy, recorded_server: Stub
) -> None:
    body = body_of(conversation(40), max_tokens=50, temperature=0.5)
    assert recorded_server.request("POST", CHAT, body)[0] == 400, "too long for the engine"
    heard = service.caller().ask(body, headers={"content-length": str(len(body))})
    assert heard.status is None
    sent, got = json.loads(body), json.loads(heard.body)
    dropped = int(heard.facts["truncated_turns"])
    assert 0 < dropped < 40 and heard.facts["truncated"] == f"turns={dropped}"
    assert got == {**sent, "messages": [sent["messages"][0], *sent["messages"][1 + 4 * dropped :]]}
    assert heard.set_headers["content-length"] == str(len(heard.body))
    assert recorded_server.request("POST", CHAT, heard.body)[0] == 200
    one_more = {**sent, "messages": [sent["messages"][0], *sent["messages"][1 + 4 * (dropped - 1) :]]}
    assert recorded_server.request("POST", CHAT, json.dumps(one_more))[0] == 400, "no turn was dropped without need"
    assert service.metric("policy_truncated_turns_total") >= dropped


def test_a_conversation_that_fits_passes_byte_for_byte(service: Policy) -> None:
    body = body_of(conversation(2), max_tokens=50)
    heard = service.caller().ask(body)
    assert heard.body == body and heard.facts["truncated_turns"] == 0 and "truncated" not in heard.facts
    assert heard.set_headers == {}


def test_when_the_last_turn_alone_is_too_long_the_engine_answers(service: Policy, recorded_server: Stub) -> None:
    messages = [*conversation(3), {"role": "user", "content": "z" * 5000}]
    body = body_of(messages, max_tokens=50)
    heard = service.caller().ask(body)
    assert heard.body == body and heard.facts["truncated_turns"] == 0
    assert recorded_server.request("POST", CHAT, heard.body)[0] == 400


def test_the_newer_name_of_max_tokens_counts(service: Policy) -> None:
    few = service.caller().ask(body_of(conversation(40), max_completion_tokens=10, max_tokens=900))
    many = service.caller().ask(body_of(conversation(40), max_completion_tokens=900, max_tokens=10))
    assert 0 < few.facts["truncated_turns"] < many.facts["truncated_turns"]


def test_completions_are_told_to_cut_and_keep_a_cut_of_their_own(service: Policy, recorded_server: Stub) -> None:
    body = json.dumps({"model": "tiny", "prompt": "word " * 2000, "max_tokens": 24}).encode()
    assert recorded_server.request("POST", COMPLETIONS, body)[0] == 400
    heard = service.caller().ask(body, path=COMPLETIONS)
    assert heard.body == body[:-1] + b',"truncate_prompt_tokens":1000}'
    assert recorded_server.request("POST", COMPLETIONS, heard.body)[0] == 200
    own = body[:-1] + b',"truncate_prompt_tokens":5}'
    assert service.caller().ask(own, path=COMPLETIONS).body == own


def test_other_routes_are_left_to_the_engine(service: Policy) -> None:
    body = body_of([{"role": "user", "content": "z" * 5000}], max_tokens=50)
    assert service.caller().ask(body, path=MESSAGES).body == body


def test_a_compressed_conversation_is_cut_too(service: Policy) -> None:
    import gzip

    body = body_of(conversation(40), max_tokens=50)
    heard = service.caller().ask(gzip.compress(body), headers={"content-encoding": "gzip"})
    assert heard.facts["truncated_turns"] > 0 and heard.removed == ["content-encoding"]
    assert heard.set_headers["content-length"] == str(len(heard.body))


class _Silent(http.server.BaseHTTPRequestHandler):
    """Takes the request and never answers."""

    over = threading.Event()

    def do_POST(self) -> None:
        self.over.wait(30)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_when_nobody_counts_the_body_passes_unchanged_and_that_is_counted(start_policy: StartPolicy) -> None:
    body = body_of(conversation(40), max_tokens=50)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    urls = {"unreachable": f"http://127.0.0.1:{free_port()}/tokenize"}
    urls["slow"] = f"http://127.0.0.1:{server.server_port}/tokenize"
    try:
        for reason, url in urls.items():
            policy = start_policy(rules(truncate=True, context=CONTEXT, tokenize_url=url))
            assert policy.caller().ask(body).body == body
            assert policy.metric("policy_truncate_failures_total", reason=reason) == 1
    finally:
        _Silent.over.set()
        server.shutdown()
        server.server_close()


def test_nothing_is_cut_unless_the_setting_says_so(start_policy: StartPolicy, recorded_server: Stub) -> None:
    policy = start_policy({**truncating(recorded_server), "truncate": False})
    body = body_of(conversation(40), max_tokens=50)
    assert policy.caller().ask(body).body == body
