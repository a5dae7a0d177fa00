"""Clients that never ask for usage see none, through the whole chain: byte for byte what the engine would have sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.contract.gateway.counted import BODIES, MODEL, SAID, Clients, Counted, body, counted, limited, secret
from tests.contract.gateway.harness import CHAT, MESSAGES, UPSTREAM_KEY, Answer
from tests.contract.usage.answers import BOTH, neutral
from tests.counts import counts

OPTIONS = (None, {}, {"include_usage": False}, {"include_usage": True}, BOTH, {"continuous_usage_stats": True})


@pytest.fixture(scope="module", params=["0.26.0", "0.33.0"])
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    """One replica of each release; what clients do not send is chosen by nobody, so answers can be compared."""
    with counted(tmp_path_factory.mktemp("usage"), limited("u"), engine={"STUB_RELEASE": request.param}) as made:
        yield made
        assert made.stat("http.ingress_http.lua.usage.errors") == 0


def send(gateway: Counted, path: str, content: dict[str, Any]) -> Answer:
    headers = {"content-type": "application/json", "accept-encoding": "gzip, br"}
    return gateway.ask("POST", path, content, headers=headers, key=secret("u"))


def direct(gateway: Counted, path: str, content: dict[str, Any]) -> tuple[int, bytes]:
    """What the engine itself answers."""
    headers = {"content-type": "application/json", "authorization": f"Bearer {UPSTREAM_KEY}"}
    status, _, answer = gateway.stubs[0].request("POST", path, json.dumps(content), headers)
    return status, answer


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("path", BODIES)
def test_an_answer_is_what_the_engine_would_have_sent(gateway: Counted, path: str, stream: bool) -> None:
    content = body(path, tokens=30, stream=stream)
    status, wanted = direct(gateway, path, content)
    answer = send(gateway, path, content)
    assert (answer.status, neutral(answer.body)) == (status, neutral(wanted))
    assert not [name for name in answer.headers if name.startswith("x-flashbox")], "what filters say to each other"


@pytest.mark.parametrize("options", OPTIONS, ids=map(str, OPTIONS))
@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
def test_streams_say_exactly_the_usage_that_was_asked_for(gateway: Counted, path: str, options: Any) -> None:
    for more in ({}, {"n": 2}, {"logprobs": True, "top_logprobs": 1} if path == CHAT else {"logprobs": 1}):
        content = body(path, tokens=12, stream=True, stream_options=options, **more)
        status, wanted = direct(gateway, path, content)
        answer = send(gateway, path, content)
        assert answer.status == status
        if options != {"continuous_usage_stats": True}:  # whose meaning alone differs by release, and is nothing
            assert len(answer.body.split(b"\n\n")) == len(wanted.split(b"\n\n"))
        assert sorted(neutral(answer.body).split(b"\n\n")) == sorted(neutral(wanted).split(b"\n\n"))


def test_many_streams_at_once_are_whole_and_say_no_usage(gateway: Counted) -> None:
    number = counts(20, 200)

    async def work(clients: Clients) -> list[Answer]:
        return await asyncio.gather(*(clients.ask("u", tokens=40, stream=True) for _ in range(number)))

    wanted = neutral(direct(gateway, CHAT, body(tokens=40, stream=True))[1])
    for answer in gateway.clients(work):
        assert b'"usage"' not in answer.body
        assert neutral(answer.body) == wanted


def test_openais_client_that_does_not_ask_sees_none(gateway: Counted) -> None:
    base = f"http://127.0.0.1:{gateway.port}/v1"
    with openai.OpenAI(base_url=base, api_key=secret("u"), max_retries=0) as client:
        asked: dict[str, Any] = {"model": MODEL, "messages": SAID, "max_tokens": 9, "stream": True}
        chunks = list(client.chat.completions.create(**asked))
        assert {chunk.usage for chunk in chunks} == {None} and all(chunk.choices for chunk in chunks)
        last = list(client.chat.completions.create(**asked, stream_options={"include_usage": True}))[-1]
        assert last.usage.completion_tokens == 9 and not last.choices
        texts = list(client.completions.create(model=MODEL, prompt="Once", max_tokens=9, stream=True))
        assert {chunk.usage for chunk in texts} == {None} and all(chunk.choices for chunk in texts)
        assert client.chat.completions.create(**{**asked, "stream": False}).usage.completion_tokens == 9
        events = list(client.responses.create(model=MODEL, input="Once", max_output_tokens=16, stream=True))
        assert events[-1].response.usage.output_tokens >= 1, "this API always says it"


def test_anthropics_client_sees_what_its_api_always_says(gateway: Counted) -> None:
    base = f"http://127.0.0.1:{gateway.port}"
    with anthropic.Anthropic(base_url=base, api_key=secret("u"), max_retries=0) as client:
        message = client.messages.create(model=MODEL, max_tokens=9, messages=SAID)  # type: ignore[arg-type]
        assert message.usage.output_tokens == 9
        with client.messages.stream(model=MODEL, max_tokens=9, messages=SAID) as stream:  # type: ignore[arg-type]
            text = "".join(stream.text_stream)
            assert text and stream.get_final_message().usage.output_tokens == 9
    status, wanted = direct(gateway, MESSAGES, body(MESSAGES, stream=True))
    assert (status, neutral(wanted)) == (200, neutral(send(gateway, MESSAGES, body(MESSAGES, stream=True)).body))
