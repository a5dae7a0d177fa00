"""Stopping in the right order, taking down whatever the files look like, restarting one at a time."""

from __future__ import annotations

import shutil

import pytest
import yaml

from control.adapters.workspace import Workspace
from control.steps import replicas
from tests.unit.world import Operator, gateway

STUB = ("up", "--profile", "stub")
EDS = "run/envoy/dynamic/eds.yaml"


def test_stop_drains_the_gateway_before_the_replicas_and_removes_nothing(operator: Operator) -> None:
    operator.types(*STUB)
    operator.world.events.clear()
    assert operator.types("stop").exit_code == 0
    assert operator.world.events == ["stop gateway", "stop budget engine-0 engine-1 policy"]
    assert set(operator.world.status.values()) == {"exited"}


def test_stop_of_nothing_is_fine(operator: Operator) -> None:
    result = operator.types("stop")
    assert result.exit_code == 0
    assert "nothing was running" in result.stderr


def test_down_stops_in_order_then_removes_every_profile_and_keeps_volumes(operator: Operator) -> None:
    operator.types(*STUB)
    operator.world.events.clear()
    assert operator.types("down").exit_code == 0
    assert operator.world.events == ["stop gateway", "stop budget engine-0 engine-1 policy", "down"]
    sentence = operator.world.said[-1]
    assert sentence[sentence.index("--profile") + 1] == "*"
    assert "--remove-orphans" in sentence and "--volumes" not in sentence
    assert operator.world.kept_volumes


def test_down_twice_is_fine(operator: Operator) -> None:
    operator.types(*STUB)
    assert operator.types("down").exit_code == 0
    assert operator.types("down").exit_code == 0


def test_down_works_with_a_broken_stack_yaml(operator: Operator) -> None:
    operator.types(*STUB)
    operator.stack_yaml("gateway: [this is: not right")
    result = operator.types("down")
    assert result.exit_code == 0, result.output
    assert operator.world.status == {}


def test_down_works_without_run_and_env(operator: Operator) -> None:
    operator.types(*STUB)
    shutil.rmtree(operator.folder / "run")
    (operator.folder / ".env").unlink()
    operator.world.fail.update(dict.fromkeys(("stop", "down"), "run python ctl.py init first"))
    result = operator.types("down")
    assert result.exit_code == 0, result.output
    assert "stop by labels" in operator.world.events
    assert operator.world.status == {}


def test_down_volumes_asks_and_no_removes_nothing(operator: Operator) -> None:
    operator.types(*STUB)
    for answer in ("n\n", ""):
        result = operator.types("down", "--volumes", answer=answer)
        assert result.exit_code == 2
        assert operator.world.status["gateway"] == "running"
    assert operator.types("down", "--volumes", answer="y\n").exit_code == 0
    assert not operator.world.kept_volumes


def test_down_volumes_yes_does_not_ask(operator: Operator) -> None:
    operator.types(*STUB)
    assert operator.types("down", "--volumes", "--yes").exit_code == 0
    assert "--volumes" in operator.world.said[-1]


def test_restart_takes_one_replica_at_a_time_out_of_eds_and_back(operator: Operator, monkeypatch) -> None:
    operator.types(*STUB)
    operator.world.events.clear()
    write = Workspace.write

    def note(self: Workspace, path: str, text: str) -> bool:
        if path == EDS:
            operator.world.events.append(f"draining {_draining(text)}")
        return write(self, path, text)

    monkeypatch.setattr(Workspace, "write", note)
    assert operator.types("restart").exit_code == 0
    assert operator.world.events == [
        step
        for name, number in (("engine-0", 10), ("engine-1", 11))
        for step in (f"draining ['172.31.78.{number}']", f"stop {name}", f"start {name}", "draining []")
    ]
    assert operator.types("render", "--check").exit_code == 0


def _draining(text: str) -> list[str]:
    endpoints = yaml.safe_load(text)["resources"][0]["endpoints"][0]["lb_endpoints"]
    return [
        e["endpoint"]["address"]["socket_address"]["address"] for e in endpoints if e.get("health_status") == "DRAINING"
    ]


def test_restart_waits_until_the_gateway_counts_the_replica_again(operator: Operator, monkeypatch) -> None:
    operator.types(*STUB)
    seen = iter([0, 1, 1, 2, 2])
    asked: list[int] = []

    def healthy(control: object) -> int:
        asked.append(next(seen))
        return asked[-1]

    monkeypatch.setattr(replicas, "healthy_replicas", healthy)
    assert operator.types("restart", "engine-1").exit_code == 0
    assert asked == [0, 1, 1, 2]


def test_a_replica_that_does_not_come_back_is_not_left_draining_and_the_others_stay(operator: Operator) -> None:
    operator.types(*STUB)
    operator.world.dying.add("engine-0")
    result = operator.types("restart")
    assert result.exit_code == 4
    assert operator.world.status["engine-1"] == "running"
    assert "stop engine-1" not in operator.world.events
    assert "DRAINING" not in operator.text(EDS)


def test_the_gateway_is_restarted_last_and_only_when_named(operator: Operator) -> None:
    operator.types(*STUB)
    operator.world.events.clear()
    assert operator.types("restart", "gateway", "engine-1").exit_code == 0
    assert operator.world.events == ["stop engine-1", "start engine-1", "stop gateway", "start gateway"]


def test_restart_of_an_unknown_replica_names_the_nearest(operator: Operator) -> None:
    operator.types(*STUB)
    operator.world.events.clear()
    result = operator.types("restart", "engin-1")
    assert result.exit_code == 2
    assert "engine-1" in result.stderr
    assert operator.world.events == []


