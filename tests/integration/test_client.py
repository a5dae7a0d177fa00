"""What users' own client sees: the openai package against the running stack."""

from __future__ import annotations

import openai
import pytest
import requests

from tests.integration.stack import Stack

MODEL = "deepseek-v4-flash"
ASK = [{"role": "user", "content": "Say something about gateways."}]


@pytest.fixture
def client(stack: Stack) -> openai.OpenAI:
    target = stack.target()
    return openai.OpenAI(base_url=target.url, api_key=target.key, max_retries=0, timeout=60)


def test_a_chat_answer_has_text_and_usage_that_adds_up(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=8)
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8
    assert answer.usage.prompt_tokens > 0
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 8


def test_a_streamed_chat_is_the_same_text_in_pieces_and_ends_with_usage(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=8, seed=7)
    stream = client.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=8, seed=7, stream=True, stream_options={"include_usage": True}
    )
    events = list(stream)
    text = "".join(e.choices[0].delta.content or "" for e in events if e.choices)
    assert text == whole.choices[0].message.content
    assert [e.usage.completion_tokens for e in events if e.usage] == [8]
    assert next(e for e in reversed(events) if e.choices).choices[0].finish_reason == "length"


def test_completions_stream_and_whole(client: openai.OpenAI) -> None:
    whole = client.completions.create(model=MODEL, prompt="Once", max_tokens=6)
    assert whole.usage is not None and whole.usage.completion_tokens == 6
    assert len([e for e in client.completions.create(model=MODEL, prompt="Once", max_tokens=6, stream=True)]) >= 6


def test_the_model_is_listed(client: openai.OpenAI) -> None:
    assert [m.id for m in client.models.list()] == [MODEL]


def test_a_wrong_key_is_an_authentication_error(stack: Stack) -> None:
    client = openai.OpenAI(base_url=stack.url, api_key="fb-wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError) as caught:
        client.chat.completions.create(model=MODEL, messages=ASK)
    assert caught.value.code == "invalid_api_key"
    assert caught.value.request_id


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-4", messages=ASK)


def test_an_unknown_route_is_not_found_in_openais_form(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.embeddings.create(model=MODEL, input="x")
    assert caught.value.body is not None and caught.value.body["type"] == "not_found_error"  # type: ignore[index]


def test_a_prompt_over_the_context_is_a_bad_request(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=10_000_000)
    assert "max_tokens" in str(caught.value)


def test_health_needs_no_key_and_the_engines_own_routes_stay_closed(stack: Stack) -> None:
    base = stack.url.removesuffix("/v1")
    health = requests.get(f"{base}/health", timeout=10)
    assert (health.status_code, health.json()) == (200, {"status": "OK"})
    key = {"authorization": f"Bearer {stack.target().key}"}
    for path in (
        "/metrics",
        "/version",
        "/load",
        "/ping",
        "/invocations",
        "/server_info",
        "/v1/load_lora_adapter",
        "/docs",
    ):
        assert requests.get(f"{base}{path}", headers=key, timeout=10).status_code == 404, path
        assert requests.post(f"{base}{path}", headers=key, json={}, timeout=10).status_code == 404, path


def test_every_answer_carries_a_request_id_and_errors_repeat_it(stack: Stack) -> None:
    target = stack.target()
    good = requests.get(f"{target.url}/models", headers=target.headers, timeout=10)
    assert good.headers["x-request-id"]
    bad = requests.get(f"{target.url}/nope", headers=target.headers, timeout=10)
    assert bad.json()["error"]["request_id"] == bad.headers["x-request-id"]


def test_tokenize_and_back(stack: Stack) -> None:
    target = stack.target()
    base = target.url.removesuffix("/v1")
    prompt = {"model": MODEL, "prompt": "Hello, flashbox", "add_special_tokens": False}
    tokens = requests.post(f"{base}/tokenize", json=prompt, headers=target.headers, timeout=10).json()
    body = {"model": MODEL, "tokens": tokens["tokens"]}
    back = requests.post(f"{base}/detokenize", json=body, headers=target.headers, timeout=10)
    assert tokens["count"] == len(tokens["tokens"]) > 0
    assert back.json()["prompt"] == "Hello, flashbox"
    assert requests.post(f"{base}/tokenize", json=prompt, timeout=10).status_code == 401


def test_smoke_streams_an_answer_and_leaves_no_key_behind(stack: Stack) -> None:
    before = stack.must("keys", "list", "--json").out
    assert stack.must("smoke").out.strip()
    assert stack.must("keys", "list", "--json").out == before
