"""Two workers under one supervisor: deaths, hangs, stops, new rules, metrics."""

from __future__ import annotations

import signal
import subprocess
import sys

from policy.config import AT_REST_MIB, JUDGE_FACTOR, SMALL_MIB, Budget, Config

from control.core import policy_memory, wiring
from tests.contract.policy.conftest import StartPolicy
from tests.contract.policy.process import CHAT, MIB, Policy, rules
from tests.eventually import eventually

SMALL = b'{"model":"tiny","max_tokens":5}'
MUCH = b'{"model":"tiny","max_tokens":9000}'


def ready(policy: Policy) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "policy", "ready"]
    return subprocess.run(words, env=policy.environment, capture_output=True, text=True, timeout=20)


def test_a_killed_worker_comes_back_and_the_other_serves_meanwhile(start_policy: StartPolicy) -> None:
    policy = start_policy()
    before = policy.workers()
    policy.kill(0)
    assert policy.caller(1).ask(SMALL).body == SMALL
    eventually(lambda: policy.caller(0).serving(), 20)
    assert policy.caller(0).ask(SMALL).body == SMALL
    assert policy.workers()[policy.ports[1]] == before[policy.ports[1]]
    assert policy.process.poll() is None


def test_a_hung_worker_is_replaced(start_policy: StartPolicy) -> None:
    policy = start_policy()
    before = policy.workers()[policy.ports[0]]
    policy.kill(0, signal.SIGSTOP)
    eventually(lambda: policy.workers().get(policy.ports[0], before) != before, 30)
    eventually(lambda: policy.caller(0).serving(), 20)


def test_without_rules_nothing_is_served_until_they_come(start_policy: StartPolicy) -> None:
    policy = start_policy({}, wait=False)
    eventually(lambda: "rules not loaded" in policy.log.read_text(), 20)
    assert ready(policy).returncode == 1 and policy.get("/ready")[0] == 503
    assert not policy.caller(0).serving()
    policy.write(rules())
    eventually(lambda: policy.caller(0).serving() and policy.caller(1).serving(), 20)
    eventually(lambda: ready(policy).returncode == 0, 10)


def test_new_rules_are_in_force_within_a_second_or_so_and_broken_ones_never(start_policy: StartPolicy) -> None:
    policy = start_policy(rules(version="one"))
    ask = policy.caller().ask
    assert ask(MUCH).status == 400
    policy.write(rules(version="two", max_tokens=10_000))
    eventually(lambda: ask(MUCH).status is None, 5)
    eventually(lambda: policy.metric("policy_rules_loaded", version="two") == 2, 5)
    assert policy.samples("policy_rules_loaded", version="one") == []
    for broken in (b"", b"{", b"[]", b'{"version":"three"}'):
        before = policy.metric("policy_rules_errors_total")
        policy.write(broken)
        eventually(lambda before=before: policy.metric("policy_rules_errors_total") >= before + 2, 5)
        assert ask(MUCH).status is None
    assert policy.metric("policy_rules_broken") == 2
    policy.write(rules(version="four"))
    eventually(lambda: ask(MUCH).status == 400, 5)
    eventually(lambda: policy.metric("policy_rules_broken") == 0, 5)


def test_large_bodies_are_judged_by_the_new_rules_too(start_policy: StartPolicy) -> None:
    policy = start_policy()
    body = b'{"model":"tiny","max_tokens":9000,"text":"' + b"a" * (2 * MIB) + b'"}'
    ask = policy.caller().ask
    assert ask(body).status == 400
    policy.write(rules(max_tokens=10_000))
    eventually(lambda: ask(MUCH).status is None, 5)
    assert ask(body).body == body


