"""The `openai` and `anthropic` Python packages understand every kind of answer that the stand-in gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.contract.stub.conftest import Servers

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_TOOLS: Any = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}]
FLAT_TOOLS: Any = [{"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": None}]
CLAUDE_TOOLS: Any = [{"name": "get_weather", "input_schema": WEATHER}]
ASK: Any = [{"role": "user", "content": "Please call get_weather for me."}]
HELLO: Any = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def gpt(servers: Servers) -> Iterator[openai.OpenAI]:
    url = f"http://127.0.0.1:{servers('D').port}/v1"
    with openai.OpenAI(base_url=url, api_key="k-two", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(servers: Servers) -> Iterator[anthropic.Anthropic]:
    url = f"http://127.0.0.1:{servers('D').port}"
    # The gateway turns x-api-key into a bearer; here, without it, the client is told to send one.
    with anthropic.Anthropic(base_url=url, auth_token="k-two", api_key=None, max_retries=0) as client:
        yield client


def test_chat_calls_a_tool_and_answers_in_words_once_it_has_the_result(gpt: openai.OpenAI) -> None:
    first = gpt.chat.completions.create(model="tiny", messages=ASK, tools=CHAT_TOOLS, max_tokens=500)
    choice = first.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    call: Any = (choice.message.tool_calls or [])[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "stand-in"})
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    turns = [*ASK, choice.message.model_dump(exclude_none=True), result]
    second = gpt.chat.completions.create(model="tiny", messages=turns, tools=CHAT_TOOLS, max_tokens=9)
    assert (second.choices[0].message.content or "").startswith("This is ")


def test_a_chat_stream_gives_the_same_call_in_pieces(gpt: openai.OpenAI) -> None:
    with gpt.chat.completions.stream(model="tiny", messages=ASK, tools=CHAT_TOOLS, max_tokens=500) as stream:
        kinds = {event.type for event in stream}
        final: Any = stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in kinds
    call = final.choices[0].message.tool_calls[0]
    assert (final.choices[0].finish_reason, call.function.name) == ("tool_calls", "get_weather")
    assert json.loads(call.function.arguments) == {"city": "stand-in"}


def test_responses_stream_words_with_all_their_events(gpt: openai.OpenAI) -> None:
    with gpt.responses.stream(model="tiny", input="Hello") as stream:
        kinds = list(dict.fromkeys(event.type for event in stream))
        final = stream.get_final_response()
    assert kinds == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
        "response.output_text.delta", "response.output_text.done", "response.content_part.done",
        "response.output_item.done", "response.completed",
    ]  # fmt: skip
    whole = gpt.responses.create(model="tiny", input="Hello")
    assert final.output_text == whole.output_text
    assert (whole.status, whole.output_text[:8]) == ("completed", "This is ")


def test_responses_think_and_call_when_asked_to(gpt: openai.OpenAI) -> None:
    request: Any = {"model": "tiny", "input": "use get_weather", "tools": FLAT_TOOLS, "reasoning": {"effort": "high"}}
    whole = gpt.responses.create(**request)
    assert [item.type for item in whole.output] == ["reasoning", "function_call"]
    with gpt.responses.stream(**request) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_response()
    assert {"response.reasoning_text.delta", "response.function_call_arguments.delta"} <= kinds
    call: Any = final.output[-1]
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "stand-in"})
    turns: Any = [{"role": "user", "content": "x"}, call.model_dump(include={"type", "name", "arguments", "call_id"})]
    turns.append({"type": "function_call_output", "call_id": call.call_id, "output": "rain"})
    assert gpt.responses.create(model="tiny", input=turns, tools=FLAT_TOOLS).output_text.startswith("This is ")


def test_messages_stream_words_and_count_their_tokens(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(model="tiny", messages=HELLO, max_tokens=20, system="be brief") as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    counted = claude.messages.count_tokens(model="tiny", messages=HELLO, system="be brief").input_tokens
    assert (final.stop_reason, final.usage.output_tokens, final.usage.input_tokens) == ("max_tokens", 20, counted)
    assert text == final.content[0].text == "This is flashbox's s"  # type: ignore[union-attr]


def test_messages_call_a_tool_and_answer_once_they_have_the_result(claude: anthropic.Anthropic) -> None:
    whole = claude.messages.create(model="tiny", messages=ASK, tools=CLAUDE_TOOLS, max_tokens=500)
    with claude.messages.stream(model="tiny", messages=ASK, tools=CLAUDE_TOOLS, max_tokens=500) as stream:
        final = stream.get_final_message()
    for message in (whole, final):
        block: Any = message.content[0]
        assert (message.stop_reason, block.type, block.name) == ("tool_use", "tool_use", "get_weather")
        assert block.input == {"city": "stand-in"}
    result = {"type": "tool_result", "tool_use_id": block.id, "content": "rain"}
    turns = [*ASK, {"role": "assistant", "content": final.content}, {"role": "user", "content": [result]}]
    answer: Any = claude.messages.create(model="tiny", messages=turns, tools=CLAUDE_TOOLS, max_tokens=9)
    assert answer.content[0].text.startswith("This is ")


def test_messages_call_the_tool_that_a_choice_names(claude: anthropic.Anthropic) -> None:
    tools: Any = [*CLAUDE_TOOLS, {"name": "other", "input_schema": {"type": "object"}}]
    for choice, name in (({"type": "any"}, "get_weather"), ({"type": "tool", "name": "other"}, "other")):
        chosen: Any = choice
        answer: Any = claude.messages.create(
            model="tiny", messages=HELLO, tools=tools, tool_choice=chosen, max_tokens=500
        )
        assert answer.content[0].name == name


def test_refusals_are_the_clients_exceptions(gpt: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    with pytest.raises(openai.NotFoundError):
        gpt.responses.create(model="other", input="x")
    with pytest.raises(openai.BadRequestError):
        gpt.responses.create(model="tiny", input="x", background=True)
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="other", messages=HELLO, max_tokens=5)
    with pytest.raises(anthropic.InternalServerError):  # 0.26.0 fails where it should refuse
        claude.messages.create(model="tiny", messages=HELLO, max_tokens=9000)
