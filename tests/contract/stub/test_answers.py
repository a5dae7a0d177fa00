"""What the stand-in says is readable, honest and repeatable, and its token counts add up."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.contract.stub.conftest import StartStub
from tests.contract.stub.process import Stub
from tests.contract.stub.recordings import events

CHAT = "/v1/chat/completions"


@pytest.fixture
def stub(start_stub: StartStub) -> Stub:
    return start_stub(STUB_MODEL="m", STUB_DECODE_TOKENS_PER_S=10_000, STUB_MAX_MODEL_LEN=2048)


def chat(stub: Stub, text: str = "Hello", **fields: Any) -> dict[str, Any]:
    status, answer = stub.post(CHAT, {"messages": [{"role": "user", "content": text}], **fields})
    assert status == 200, answer
    return answer


def content(answer: dict[str, Any]) -> str:
    return answer["choices"][0]["message"]["content"]


def test_an_answer_says_that_a_stand_in_speaks_and_repeats_for_the_same_prompt_and_seed(stub: Stub) -> None:
    texts = {f"{text}{seed}": content(chat(stub, text, seed=seed)) for text in "abcdefgh" for seed in (1, 2)}
    assert all(text.startswith("This is flashbox's stand-in engine") for text in texts.values())
    assert len(set(texts.values())) > 8
    assert content(chat(stub, "a", seed=1)) == texts["a1"]


def test_an_answer_without_a_limit_ends_with_a_whole_sentence_within_the_default_length(stub: Stub) -> None:
    for text in "abcdefgh":
        answer = chat(stub, text)
        assert (answer["choices"][0]["finish_reason"], content(answer)[-1]) == ("stop", ".")
        assert 15 < answer["usage"]["completion_tokens"] <= 64


def test_an_answer_with_a_limit_is_exactly_that_long(stub: Stub) -> None:
    for limit in (1, 7, 500):
        answer = chat(stub, max_tokens=limit)
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == limit
        assert stub.post("/tokenize", {"prompt": content(answer)})[1]["count"] == limit


def test_a_stream_says_the_same_as_the_whole_answer(stub: Stub) -> None:
    fields = {"max_tokens": 80, "seed": 5}
    whole = chat(stub, **fields)
    _, answer = stub.stream(**fields, stream_options={"include_usage": True})
    seen = events(answer.read().decode())[:-1]
    assert "".join(event["choices"][0]["delta"]["content"] for event in seen[:-1]) == content(whole)
    usage = whole["usage"]
    del usage["prompt_tokens_details"]
    assert seen[-1]["usage"] == usage


def test_a_stop_string_ends_the_answer_before_it(stub: Stub) -> None:
    answer = chat(stub, max_tokens=50, stop=["engine", "zzz"])
    choice = answer["choices"][0]
    assert (content(answer), choice["finish_reason"], choice["stop_reason"]) == (
        "This is flashbox's stand-in ", "stop", "engine",
    )  # fmt: skip
    kept = chat(stub, max_tokens=50, stop="engine", include_stop_str_in_output=True)
    assert content(kept) == "This is flashbox's stand-in engine"


def test_a_prescribed_form_is_kept(stub: Stub) -> None:
    chosen = chat(stub, max_tokens=50, structured_outputs={"choice": ["yes", "no"]})
    assert (content(chosen), chosen["choices"][0]["finish_reason"]) == ("yes", "stop")
    properties = {"ok": {"type": "boolean"}, "n": {"type": "integer", "minimum": 3}, "kind": {"enum": ["a", "b"]}}
    schema = {"type": "object", "properties": properties, "required": ["ok", "n", "kind"]}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    assert json.loads(content(chat(stub, max_tokens=200, response_format=form))) == {"ok": True, "n": 3, "kind": "a"}
    assert "note" in json.loads(content(chat(stub, max_tokens=200, response_format={"type": "json_object"})))


def test_tokens_turn_back_into_the_text_they_came_from(stub: Stub, recorded_server: Stub) -> None:
    texts = ["Hello there, how are you?", "  two\n\nlines\t", "naïve 中文 🙂", "<|user|>x<|eos|>", "12345 don't!!", ""]
    for server in (stub, recorded_server):
        for text in texts:
            tokens = server.post("/tokenize", {"prompt": text})[1]["tokens"]
            assert server.post("/detokenize", {"tokens": tokens})[1] == {"prompt": text}


def test_a_prompt_that_leaves_no_room_is_refused_with_the_count_that_is_too_much(stub: Stub) -> None:
    body = {"prompt": "é" * 1000, "max_tokens": 100}
    status, answer = stub.post("/v1/completions", body)
    assert status == 400
    assert answer["error"] == {
        "message": "This model's maximum context length is 2048 tokens. However, you requested 100 output tokens and "
        "your prompt contains at least 1949 input tokens, for a total of at least 2049 tokens. Please reduce the "
        "length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=1949)",
        "type": "BadRequestError",
        "param": "input_tokens",
        "code": 400,
    }
    assert stub.post("/v1/completions", {**body, "max_tokens": 48})[0] == 200


def test_the_openai_client_understands_stream_usage_and_errors(stub: Stub) -> None:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{stub.port}/v1", api_key="x", max_retries=0) as client:
        messages: Any = [{"role": "user", "content": "Hello"}]
        options: Any = {"include_usage": True}
        stream = client.chat.completions.create(
            model="m", messages=messages, max_tokens=9, stream=True, stream_options=options
        )
        chunks = list(stream)
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 9
        assert [model.id for model in client.models.list()] == ["m"]
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="other", messages=messages)
        with pytest.raises(openai.BadRequestError):
            client.completions.create(model="m", prompt="x", max_tokens=0)
