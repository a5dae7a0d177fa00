"""What the gateway governs, before real vLLM: bodies it must not refuse, usage, budgets, places for streams."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import requests

from tests.contract.stub.process import total
from tests.engine.conftest import COMPARED
from tests.engine.stacks import MODEL, clients
from tests.eventually import eventually
from tests.integration.callers import caller, used
from tests.integration.stack import Stack, docker
from tests.load import Target

ASK: list[Any] = [{"role": "user", "content": "Hello"}]
CHAT, TEXT, RESPONSES, MESSAGES = "chat/completions", "completions", "responses", "messages"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": ASK, "max_tokens": 40},
    TEXT: {"prompt": "Once upon a time", "max_tokens": 40},
    RESPONSES: {"input": "Once upon a time", "max_output_tokens": 40},
    MESSAGES: {"messages": ASK, "max_tokens": 40},
}
CHARGED_S = 60
PAGE = "import urllib.request;print(urllib.request.urlopen('http://127.0.0.1:8000/metrics').read().decode())"


def ask(target: Target, route: str = CHAT, **fields: Any) -> requests.Response:
    body = {"model": MODEL, "temperature": 0, **BODIES[route], **fields}
    return requests.post(
        f"{target.url}/{route}", json=body, headers=target.headers, timeout=120, stream=bool(fields.get("stream"))
    )


def engine_counts(stack: Stack) -> tuple[int, int]:
    """Tokens of prompts and of answers, by the engine's own counters, once it is at rest."""

    def at_rest() -> str:
        page = docker("exec", stack.container("engine-0"), "python3", "-c", PAGE)
        return "" if any(total(page, f"vllm:num_requests_{state}", {}) for state in ("running", "waiting")) else page

    page = eventually(at_rest, 60)
    return int(total(page, "vllm:prompt_tokens_total", {})), int(total(page, "vllm:generation_tokens_total", {}))


@pytest.mark.parametrize("choice", [None, "auto", "none"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_sends_an_empty_list_of_tools_gets_an_answer(
    vllm: Stack, choice: str | None, stream: bool
) -> None:
    answer = ask(vllm.target(), tools=[], stream=stream, **({"tool_choice": choice} if choice else {}))
    assert answer.status_code == 200, answer.text
    assert answer.text.endswith("data: [DONE]\n\n") if stream else answer.json()["choices"]
    COMPARED["bodies with an empty list of tools, answered by real vLLM"] += 1


def test_clients_that_never_ask_for_usage_see_none_and_are_charged(vllm: Stack) -> None:
    openai, anthropic = clients(vllm)
    before = used(vllm, "tests")["ok"]
    for chunk in openai.chat.completions.create(model=MODEL, messages=ASK, max_tokens=20, stream=True):
        assert chunk.usage is None and chunk.choices
    for piece in openai.completions.create(model=MODEL, prompt="Once", max_tokens=20, stream=True):
        assert piece.usage is None and piece.choices
    with anthropic.messages.stream(model=MODEL, messages=ASK, max_tokens=20) as stream:
        assert stream.get_final_message().usage.output_tokens <= 20
    raw = ask(vllm.target(), stream=True).text
    assert raw.endswith("data: [DONE]\n\n") and '"usage":{' not in raw
    eventually(lambda: used(vllm, "tests")["ok"] == before + 4, 10)


def test_what_is_charged_is_what_the_engine_counted_on_every_route(vllm: Stack) -> None:
    target = caller(vllm, "counted")
    before, sent = engine_counts(vllm), 0
    for route in BODIES:
        for stream in (False, True):
            for _ in range(3):
                answer = ask(target, route, stream=stream)
                assert answer.status_code == 200 and answer.text
                sent += 1
    twice = ask(target, n=2, temperature=1).json()["usage"]["prompt_tokens"]  # the engine counts it for each choice
    assert ask(target, stream=True, stream_options={"include_usage": True}).text.count('"usage":{') == 1
    assert ask(target, TEXT, prompt=["a", "b c"]).status_code == 200
    prompt, generated = (new - old for new, old in zip(engine_counts(vllm), before, strict=True))
    expected = {"ok": sent + 3, "prompt": prompt - twice, "completion": generated, "estimated": 0}
    found = eventually(lambda: (u := used(vllm, "counted"))["ok"] == sent + 3 and u, CHARGED_S)
    assert {name: found[name] for name in expected} == expected
    COMPARED["tokens charged, equal to real vLLM's counters"] += prompt + generated


def test_clients_that_leave_are_charged_within_what_the_engine_generated(vllm: Stack) -> None:
    target, left, leavers, gone = caller(vllm, "leaver"), 12, [], []
    before = engine_counts(vllm)

    def leave(number: int) -> None:
        route = (CHAT, TEXT)[number % 2]
        with ask(target, route, stream=True, max_tokens=4000, temperature=1, ignore_eos=True) as answer:
            assert answer.status_code == 200, answer.text
            lines = answer.iter_lines()
            for _ in range(40 + number):
                next(lines)
        gone.append(number)

    for number in range(left):
        leavers.append(threading.Thread(target=leave, args=(number,)))
        leavers[-1].start()
    for leaver in leavers:
        leaver.join(120)
    assert sorted(gone) == list(range(left))
    whole = 0
    for _ in range(20):
        whole += ask(target, max_tokens=200, ignore_eos=True).json()["usage"]["total_tokens"]
    prompt, generated = (new - old for new, old in zip(engine_counts(vllm), before, strict=True))
    found = eventually(lambda: (u := used(vllm, "leaver"))["left"] == left and u, CHARGED_S, every_s=1)
    charged = found["prompt"] + found["completion"]
    assert found["prompt"] == prompt
    assert whole < charged <= prompt + generated
    # The engine is a few steps ahead of what it has written when its client leaves.
    assert prompt + generated - charged <= left * 32, (charged, prompt, generated)
    COMPARED["clients of the whole stack that left real vLLM"] += left


def test_a_budget_is_spent_by_a_stream_and_paid_back_and_places_are_counted(vllm: Stack) -> None:
    target = caller(vllm, "budget", "--tpm", "60", "--streams", "2")
    endless: dict[str, Any] = {"stream": True, "max_tokens": 6000, "temperature": 1, "ignore_eos": True}
    with ask(target, **endless) as first:
        kept = first.iter_lines()  # what reads closes with it
        next(kept)
        with ask(target, **endless) as second:
            lines = second.iter_lines()
            next(lines)
            refused = ask(target)
            assert (first.status_code, second.status_code, refused.status_code) == (200, 200, 429), refused.text
            assert refused.json()["error"]["code"] == "too_many_streams"
            for _ in range(400):
                next(lines)

    def exhausted() -> bool:
        again = ask(target)
        return again.status_code == 429 and again.json()["error"]["code"] == "token_budget_exhausted"

    eventually(exhausted, 20)
    assert int(ask(target).headers["retry-after"]) > 60
    assert ask(caller(vllm, "other")).status_code == 200
