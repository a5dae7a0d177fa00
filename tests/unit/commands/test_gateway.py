"""`gateway apply`, `gateway status`, `probe`: what is published, confirmed, taken back, refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result

from control.adapters import image_builder
from control.core.probes import Result as Tried
from control.steps import apply, gateway_live, probing, ready, replicas
from tests.unit.live_gateway import LiveWorld
from tests.unit.world import Operator, gateway

LDS, AUTH = "run/envoy/dynamic/lds.yaml", "run/envoy/dynamic/ecds_auth.yaml"
BOOTSTRAP = "run/envoy/bootstrap.yaml"
BODY = "gateway.idle_timeout_s=77"  # changes files that Envoy watches, no container
CONNECTIONS = "gateway.max_connections=77"  # changes the bootstrap


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveWorld]:
    for module in (ready, replicas, gateway_live):
        monkeypatch.setattr(module, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(image_builder, "build_all", lambda *_: [])
    with gateway() as (address, _):
        yield LiveWorld(address=address)


@pytest.fixture
def operator(tmp_path: Path, world: LiveWorld) -> Operator:
    """A stack that runs."""
    made = Operator(tmp_path, world)
    result = made.types("up", "--profile", "stub")
    assert result.exit_code == 0, result.output
    world.events.clear()
    return made


def files(operator: Operator) -> dict[str, str]:
    run = operator.folder / "run"
    found = {
        p.relative_to(run).as_posix(): p.read_text() for p in run.rglob("*") if p.is_file() and ".lock" not in p.name
    }
    return {**found, ".env": operator.text(".env")}


def applied(operator: Operator, *words: str) -> Result:
    result = operator.types("gateway", "apply", "--yes", *words)
    assert result.exit_code == 0, result.output
    return result


def test_nothing_to_apply_is_said_and_nothing_is_touched(operator: Operator, world: LiveWorld) -> None:
    before = files(operator)
    assert "nothing to apply" in applied(operator).stderr
    assert (files(operator), world.events) == (before, [])


def test_a_setting_is_shown_published_confirmed_and_remembered(operator: Operator, world: LiveWorld) -> None:
    result = applied(operator, "--set", BODY)
    assert "+" in result.stderr and "77.000s" in result.stderr
    assert "77.000s" in operator.text(LDS)
    assert world.events == []  # no restart
    assert BODY in operator.text("run/choices.json")
    assert '"stub"' in operator.text("run/choices.json")
    assert "nothing to apply" in applied(operator).stderr


def test_a_second_set_keeps_the_first_and_replaces_one_of_the_same_path(operator: Operator) -> None:
    applied(operator, "--set", BODY)
    applied(operator, "--set", "gateway.max_body_mib=31", "--set", "gateway.idle_timeout_s=78")
    assert json.loads(operator.text("run/choices.json"))["assignments"] == [
        "gateway.idle_timeout_s=78",
        "gateway.max_body_mib=31",
    ]


@pytest.mark.parametrize("answer", [None, "n\n"])
def test_without_a_yes_nothing_is_applied(operator: Operator, answer: str | None) -> None:
    before = files(operator)
    result = operator.types("gateway", "apply", "--set", BODY, answer=answer)
    assert result.exit_code == 2 and "nothing was applied" in result.stderr
    assert files(operator) == before


def test_the_difference_shows_no_digest_of_a_key(operator: Operator, world: LiveWorld) -> None:
    operator.types("keys", "add", "alice", "--owner", "tests")
    digest = json.loads(operator.text("secrets/api-keys.json"))["keys"][0]["digest"]
    assert digest in operator.text(AUTH)
    result = applied(operator, "--set", "gateway.limits.requests_per_second=7")
    assert digest[:12] in result.stderr and digest not in result.stderr


def test_what_envoy_refuses_is_taken_back_with_its_reason(operator: Operator, world: LiveWorld) -> None:
    before = files(operator)
    world.refuses = {"lds.yaml"}
    result = operator.types("gateway", "apply", "--yes", "--set", BODY)
    assert result.exit_code == 1
    assert f"{LDS}: Envoy refuses it" in result.stderr and "no such filter" in result.stderr
    assert "as they were before" in result.stderr
    assert files(operator) == before


def test_what_envoy_does_not_take_up_is_taken_back_too(
    operator: Operator, world: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "TAKEN_S", 0.05)
    before = files(operator)
    world.deaf = {"rds.yaml", "lds.yaml"}
    result = operator.types("gateway", "apply", "--yes", "--set", BODY)
    assert result.exit_code == 1 and "did not take it up" in result.stderr
    assert files(operator) == before


def test_a_file_that_the_real_envoy_would_refuse_is_never_published(operator: Operator) -> None:
    before = files(operator)
    template = operator.folder / "config/envoy/lds.yaml.j2"
    template.write_text(template.read_text().replace("merge_slashes: true", "merge_slashes: perhaps"))
    result = operator.types("gateway", "apply", "--yes")
    assert result.exit_code == 1 and "merge_slashes" in result.stderr
    assert files(operator) == before


def test_a_command_that_was_killed_is_finished_by_the_next(operator: Operator, world: LiveWorld) -> None:
    world.deaf = {"lds.yaml"}
    operator.types("render", "--set", BODY)  # published, and nobody waited for Envoy
    world.deaf = set()
    world.in_force["lds.yaml"] = "an older one"
    world.started["bootstrap"] = "an older one"
    result = applied(operator, "--set", BODY)
    assert "hot restart" in result.stderr and world.events == ["SIGHUP"]


def test_the_bootstrap_is_taken_up_by_a_hot_restart(operator: Operator, world: LiveWorld) -> None:
    result = applied(operator, "--set", CONNECTIONS)
    assert world.events == ["SIGHUP"] and world.epoch == 1
    assert "max_active_downstream_connections: 77" in operator.text(BOOTSTRAP)
    assert "a new Envoy by hot restart" in result.stderr


def test_the_longest_stream_and_the_workers_need_a_hot_restart_and_no_container(
    operator: Operator, world: LiveWorld
) -> None:
    applied(operator, "--set", "gateway.max_stream_s=99", "--set", "gateway.concurrency=3")
    assert world.events == ["SIGHUP"]
    entry = json.loads(operator.text("run/envoy/entry.json"))
    assert (entry["max_stream_s"], entry["concurrency"]) == (99, 3)


def test_a_second_hot_restart_is_refused_before_anything_is_published(operator: Operator, world: LiveWorld) -> None:
    world.holds = 3
    before = files(operator)
    result = operator.types("gateway", "apply", "--yes", "--set", CONNECTIONS)
    assert result.exit_code == 1 and "still holds 3 streams" in result.stderr and "--wait" in result.stderr
    assert (files(operator), world.events) == (before, [])
    applied(operator, "--set", BODY)  # needs no restart


def test_with_wait_it_waits_for_the_last_stream(operator: Operator, world: LiveWorld) -> None:
    world.holds, world.lets_go = 4, True
    result = applied(operator, "--wait", "--set", CONNECTIONS)
    assert "the previous Envoy still holds" in result.stderr and world.events == ["SIGHUP"]


def test_a_hot_restart_that_is_refused_takes_the_files_back(operator: Operator, world: LiveWorld) -> None:
    before = files(operator)
    world.refuses_restart = True
    result = operator.types("gateway", "apply", "--yes", "--set", CONNECTIONS)
    assert result.exit_code == 1 and "it did not start" in result.stderr
    assert files(operator) == before


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("gateway.port=9999", "gateway.port: 8000 -> 9999"),
        ("gateway.bind=0.0.0.0", "gateway.bind: 127.0.0.1 -> 0.0.0.0"),
        ("gateway.memory_mib=4096", "gateway.memory_mib: 2048m -> 4096m"),
        ("gateway.drain_s=17", "gateway.drain_s: 300 -> 17"),
        ("service.uid=4242", "service.uid, service.gid: 1001:1001 -> 4242:1001"),
    ],
)
def test_what_needs_a_new_container_is_named_and_nothing_is_applied(
    operator: Operator, world: LiveWorld, setting: str, named: str
) -> None:
    before = files(operator)
    result = operator.types("gateway", "apply", "--yes", "--set", setting, "--set", BODY)
    assert result.exit_code == 3 and named in result.stderr and "python ctl.py up" in result.stderr
    assert (files(operator), world.events) == (before, [])


def test_without_a_gateway_there_is_nothing_to_apply_to(operator: Operator, world: LiveWorld) -> None:
    world.status["gateway"] = "exited"
    before = files(operator)
    result = operator.types("gateway", "apply", "--yes", "--set", BODY)
    assert result.exit_code == 1 and "python ctl.py up" in result.stderr
    assert files(operator) == before


def test_a_body_limit_that_needs_more_memory_makes_the_policy_service_anew_and_only_that(
    operator: Operator, world: LiveWorld
) -> None:
    applied(operator, "--set", "gateway.max_body_mib=900")
    assert world.events == ["up policy"]
    assert "--no-deps" in world.said[-1]
    assert "nothing to apply" in applied(operator).stderr


def test_rules_that_the_policy_service_does_not_take_up_are_taken_back(
    operator: Operator, world: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "TAKEN_S", 0.05)
    before = files(operator)
    assert "policy/rules.json" in before
    world.rules = "another"
    result = operator.types("gateway", "apply", "--yes", "--set", "gateway.mode=observe")
    assert result.exit_code == 1 and "it goes by another" in result.stderr
    assert files(operator) == before


def test_a_policy_service_that_is_away_is_not_waited_for(operator: Operator, world: LiveWorld) -> None:
    world.status["policy"] = "exited"
    applied(operator, "--set", "gateway.mode=observe")


STREAMS = "gateway.limits.streams=3"
LIMITS = "run/budget/limits.json"


def test_a_limit_of_streams_is_with_the_budget_service_before_the_gateway_asks_for_it(operator: Operator) -> None:
    operator.types("keys", "add", "alice", "--owner", "tests")
    told = json.loads(applied(operator, "--json", "--set", "gateway.limits.streams=0").stdout)
    assert told == {"changed": [LIMITS, AUTH], "restarted": False, "others": []}
    assert "budget = true" not in operator.text(AUTH)
    told = json.loads(applied(operator, "--json", "--set", STREAMS).stdout)
    assert told["changed"] == [LIMITS, AUTH]
    assert json.loads(operator.text(LIMITS))["default"] == {"tpm": 0, "streams": 3}
    assert "budget = true" in operator.text(AUTH)


def test_limits_that_the_budget_service_does_not_take_up_are_taken_back(
    operator: Operator, world: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "TAKEN_S", 0.05)
    before = files(operator)
    assert "budget/limits.json" in before
    world.budget = {"limits": {"version": "another", "error": None}}
    result = operator.types("gateway", "apply", "--yes", "--set", STREAMS)
    assert result.exit_code == 1
    assert "the budget service did not take it up" in result.stderr and "it goes by another" in result.stderr
    assert files(operator) == before


@pytest.mark.parametrize("status", ["exited", "running"])
def test_a_budget_service_that_does_not_answer_is_not_waited_for(
    operator: Operator, world: LiveWorld, status: str
) -> None:
    world.status["budget"], world.budget = status, None
    applied(operator, "--set", STREAMS)
    assert json.loads(operator.text(LIMITS))["default"]["streams"] == 3


def test_a_new_image_makes_both_services_beside_the_gateway_anew(operator: Operator, world: LiveWorld) -> None:
    path = operator.folder / "config/images.yaml"
    name = "repository: flashbox/policy"
    assert name in path.read_text()
    path.write_text(path.read_text().replace(name, "repository: flashbox/policy-of-mine"))
    applied(operator)
    assert world.events == ["up policy budget"]


def test_what_is_not_the_gateways_is_named(operator: Operator) -> None:
    result = applied(operator, "--set", "stub.decode_tokens_per_s=3", "--set", BODY)
    assert "run/engines.yaml" in result.stderr and "python ctl.py up" in result.stderr


def test_json_tells_what_was_done(operator: Operator) -> None:
    told = json.loads(applied(operator, "--json", "--set", CONNECTIONS).stdout)
    assert told == {"changed": [BOOTSTRAP], "restarted": True, "others": []}


def test_an_interrupted_apply_takes_back_what_it_published(
    operator: Operator, world: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(operator)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gateway_live, "restart_hot", interrupted)
    result = operator.types("gateway", "apply", "--yes", "--set", CONNECTIONS, "--set", BODY)
    assert result.exit_code == 130
    assert files(operator) == before


# ---- status


def test_status_says_what_runs_and_that_it_is_what_is_rendered(operator: Operator) -> None:
    result = operator.types("gateway", "status")
    assert result.exit_code == 0, result.output
    assert "runs what is rendered" in result.stdout and "policy standard (default), mode enforce" in result.stdout
    assert "epoch 0" in result.stdout


def test_status_names_what_is_not_applied_and_what_envoy_does_not_go_by(operator: Operator, world: LiveWorld) -> None:
    operator.types("render", "--set", CONNECTIONS)
    assert "not applied" in operator.types("gateway", "status").stdout
    applied(operator)
    world.started["bootstrap"] = "another"
    world.deaf, world.in_force["lds.yaml"] = {"lds.yaml"}, "another"
    told = json.loads(operator.types("gateway", "status", "--json").stdout)
    assert BOOTSTRAP in told["in_step"] and LDS in told["in_step"]


def test_status_shows_streams_of_an_earlier_envoy_and_the_origin_of_overrides(
    operator: Operator, world: LiveWorld
) -> None:
    applied(operator, "--set", "gateway.limits.requests_per_second=7")
    world.holds, world.epoch = 2, 1
    out = operator.types("gateway", "status").stdout
    assert "still holds 2 streams" in out
    assert "--set gateway.limits.requests_per_second=7" in out
    told = json.loads(operator.types("gateway", "status", "--json").stdout)
    rules = {rule["rule"]: (rule["value"], rule["from"]) for rule in told["rules"]["values"]}
    assert rules["key_per_second"][0] == 7 and rules["key_per_minute"] == (600, "policy")


def test_status_of_a_gateway_that_does_not_run(operator: Operator, world: LiveWorld) -> None:
    world.status["gateway"] = "exited"
    result = operator.types("gateway", "status")
    assert result.exit_code == 0 and "not running" in result.stdout
    assert json.loads(operator.types("gateway", "status", "--json").stdout)["running"] is False


# ---- probe


@pytest.mark.parametrize(("passed", "code", "word"), [(True, 0, "passed"), (False, 1, "FAILED")])
def test_probe_exits_1_when_a_door_is_open(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, passed: bool, code: int, word: str
) -> None:
    tried = [Tried("routes", "GET /metrics", passed, "GET /metrics", "404"), Tried("keys", "no key", True, "x", "401")]
    monkeypatch.setattr(probing, "tried", lambda *_: iter(tried))
    result = operator.types("probe")
    assert result.exit_code == code and word in result.stdout
    told = operator.types("probe", "--json")
    assert told.exit_code == code
    assert [one["passed"] for one in json.loads(told.stdout)] == [passed, True]


def test_probe_needs_a_gateway(operator: Operator, world: LiveWorld) -> None:
    world.status["gateway"] = "exited"
    assert operator.types("probe").exit_code == 1
