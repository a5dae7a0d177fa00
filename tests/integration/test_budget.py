"""Token budgets, streams and usage of the whole stack: nothing is lost when a service dies, freezes or starts anew."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import pytest
import requests

from tests.counts import counts
from tests.eventually import eventually
from tests.integration.callers import caller, used
from tests.integration.stack import Stack, docker, new_stack
from tests.load import Load, Target

STREAMS, TOKENS = 4, 200  # at 20 tokens/s: ten seconds
RATE = 50
AWAY_S = counts(4, 20)  # how long a service is dead or frozen
NO_RATES = {"requests_per_second": 0, "requests_per_minute": 0}  # and the policy's 64 streams
CHARGED_S = 60  # the gateway repeats for so long what it could not say
SERVICES = ("gateway", "policy", "budget", "engine-0", "engine-1")
CHAT = "chat/completions"


@pytest.fixture(scope="module")
def running() -> Iterator[Stack]:
    """Two replicas with everything as it is by default."""
    with new_stack("budget") as stack:
        stack.settings(
            engine__max_num_seqs=64, engine__drain_s=60, gateway__drain_s=5, gateway__limits=NO_RATES,
            stub__decode_tokens_per_s=20,
        )  # fmt: skip
        stack.up()
        yield stack


@pytest.fixture
def stack(running: Stack) -> Stack:
    running.wait_ready(2)
    return running


def ask(target: Target, **fields: Any) -> requests.Response:
    body = {**target.body(1, stream=False), **fields}
    return requests.post(f"{target.url}/{CHAT}", json=body, headers=target.headers, timeout=30)


def becomes(target: Target, status: int, **fields: Any) -> requests.Response:
    """Ask until this is the answer's status."""

    def asked() -> tuple[requests.Response]:  # a response that says no is false
        answer = ask(target, **fields)
        assert answer.status_code == status, answer.text
        return (answer,)

    return eventually(asked, 10)[0]


def budget(stack: Stack) -> dict[str, Any]:
    """What `ctl.py gateway status` says of budgets."""
    said: dict[str, Any] = json.loads(stack.must("gateway", "status", "--json").out)["budget"]
    return said


def leases(stack: Stack, name: str) -> int:
    return sum(row["streams"] for row in budget(stack)["keys"] if row["key"] == name)


def prompt_of(target: Target) -> int:
    """Prompt tokens of one request of the load, as the engine counts them; it is charged to the caller too."""
    number: int = ask(target).json()["usage"]["prompt_tokens"]
    return number


def sent(load: Load, number: int) -> None:
    """Return once so many more requests have been answered."""
    already = len(load.outcomes.started)
    eventually(lambda: len(load.outcomes.started) >= already + number, 60)


def charged(stack: Stack, name: str, load: Load, prompt: int) -> None:
    """Every request of a load that was served is charged what it cost, and none twice."""
    one, whole = load.outcomes.requests["ok"] + 1, load.outcomes.streams["ok"]  # and the one that asked for the prompt
    expected = {"ok": one + whole, "prompt": (one + whole) * prompt, "completion": one + whole * TOKENS, "estimated": 0}

    def as_expected() -> bool:
        found = used(stack, name)
        assert {key: found[key] for key in expected} == expected, found
        return True

    eventually(as_expected, CHARGED_S, every_s=1)


# ---- usage


def test_usage_says_what_clients_counted_in_every_form_by_key_day_and_model(stack: Stack) -> None:
    target = caller(stack, "counted")
    answers = [ask(target, max_tokens=n).json()["usage"] for n in (1, 2, 3)]
    for options in ({}, {"stream_options": {"include_usage": True}}):
        assert ask(target, stream=True, max_tokens=5, **options).text.endswith("data: [DONE]\n\n")
    assert [ask(target, n=10_000).status_code for _ in range(2)] == [400, 400]
    prompt = answers[0]["prompt_tokens"]
    expected = {"requests": 7, "ok": 5, "refused": 2, "prompt": 5 * prompt, "completion": 16, "total": 5 * prompt + 16}
    eventually(lambda: used(stack, "counted").items() >= expected.items(), 10)
    for by, names in (("key", ["counted"]), ("model", ["", target.model])):
        said = json.loads(stack.must("usage", "--key", "counted", "--by", by, "--json").out)
        assert [row[by] for row in said["rows"]] == names
        table = stack.must("usage", "--key", "counted", "--by", by).out
        assert f"{5 * prompt + 16:,}" in table and names[-1] in table
    days = list(csv.DictReader(io.StringIO(stack.must("usage", "--key", "counted", "--by", "day", "--csv").out)))
    assert sum(int(row["total"]) for row in days) == expected["total"]


