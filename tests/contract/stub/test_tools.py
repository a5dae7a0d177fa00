"""Tools, thinking, and the rest of what a request can ask for besides words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.stub.conftest import StartStub
from tests.contract.stub.process import Stub
from tests.contract.stub.recordings import events

CHAT = "/v1/chat/completions"


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [tool("find", what={"type": "string"}), tool("add", a={"type": "integer", "minimum": 3}, b={"type": "number"})]


@pytest.fixture
def stub(start_stub: StartStub) -> Stub:
    return start_stub(STUB_MODEL="m", STUB_DECODE_TOKENS_PER_S=10_000, STUB_MODE="deepseek_v4")


def ask(stub: Stub, text: str, **fields: Any) -> dict[str, Any]:
    status, answer = stub.post(CHAT, {"messages": [{"role": "user", "content": text}], **fields})
    assert status == 200, answer
    return answer["choices"][0]


def called(choice: dict[str, Any]) -> list[str]:
    return [call["function"]["name"] for call in choice["message"].get("tool_calls", [])]


def test_with_auto_a_tool_is_called_when_the_last_user_message_names_it_after_call_or_use(stub: Stub) -> None:
    cases = {
        "call find": ["find"],
        "Please use the `add` function": ["add"],
        "use add, then call find": ["add", "find"],
        "find it": [],
        "call finder": [],
    }
    assert {text: called(ask(stub, text, tools=TOOLS)) for text in cases} == cases
    assert called(ask(stub, "use add, then call find", tools=TOOLS, parallel_tool_calls=False)) == ["add"]
    assert called(ask(stub, "call find", tools=TOOLS, tool_choice="none")) == []


def test_required_calls_the_first_tool_and_a_named_choice_that_one(stub: Stub) -> None:
    named = {"type": "function", "function": {"name": "add"}}
    assert called(ask(stub, "x", tools=TOOLS, tool_choice="required")) == ["find"]
    choice = ask(stub, "x", tools=TOOLS, tool_choice=named)
    assert (called(choice), choice["finish_reason"]) == (["add"], "tool_calls")
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {"a": 3, "b": 0.5}


def test_a_limit_cuts_arguments_and_is_the_reason_given(stub: Stub) -> None:
    choice = ask(stub, "x", tools=TOOLS, tool_choice="required", max_tokens=30)
    assert choice["finish_reason"] == "length"
    assert len(choice["message"]["tool_calls"][0]["function"]["arguments"]) < len('{"what": "stand-in"}')


def test_a_stream_of_calls_begins_each_with_id_and_name_and_goes_on_with_arguments(stub: Stub) -> None:
    body = [{"role": "user", "content": "use find and call add"}]
    _, answer = stub.stream(messages=body, tools=TOOLS)
    seen = events(answer.read().decode())
    deltas = [event["choices"][0]["delta"] for event in seen[1:-1]]
    calls = [delta["tool_calls"][0] for delta in deltas[:-1]]
    begun = [(call["index"], call["function"]["name"]) for call in calls if "id" in call]
    texts = ["".join(c["function"]["arguments"] for c in calls if c["index"] == index) for index in (0, 1)]
    assert begun == [(0, "find"), (1, "add")]
    assert [json.loads(text) for text in texts] == [{"what": "stand-in"}, {"a": 3, "b": 0.5}]
    assert (deltas[-1], seen[-2]["choices"][0]["finish_reason"]) == ({}, "tool_calls")


def test_a_server_without_a_parser_refuses_tools(start_stub: StartStub) -> None:
    plain = start_stub()
    status, answer = plain.post(CHAT, {"messages": [{"role": "user", "content": "call find"}], "tools": TOOLS})
    assert (status, "tool-call-parser" in answer["error"]["message"]) == (400, True)


def test_thinking_comes_only_when_asked_for_and_before_the_answer(stub: Stub) -> None:
    assert ask(stub, "x", max_tokens=200)["message"]["reasoning"] is None
    for fields in ({"reasoning_effort": "low"}, {"chat_template_kwargs": {"thinking": True}}):
        message = ask(stub, "x", max_tokens=200, **fields)["message"]
        assert message["reasoning"].startswith("This is flashbox's stand-in engine, so there is nothing to think")
        assert message["content"].startswith("This is flashbox's stand-in engine")
    assert ask(stub, "x", max_tokens=200, reasoning_effort="none")["message"]["reasoning"] is None
    _, answer = stub.stream(max_tokens=200, reasoning_effort="high")
    deltas = [event["choices"][0]["delta"] for event in events(answer.read().decode())[1:-1]]
    kinds = [key for delta in deltas for key in delta]
    assert kinds == sorted(kinds, key=["reasoning", "content"].index)
    assert set(kinds) == {"reasoning", "content"}


def test_later_releases_think_unless_told_not_to(start_stub: StartStub) -> None:
    stub = start_stub(STUB_MODE="deepseek_v4", STUB_RELEASE="0.32.0", STUB_DECODE_TOKENS_PER_S=10_000)
    assert ask(stub, "x", max_tokens=200)["message"]["reasoning"]
    assert ask(stub, "x", max_tokens=200, chat_template_kwargs={"thinking": False})["message"]["reasoning"] is None


def test_the_tool_parser_counts_what_it_looked_at(stub: Stub) -> None:
    ask(stub, "call find", tools=TOOLS)
    ask(stub, "x", tools=TOOLS, max_tokens=5)
    ask(stub, "x", max_tokens=5)
    count, kind = (
        "vllm:tool_call_parser_invocations_total",
        {"mode": "non_streaming", "request_type": "chat_completions"},
    )
    assert stub.metric(count, outcome="tool_call", **kind) == 1
    assert stub.metric(count, outcome="no_tool_call", **kind) == 1
    assert stub.metric("vllm:request_success_total", finished_reason="stop") == 1


def test_n_choices_stop_echo_and_probabilities_go_together(stub: Stub) -> None:
    body = {
        "messages": [{"role": "user", "content": "x"}],
        "n": 3,
        "max_tokens": 6,
        "logprobs": True,
        "top_logprobs": 2,
    }
    status, answer = stub.post(CHAT, {**body, "prompt_logprobs": 1, "echo": True, "stop": ["zzz"]})
    assert (status, [choice["index"] for choice in answer["choices"]]) == (200, [0, 1, 2])
    assert all(len(choice["logprobs"]["content"]) == 6 for choice in answer["choices"])
    assert all(choice["message"]["content"].startswith("x") for choice in answer["choices"])
    assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"]
    assert answer["usage"]["completion_tokens"] == 18
    status, answer = stub.post(CHAT, {**body, "prompt_logprobs": 21})
    assert (status, answer["error"]["param"]) == (400, "prompt_logprobs")
