"""What the service adds to a body for the engine, and what it tells the gateway, wherever a body is judged."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.policy.conftest import StartPolicy
from tests.contract.policy.envoy_side import Heard
from tests.contract.policy.process import CHAT, COMPLETIONS, MESSAGES, MIB, Policy, rules
from tests.contract.stub.conftest import Servers
from tests.eventually import eventually

AFFINITY = "x-flashbox-affinity"
BOTH = {"include_usage": True, "continuous_usage_stats": True}
OPTIONS = ',"stream_options":' + json.dumps(BOTH, separators=(",", ":"))
F04 = Path(__file__).parents[2] / "fixtures/cases/F04.json"
# Judged where it is, by the process for medium bodies, by the one for large ones.
SIZES = (200, 100_000, 3 * MIB)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Policy]:
    started = Policy(tmp_path_factory.mktemp("onward"), rules(usage=True, affinity="prefix", context=MIB))
    try:
        yield started.wait_ready()
    finally:
        started.close()


def chat(size: int, end: str = ',"stream":true }\n', text: str = "ж") -> bytes:
    """A body of exactly this many bytes."""
    start = f'{{"model":"tiny",\t"messages":[{{"role":"user","content":"{text}'
    return (start + "x" * (size - len((start + '"}]' + end).encode())) + '"}]' + end).encode()


def spliced(raw: bytes, added: str = OPTIONS) -> bytes:
    at = raw.rindex(b"}")
    return raw[:at] + added.encode() + raw[at:]


def check_sent(heard: Heard, body: bytes, **headers: str) -> None:
    """The engine gets `body`, and Envoy knows how long it is."""
    assert heard.status is None and heard.ended
    assert heard.body == body
    assert {name: value for name, value in heard.set_headers.items() if name != AFFINITY} == headers


@pytest.mark.parametrize("size", SIZES)
def test_a_stream_is_asked_for_its_usage_and_the_filter_is_told_to_hide_it(service: Policy, size: int) -> None:
    raw = chat(size)
    heard = service.caller().ask(raw, headers={"content-length": str(size)})
    check_sent(heard, spliced(raw), **{"content-length": str(size + len(OPTIONS))})
    estimate = -(-(len("user") + len(json.loads(raw)["messages"][0]["content"].encode())) // 4)
    assert (heard.facts["strip"], heard.facts["prompt_estimate"]) == ("all", estimate)
    assert (heard.facts["verdict"], heard.facts["model"], heard.facts["stream"]) == ("ok", "tiny", True)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, MESSAGES])
def test_what_is_no_stream_stays_as_it_is_and_is_estimated(service: Policy, size: int, path: str) -> None:
    raw = chat(size, end=',"max_tokens":5}')
    heard = service.caller().ask(raw, path=path, headers={"content-length": str(size)})
    check_sent(heard, raw)
    assert heard.removed == [] and heard.facts["strip"] == "" and heard.facts["prompt_estimate"] > 20


@pytest.mark.parametrize("size", SIZES)
def test_every_turn_of_a_conversation_has_one_name_and_another_has_another(service: Policy, size: int) -> None:
    later = ',{"role":"assistant","content":"yes"},{"role":"user","content":"and?"}],"max_tokens":5}'
    first, other = chat(size, end="}"), chat(size, end="}", text="z")
    names = [
        service.caller(worker).ask(raw).set_headers[AFFINITY]
        for worker, raw in ((0, first), (1, first[:-2] + later.encode()), (0, other))
    ]
    assert names[0] == names[1] != names[2] and len(names[0]) == 16


def test_a_request_without_a_beginning_has_no_name(service: Policy) -> None:
    raw = b'{"model":"tiny","prompt":""}'
    assert service.caller().ask(raw, path=COMPLETIONS).set_headers == {}


def test_other_routes_are_told_and_changed_nothing(start_policy: StartPolicy) -> None:
    given = rules(usage=True, affinity="prefix")
    given["routes"]["/tokenize"] = given["routes"][CHAT]
    heard = start_policy(given).caller().ask(chat(300), path="/tokenize")
    assert heard.body == chat(300) and heard.set_headers == {}
    assert not {"strip", "prompt_estimate"} & set(heard.facts)


def test_a_refused_request_has_no_name_and_no_estimate(service: Policy) -> None:
    heard = service.caller().ask(b'{"model":"tiny","max_tokens":9000,"prompt":"hi"}')
    assert heard.status == 400 and AFFINITY not in heard.set_headers and "strip" not in heard.facts


@pytest.mark.parametrize("size", SIZES)
def test_a_compressed_body_is_changed_after_it_was_opened(service: Policy, size: int) -> None:
    raw = chat(size)
    heard = service.caller().ask(gzip.compress(raw), headers={"content-encoding": "gzip"})
    check_sent(heard, spliced(raw), **{"content-length": str(size + len(OPTIONS))})
    assert heard.removed == ["content-encoding"]


def test_trailers_follow_a_changed_body(service: Policy) -> None:
    heard = service.caller().ask(chat(200), trailers=True)
    assert heard.body == spliced(chat(200)) and heard.trailers and not heard.ended


@pytest.mark.parametrize("worker", [0, 1])
def test_a_session_is_what_the_client_says(start_policy: StartPolicy, worker: int) -> None:
    caller = start_policy(rules(affinity="session")).caller(worker)

    def name(session: str | None, text: str) -> str:
        headers = {"x-session-id": session} if session else {}
        return caller.ask(chat(200, end="}", text=text), headers=headers).set_headers[AFFINITY]

    assert name("one", "a") == name("one", "b") != name("two", "a")
    assert name(None, "a") != name(None, "b")


def test_what_is_only_observed_is_counted_too(start_policy: StartPolicy) -> None:
    caller = start_policy(rules(usage=True, mode="observe")).caller()
    raw = b'{"model":"tiny","max_tokens":9000,"stream":true}'
    heard = caller.ask(raw)
    assert heard.facts["verdict"] == "would_refuse" and heard.facts["strip"] == "all"
    assert heard.body == spliced(raw)
    broken = caller.ask(b'{"model":"tiny","stream":true,')
    assert broken.facts["verdict"] == "would_refuse" and broken.body == b'{"model":"tiny","stream":true,'
    assert (broken.facts["strip"], broken.facts["prompt_estimate"]) == ("", 7)


def test_a_body_that_was_cut_is_asked_for_its_usage_and_keeps_its_name(
    start_policy: StartPolicy, servers: Servers
) -> None:
    tokenize = f"http://127.0.0.1:{servers('C').port}/tokenize"
    given = {"usage": True, "affinity": "prefix", "tokenize_url": tokenize, "context": 200}
    caller = start_policy(rules(truncate=True, **given)).caller()
    turns = [
        {"role": role, "content": f"{role} {turn} " + "x" * 90} for turn in range(5) for role in ("user", "assistant")
    ]
    body: dict[str, Any] = {
        "model": "tiny",
        "stream": True,
        "max_tokens": 5,
        "messages": [*turns, {"role": "user", "content": "?"}],
    }
    raw = json.dumps(body).encode()
    heard = caller.ask(raw)
    said = json.loads(heard.body)
    assert heard.facts["truncated_turns"] > 0 and len(said["messages"]) < len(body["messages"])
    assert said == {**body, "messages": body["messages"][-len(said["messages"]) :], "stream_options": BOTH}
    assert heard.set_headers["content-length"] == str(len(heard.body))
    assert heard.facts["prompt_estimate"] == 200
    short = json.dumps({**body, "messages": body["messages"][:1]}).encode()
    assert heard.set_headers[AFFINITY] == caller.ask(short).set_headers[AFFINITY]


@pytest.mark.parametrize("letter", ["C", "D", "E", "F", "G"])
@pytest.mark.parametrize("choice", [{}, {"tool_choice": "auto"}, {"tool_choice": "none"}, {"stream": True}])
def test_an_empty_list_of_tools_is_answered(
    service: Policy, servers: Servers, letter: str, choice: dict[str, Any]
) -> None:  # F04
    engine = servers(letter)
    headers = {"content-type": "application/json", "authorization": "Bearer k-two"}
    body = {**json.loads(F04.read_bytes()), "model": "tiny", "max_tokens": 4, **choice}
    raw = json.dumps(body).encode()
    assert engine.request("POST", CHAT, raw, headers)[0] == 400
    assert engine.request("POST", CHAT, service.caller().ask(raw).body, headers)[0] == 200


def test_a_tool_that_is_demanded_and_not_offered_is_left_to_the_engine(service: Policy) -> None:
    raw = json.dumps({**json.loads(F04.read_bytes()), "tool_choice": "required"}).encode()
    assert service.caller().ask(raw).body == raw


def test_an_affinity_that_nobody_knows_leaves_the_last_good_rules_in_force(start_policy: StartPolicy) -> None:
    policy = start_policy(rules(affinity="prefix", version="good"))
    policy.write(rules(affinity="nearest", version="bad"))
    eventually(lambda: policy.metric("policy_rules_broken") == 2, 20)
    assert AFFINITY in policy.caller().ask(chat(200)).set_headers