def test_the_ledger_is_kept_for_the_service_alone_and_holds_nothing_of_what_was_said(stack: Stack) -> None:
    target = caller(stack, "quiet")
    said = "planted-prompt-that-nobody-keeps"
    assert ask(target, messages=[{"role": "user", "content": said}], user=said).ok
    eventually(lambda: used(stack, "quiet")["ok"] == 1, 10)
    script = "import pathlib,sys\nfor p in sorted(pathlib.Path('/var/lib/flashbox/budget').rglob('*')):\n"
    script += " print(p, oct(p.stat().st_mode), p.read_bytes() if p.is_file() else '')"
    kept = docker("exec", stack.container("budget"), "/opt/flashbox/venv/bin/python", "-c", script)
    assert '"key":"quiet"' in kept
    assert said not in kept and target.key not in kept


# ---- a service that is away


@contextmanager
def killed(container: str) -> Iterator[None]:
    docker("kill", container)
    yield
    docker("start", container)


@contextmanager
def frozen(container: str) -> Iterator[None]:
    docker("pause", container)
    yield
    docker("unpause", container)


Away = Callable[[str], AbstractContextManager[None]]


@pytest.mark.parametrize("away", [killed, frozen])
def test_without_the_budget_service_requests_pass_and_each_is_charged_afterwards(stack: Stack, away: Away) -> None:
    name = f"steady-{away.__name__}"
    debtor, target = caller(stack, f"debtor-{away.__name__}", "--tpm", "60"), caller(stack, name)
    assert ask(debtor, messages=[{"role": "user", "content": "word " * 2000}]).ok
    becomes(debtor, 429)
    prompt = prompt_of(target)
    with Load(target, STREAMS, TOKENS, rate=RATE) as load:
        load.wait_until_streaming()
        with away(stack.container("budget")):
            sent(load, RATE * AWAY_S)
            seen = budget(stack)
            told = stack.must("gateway", "status").out
        eventually(lambda: not budget(stack)["fails_open"], 30)
        sent(load, RATE)
    assert seen["fails_open"] and "FAILS OPEN" in told
    assert set(load.outcomes.requests) == {"ok"}, load.outcomes.failures[:5]
    assert dict(load.outcomes.streams) == {"ok": STREAMS}
    charged(stack, name, load, prompt)
    refused = ask(debtor)
    assert refused.status_code == 429 and int(refused.headers["retry-after"]) > 600  # balances are kept
    assert leases(stack, name) == 0
    assert budget(stack)["troubles"] == []


def test_a_budget_process_that_dies_comes_back_by_itself_and_forgets_nothing(stack: Stack) -> None:
    target = caller(stack, "crash")
    prompt = prompt_of(target)
    with Load(target, rate=RATE) as load:
        for _ in range(counts(1, 10)):
            sent(load, RATE)
            first = int(docker("inspect", "--format", "{{.State.Pid}}", stack.container("budget")))
            os.kill(first, signal.SIGKILL)
            sent(load, RATE)
            eventually(lambda: not budget(stack)["fails_open"], 60)
    assert set(load.outcomes.requests) == {"ok"}, load.outcomes.failures[:5]
    charged(stack, "crash", load, prompt)
    assert int(docker("inspect", "--format", "{{.RestartCount}}", stack.container("budget"))) > 0


@pytest.mark.parametrize("away", [killed, frozen])
def test_without_the_policy_service_new_requests_get_503_streams_go_on_and_all_is_charged(
    stack: Stack, away: Away
) -> None:
    name = f"judged-{away.__name__}"
    target = caller(stack, name, "--streams", "0")  # more of them wait for a frozen service than a key may have
    prompt = prompt_of(target)
    with Load(target, STREAMS, TOKENS, rate=RATE) as load:
        load.wait_until_streaming()
        with away(stack.container("policy")):
            sent(load, RATE)
        eventually(lambda: ask(target).ok, 30)
        before = len(load.outcomes.failures)
        sent(load, 2 * RATE)
        assert len(load.outcomes.failures) == before
    assert before > 0
    assert not [words for words in load.outcomes.requests if not words.startswith(("ok", "503 "))]
    assert dict(load.outcomes.streams) == {"ok": STREAMS}
    found = eventually(lambda: (u := used(stack, name))["failed"] >= before and u, CHARGED_S, every_s=1)
    asked = found["ok"] - STREAMS
    assert (found["prompt"], found["completion"]) == (found["ok"] * prompt, asked + STREAMS * TOKENS)
    assert asked > load.outcomes.requests["ok"]


def test_when_one_process_of_the_policy_service_dies_no_request_fails_and_none_is_lost(stack: Stack) -> None:
    target = caller(stack, "worker")
    prompt = prompt_of(target)
    with Load(target, rate=RATE) as load:
        sent(load, RATE)
        rows = docker("top", stack.container("policy"), "-eo", "pid,args").splitlines()
        workers = [int(row.split()[0]) for row in rows if " worker" in row]
        assert len(workers) == 2, rows
        os.kill(workers[0], signal.SIGKILL)
        sent(load, 2 * RATE)
    lost = [words for _, words in load.outcomes.failures]
    assert len(lost) <= 2, lost  # what it was just judging
    charged(stack, "worker", load, prompt)


# ---- places for streams