def test_a_stop_lets_calls_in_flight_finish_and_says_not_serving_first(start_policy: StartPolicy) -> None:
    policy = start_policy(POLICY_NOTICE_S=2)
    caller = policy.caller()
    upload = caller.upload()
    upload.send(SMALL[:10])
    eventually(lambda: policy.metric("policy_bytes_held") == 10, 5)
    policy.process.send_signal(signal.SIGTERM)
    eventually(lambda: not caller.serving(), 2)
    assert caller.ask(SMALL).body == SMALL, "new calls are taken until Envoy has seen it"
    upload.send(SMALL[10:], last=True)
    assert upload.wait().body == SMALL
    assert policy.process.wait(20) == 0
    assert policy.workers() == {}


def test_a_call_that_does_not_end_does_not_hold_up_the_stop_for_ever(start_policy: StartPolicy) -> None:
    policy = start_policy(POLICY_DRAIN_S=0.5)
    upload = policy.caller().upload()
    upload.send(SMALL[:10])
    eventually(lambda: policy.metric("policy_bytes_held") == 10, 5)
    policy.process.send_signal(signal.SIGTERM)
    assert policy.process.wait(15) == 0


def test_workers_end_with_their_supervisor(start_policy: StartPolicy) -> None:
    policy = start_policy()
    callers = [policy.caller(0), policy.caller(1)]
    policy.process.kill()
    policy.process.wait(10)
    eventually(lambda: not any(caller.serving() for caller in callers), 15)


def test_metrics_add_up_over_workers_and_survive_the_death_of_one(start_policy: StartPolicy) -> None:
    policy = start_policy()
    for worker in (0, 1):
        caller = policy.caller(worker)
        assert caller.ask(SMALL).status is None
        assert caller.ask(MUCH).status == 400
        assert caller.ask(b"{}", path="/not/there").body is not None
    ok = {"route": CHAT, "verdict": "ok", "rule": ""}
    assert policy.metric("policy_requests_total", **ok) == 2
    assert policy.metric("policy_requests_total", route=CHAT, verdict="refused") == 2
    assert policy.metric("policy_judge_seconds_count", route=CHAT) == 4
    assert {sample.labels["route"] for sample in policy.samples("policy_requests_total")} == {CHAT, "other"}
    policy.kill(0)
    eventually(lambda: policy.metric("policy_rules_loaded") == 1, 5)
    assert policy.metric("policy_requests_total", **ok) == 2
    eventually(lambda: policy.caller(0).serving(), 20)
    assert policy.caller(0).ask(SMALL).status is None
    eventually(lambda: policy.metric("policy_requests_total", **ok) == 3, 5)
    eventually(lambda: policy.metric("policy_rules_loaded") == 2, 5)


def test_no_page_and_no_log_repeats_what_clients_send(start_policy: StartPolicy) -> None:
    policy = start_policy()
    secret = "planted-secret-4711"
    ask = policy.caller().ask
    for body in (
        f'{{"model":"{secret}"}}',
        f'{{"model":7,"x":"{secret}"',
        f'["{secret}"]',
        f'{{"model":"{secret}"\xff',
    ):
        ask(body.encode("latin-1"), headers={"authorization": secret, "content-encoding": "identity"})
        ask(body.encode("latin-1"), headers={"content-encoding": secret}, path=f"/{secret}")
    assert secret not in policy.get("/metrics")[1]
    assert secret not in policy.log.read_text()


# ---- copies of facts whose home is in the control program


def test_the_service_listens_where_the_gateway_looks() -> None:
    default = Config()
    assert default.ports == wiring.POLICY_PORTS and default.metrics_port == wiring.POLICY_METRICS_PORT
    assert str(default.folder) == wiring.POLICY_DIR


def test_the_memory_that_is_rendered_has_room_for_the_largest_body() -> None:
    assert (AT_REST_MIB, SMALL_MIB, JUDGE_FACTOR) == (
        policy_memory.AT_REST_MIB,
        policy_memory.SMALL_MIB,
        policy_memory.JUDGE_FACTOR,
    )
    for largest in (1, MIB, 32 * MIB, 262_144_000, 1024 * MIB):
        budget = Budget.of(Config(memory_mib=policy_memory.memory_mib(largest, len(wiring.POLICY_PORTS))))
        assert budget.large >= largest and budget.judging >= JUDGE_FACTOR * largest