def test_restart_without_a_stack_says_up(operator: Operator) -> None:
    operator.types("init", "--profile", "stub")
    result = operator.types("restart")
    assert result.exit_code == 1
    assert "python ctl.py up" in result.stderr


def test_a_restart_of_a_standby_replica_that_runs_keeps_it_published(operator: Operator) -> None:
    operator.types(*STUB, "--profile", "autoscale", "--set", "engine.replicas=2")
    operator.world._start(["engine-1"])
    assert operator.types("restart", "engine-1").exit_code == 0
    assert "172.31.78.11" in operator.text(EDS)


def test_stop_and_down_name_the_project_that_was_rendered(operator: Operator) -> None:
    operator.types(*STUB, "--set", "project=mine")
    operator.world.said.clear()
    operator.types("down")
    assert operator.world.said and all("-p mine" in " ".join(sentence) for sentence in operator.world.said)


def test_a_mangled_project_in_env_is_told_and_the_settings_count(operator: Operator) -> None:
    operator.types(*STUB)
    for line in ("COMPOSE_PROJECT_NAME=Not a name", "COMPOSE_PROJECT_NAME='open"):
        (operator.folder / ".env").write_text(line + "\n")
        operator.world._start(["gateway"])
        result = operator.types("stop")
        assert result.exit_code == 0, result.output
        assert "COMPOSE_PROJECT_NAME" in result.stderr and "warning" in result.stderr
        assert "-p flashbox" in " ".join(operator.world.said[-1])


def test_what_still_runs_after_a_stop_is_an_error_and_never_called_stopped(operator: Operator) -> None:
    operator.types(*STUB)
    operator.world.unstoppable.add("engine-1")
    for command in ("stop", "down"):
        result = operator.types(command)
        assert result.exit_code == 1
        assert "still running: engine-1" in result.stderr and "done" not in result.stderr


def test_containers_of_another_clone_are_left_alone_unless_foreign_is_said(operator: Operator, tmp_path) -> None:
    operator.types(*STUB)
    other = tmp_path / "other"
    other.mkdir()
    operator.world.started_from = [str(other)]
    operator.world.events.clear()
    for command in ("stop", "down"):
        result = operator.types(command)
        assert result.exit_code == 3
        assert str(other) in result.stderr and "--foreign" in result.stderr
        assert operator.world.events == []
    assert operator.types("stop", "--foreign").exit_code == 0
    assert operator.world.status["gateway"] == "exited"


def test_containers_of_this_clone_or_of_one_that_is_gone_are_stopped(operator: Operator, tmp_path) -> None:
    operator.types(*STUB)
    for folder in (tmp_path, tmp_path / "gone"):
        operator.world._start(["gateway"])
        operator.world.started_from = [str(folder)]
        assert operator.types("stop").exit_code == 0


@pytest.mark.parametrize(
    ("verb", "said"), [("stop", "engine-0 runs, and may have been told to stop"), ("start", "engine-0 is stopped")]
)
def test_an_interrupted_restart_leaves_nothing_draining_and_says_what_is_stopped(
    operator: Operator, verb: str, said: str
) -> None:
    operator.types(*STUB)
    operator.world.interrupt.add(verb)
    result = operator.types("restart")
    assert result.exit_code == 130
    assert "DRAINING" not in operator.text(EDS)
    assert said in result.stderr
    assert operator.world.status["engine-1"] == "running"


def test_a_restart_of_the_gateway_that_is_interrupted_says_that_it_is_stopped(operator: Operator) -> None:
    operator.types(*STUB)
    operator.world.interrupt.add("start")
    result = operator.types("restart", "gateway")
    assert result.exit_code == 130
    assert "gateway is stopped: `python ctl.py up`" in result.stderr


def test_a_replica_that_the_gateway_does_not_count_again_stops_the_restart_before_the_next(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.types(*STUB)
    operator.world.events.clear()
    monkeypatch.setattr(replicas, "SEEN_BY_GATEWAY_S", 0.05)
    monkeypatch.setattr(replicas, "healthy_replicas", lambda _: 1)
    result = operator.types("restart")
    assert result.exit_code == 4
    assert "does not count engine-0 again" in result.stderr and "1 healthy of 2" in result.stderr
    assert operator.world.events == ["stop engine-0", "start engine-0"]


def test_a_replica_that_was_broken_before_is_not_waited_for(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.types(*STUB)
    operator.world.stuck.add("engine-0")
    operator.world.phase["engine-0"] = 1
    monkeypatch.setattr(replicas, "SEEN_BY_GATEWAY_S", 0.05)
    monkeypatch.setattr(replicas, "healthy_replicas", lambda _: 1)
    assert operator.types("restart", "engine-1").exit_code == 0


def test_replicas_are_not_restarted_without_a_gateway(operator: Operator) -> None:
    operator.types(*STUB)
    operator.world.status["gateway"] = "exited"
    operator.world.events.clear()
    for words in ((), ("engine-1",), ("engine-1", "gateway")):
        result = operator.types("restart", *words)
        assert result.exit_code == 1
        assert "the gateway is not running" in result.stderr and "restart gateway" in result.stderr
    assert operator.world.events == []


def test_the_gateway_alone_restarts_when_no_replica_runs(operator: Operator) -> None:
    operator.types(*STUB)
    operator.world.status.update({"engine-0": "exited", "engine-1": "exited"})
    operator.world.events.clear()
    with gateway(health=503) as (address, _):
        operator.world.address = address
        result = operator.types("restart", "gateway")
    assert result.exit_code == 0, result.output
    assert "no replica is ready" in result.stderr
    assert operator.world.events == ["stop gateway", "start gateway"]