@contextmanager
def streaming(target: Target, number: int) -> Iterator[None]:
    """So many streams that have begun and go on until the end of the block; there their clients leave."""
    body, going = target.body(100_000, stream=True), []
    with ExitStack() as stack:
        for _ in range(number):
            answer = requests.post(f"{target.url}/{CHAT}", json=body, headers=target.headers, stream=True, timeout=30)
            going.append(stack.enter_context(answer).iter_lines())  # kept: what reads closes with it
            assert next(going[-1]).startswith(b"data: ")
        yield


def test_limits_of_a_key_change_live_and_cut_no_stream(stack: Stack) -> None:
    target = caller(stack, "live")

    def limit(*words: str) -> None:
        stack.must("keys", "limits", "live", *words)

    with streaming(target, STREAMS):
        assert leases(stack, "live") == STREAMS
        limit("--streams", str(STREAMS))
        refused = becomes(target, 429)
        assert (refused.json()["error"]["code"], refused.headers["retry-after"]) == ("too_many_streams", "1")
        limit("--streams", str(STREAMS + 1), "--tpm", "60")
        becomes(target, 200, messages=[{"role": "user", "content": "word " * 2000}])
        refused = becomes(target, 429)
        assert refused.json()["error"]["code"] == "token_budget_exhausted"
        assert int(refused.headers["retry-after"]) > 600
        (row,) = [row for row in budget(stack)["keys"] if row["key"] == "live"]
        assert row["tokens_left"] < -600 and row["streams_limit"] == STREAMS + 1
        assert "owes" in stack.must("gateway", "status").out
        limit("--tpm", "default", "--streams", "default")
        becomes(target, 200)
        assert leases(stack, "live") == STREAMS  # what is cut is given back
        assert used(stack, "live")["cut"] == 0
    eventually(lambda: leases(stack, "live") == 0, 10)
    assert eventually(lambda: used(stack, "live")["left"] == STREAMS, 10)


def test_a_hot_restart_keeps_places_and_a_gateway_that_was_killed_gives_them_back(stack: Stack) -> None:
    target = caller(stack, "places", "--streams", str(STREAMS))
    with Load(target, STREAMS, 20 * TOKENS) as load:
        load.wait_until_streaming()
        words = ("gateway", "apply", "--yes", "--set", "gateway.max_connections=4000")
        assert "hot restart" in stack.must(*words).err
        assert ask(target).status_code == 429
        assert leases(stack, "places") == STREAMS
        docker("kill", stack.container("gateway"))
    assert load.outcomes.streams["ok"] == 0
    docker("start", stack.container("gateway"))
    stack.wait_ready(2)
    assert leases(stack, "places") == STREAMS, "nobody has said that they ended"
    target = Target(stack.url, target.key)  # Docker has chosen another port
    becomes(target, 200)
    eventually(lambda: leases(stack, "places") == 0, 10)


# ---- affinity


def replicas_of(stack: Stack) -> dict[str, str]:
    """Request -> the replica that served it, by the gateway's log."""
    found = {}
    for line in docker("logs", stack.container("gateway")).splitlines():
        if line.startswith("{") and '"replica"' in line:
            said = json.loads(line)
            found[said.get("request_id", "")] = said["replica"]
    return found


def test_the_turns_of_a_conversation_are_on_one_replica_and_conversations_on_both(stack: Stack) -> None:
    target = caller(stack, "talk")
    homes: dict[int, list[str]] = {}
    for turn in range(3):
        for talk in range(counts(12, 40)):
            messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"Talk {talk}"}]
            for more in range(turn):
                messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": f"And {more}?"}]
            answer = ask(target, messages=messages)
            assert answer.ok, answer.text
            homes.setdefault(talk, []).append(answer.headers["x-request-id"])
    every = {request for turns in homes.values() for request in turns}
    served = eventually(lambda: (seen := replicas_of(stack)).keys() >= every and seen, 10)
    where = {talk: {served[request] for request in turns} for talk, turns in homes.items()}
    assert all(len(replicas) == 1 for replicas in where.values()), where
    assert set().union(*where.values()) == {"engine-0", "engine-1"}


# ---- what an operator does


def test_a_second_up_changes_nothing_and_usage_outlives_down(stack: Stack) -> None:
    def everything() -> str:
        return stack.must("usage", "--json").out

    assert ask(caller(stack, "kept"), max_tokens=30).ok
    eventually(lambda: used(stack, "kept")["completion"] == 30, 10)
    ids = [stack.container(service) for service in SERVICES]
    started = docker("inspect", "--format", "{{.Id}} {{.State.StartedAt}}", *ids)
    before = everything()
    stack.up()
    assert docker("inspect", "--format", "{{.Id}} {{.State.StartedAt}}", *ids) == started
    assert everything() == before
    stack.must("down", "--yes")
    refused = stack.ctl("usage")
    assert refused.code == 1 and "ctl.py up" in refused.err and "nothing of it is lost" in refused.err, refused.text
    stack.up()
    assert everything() == before and '"kept"' in before
