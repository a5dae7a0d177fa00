"""The gateway's usage filter in front of real vLLM: what it hides, and what it says that an answer cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from policy.usage import plan

from tests.contract.usage import test_charging as charging
from tests.contract.usage import test_hiding as hiding
from tests.contract.usage.answers import BODIES, BOTH, CHAT, MESSAGES, RESPONSES, TEXT, direct, pieces
from tests.contract.usage.conftest import Scripted, scripted_by
from tests.contract.usage.gateway import ESTIMATE, Gateway
from tests.contract.usage.test_charging import engine_counts, read_and_leave
from tests.engine.conftest import COMPARED
from tests.engine.real import OPEN_V4, PLAIN, Real
from tests.eventually import eventually

KINDS = {"plain": PLAIN, "V4": OPEN_V4}
LONG = 900  # tokens of an answer that its client does not wait for
SIZES = (1, 7, 64, 230)

# The obligations that the stand-in's tests state, held by the real engine.
test_a_client_that_never_asks_gets_what_the_engine_sends_it = (
    charging.test_a_client_that_never_asks_gets_what_the_engine_sends_it
)
test_a_client_gets_the_usage_it_asks_for = charging.test_a_client_gets_the_usage_it_asks_for
test_the_cost_is_what_the_engine_counted = charging.test_the_cost_is_what_the_engine_counted
test_a_tool_that_the_answer_repeats_does_not_change_the_cost = (
    charging.test_a_tool_that_the_answer_repeats_does_not_change_the_cost
)


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, engine_image: str) -> Iterator[Real]:
    """One server of each kind."""
    real = Real(KINDS[request.param])
    yield real
    real.close()


@pytest.fixture(scope="module")
def gateway(server: Real, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    envoy = Gateway(tmp_path_factory.mktemp("usage"), server.port)
    yield envoy
    envoy.end()


@pytest.fixture
def fronted(gateway: Gateway, server: Real) -> Iterator[tuple[Gateway, Real]]:
    """The real engine behind the gateway."""
    yield gateway, server
    assert gateway.stat("http.ingress_http.lua.usage.errors") == 0
    COMPARED["answers of real vLLM through the usage filter: bytes and cost"] += 1


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    """What the real engine wrote, once more in other pieces."""
    with scripted_by(tmp_path_factory.mktemp("pieces")) as again:
        yield again


@pytest.mark.parametrize("case", [name for name in hiding.CASES if name != "tools"])
def test_what_the_engine_wrote_split_anywhere_is_what_it_writes_without_usage(
    server: Real, scripted: Scripted, case: str
) -> None:
    asked, final, plain = hiding.pair(server, case)
    assert b'"usage":{' in asked and asked != plain
    for strip, expected in (("all", plain), ("chunks", final), ("", asked)):
        splits: list[list[bytes]] = [pieces(asked, size) for size in SIZES]
        splits += [[asked[:at], asked[at:]] for at in range(1, len(asked), 13)]
        for split in splits:
            assert scripted.answer(split, strip).body == expected, (strip, split[0][-60:])
        COMPARED["streams of real vLLM split at places: same bytes"] += len(splits)


@pytest.mark.parametrize("path, n", [*((path, 1) for path in BODIES), (CHAT, 2), (TEXT, 2)])
def test_a_client_that_leaves_pays_what_the_engine_generated_for_it(
    fronted: tuple[Gateway, Real], path: str, n: int
) -> None:
    gateway, server = fronted
    limit = "max_output_tokens" if path == RESPONSES else "max_tokens"
    more: dict[str, Any] = {"ignore_eos": True, "n": n} if path in (CHAT, TEXT) else {}
    # Temperature 0 repeats one byte that is no text of its own, and of such tokens two of the routes write no event.
    body = {**BODIES[path], "temperature": 1, "seed": 1, "stream": True, limit: LONG, **more}
    raw = json.dumps(body).encode()
    change = plan(path, raw, body)
    headers = gateway.headers(change.strip)
    before = engine_counts(server)
    received = read_and_leave(gateway.port, path, change.changed(raw), headers, 20)
    used = gateway.used(headers)
    assert used is not None
    eventually(lambda: server.metric("vllm:num_requests_running") == 0, 20)
    prompt, completion = (new - old for new, old in zip(engine_counts(server), before, strict=True))
    assert used.estimated == (path in (RESPONSES, MESSAGES))
    assert used.prompt == (ESTIMATE if path == RESPONSES else prompt // n)  # a key pays for a prompt once
    # The engine goes on for a few steps until it knows; what it wrote for nobody is nobody's.
    assert received - 2 <= used.completion <= completion < LONG * n
    COMPARED["clients of real vLLM that left: charged no more than was generated"] += 1


def test_the_tools_of_an_answer_are_not_taken_for_its_usage(server: Real, scripted: Scripted) -> None:
    body = {**BODIES[CHAT], "temperature": 0, "tools": [hiding.TOOL], "tool_choice": "none", "stream": True}
    asked, plain = direct(server, CHAT, {**body, "stream_options": BOTH}), direct(server, CHAT, body)
    for size in SIZES:
        assert scripted.answer(pieces(asked, size), "all").body == plain
