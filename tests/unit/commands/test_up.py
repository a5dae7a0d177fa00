"""`up`: steps in order, nothing half-started, refusals before anything is touched."""

from __future__ import annotations

import dataclasses

import pytest

from control.adapters import files, image_builder
from control.adapters.shell import CommandFailed, Completed
from control.core.model import PortUse
from control.steps import ready
from tests.unit.world import GOOD_HOST, Operator

STUB = ("up", "--profile", "stub")


def test_up_says_each_step_and_ends_with_the_url_and_how_to_get_a_key(operator: Operator) -> None:
    result = operator.types(*STUB)
    assert result.exit_code == 0, result.output
    verbs = [line.split()[0] for line in result.stderr.splitlines()]
    for earlier, later in zip(
        ("plan", "check", "render", "images", "start", "ready", "done"),
        ("check", "render", "images", "start", "ready", "done", "key:"),
        strict=True,
    ):
        assert verbs.index(earlier) < verbs.index(later), result.stderr
    assert f"http://127.0.0.1:{operator.world.address[1]}/v1" in result.stderr
    assert "python ctl.py keys add NAME --owner YOU" in result.stderr


def test_loading_and_warming_are_shown_with_the_replicas_name(operator: Operator) -> None:
    lines = operator.types(*STUB).stderr.splitlines()
    assert any(line.startswith("load") and "engine-0" in line for line in lines)
    assert any(line.startswith("warm") and "engine-1" in line for line in lines)


def test_a_second_up_changes_no_file_and_starts_nothing_anew(operator: Operator) -> None:
    operator.types(*STUB)
    before = dict(operator.world.phase)
    result = operator.types(*STUB)
    assert result.exit_code == 0
    assert "none changed" in result.stderr
    assert operator.world.phase == before


def test_standby_replicas_are_created_before_the_others_start(operator: Operator) -> None:
    result = operator.types(*STUB, "--profile", "autoscale", "--set", "engine.replicas=3")
    assert result.exit_code == 0, result.output
    assert operator.world.events == ["create engine-1 engine-2", "up"]
    assert operator.world.status["engine-2"] == "created"
    create, up = operator.world.said
    assert create[create.index("--profile", create.index("autoscale")) :][:2] == ("--profile", "standby")
    assert "standby" not in up and "autoscale" in up


def test_without_gpus_it_names_the_rehearsal_and_touches_nothing(operator: Operator) -> None:
    result = operator.types("up")
    assert result.exit_code == 3
    assert "python ctl.py up --profile stub" in result.stderr
    assert operator.world.said == []
    assert not (operator.folder / "run").exists()


def test_a_fatal_finding_refuses_before_anything_is_written(operator: Operator) -> None:
    operator.host = dataclasses.replace(GOOD_HOST, ports=(PortUse("0.0.0.0", 8000, "nginx (process 7)"),))
    result = operator.types(*STUB)
    assert result.exit_code == 3
    assert "nginx (process 7)" in result.stderr and "fix:" in result.stderr
    assert operator.world.said == []
    assert not (operator.folder / ".env").exists()


def test_our_own_gateway_on_the_port_is_fine(operator: Operator) -> None:
    ours = PortUse("127.0.0.1", 8000, "container flashbox-gateway-1 of project flashbox")
    operator.host = dataclasses.replace(GOOD_HOST, ports=(ours,))
    assert operator.types(*STUB).exit_code == 0


def test_several_findings_are_told_at_once(operator: Operator) -> None:
    operator.host = dataclasses.replace(
        GOOD_HOST, ports=(PortUse("0.0.0.0", 8000, None),), compose_version="2.20.0", unwritable=("run",)
    )
    result = operator.types(*STUB)
    assert result.exit_code == 3
    for word in ("2.20.0", "8000", "run"):
        assert word in result.stderr


def test_a_stack_of_another_kind_is_refused(operator: Operator) -> None:
    operator.host = dataclasses.replace(GOOD_HOST, running_kind="gpu", running_project_dir="/srv/flashbox")
    result = operator.types(*STUB)
    assert result.exit_code == 3
    assert "gpu" in result.stderr and "/srv/flashbox" in result.stderr
    assert operator.world.said == []


def test_a_replica_that_never_becomes_ready_is_named_with_phase_and_log_and_taken_back(operator: Operator) -> None:
    operator.world.stuck.add("engine-1")
    result = operator.types(*STUB, "--timeout", "1")
    assert result.exit_code == 4
    assert "engine-1" in result.stderr and "loading" in result.stderr and "CUDA out of memory" in result.stderr
    assert operator.world.status == {}


def test_a_replica_whose_container_ends_is_given_up_at_once(operator: Operator) -> None:
    operator.world.dying.add("engine-0")
    result = operator.types(*STUB)
    assert result.exit_code == 4
    assert "exit code 1" in result.stderr


@pytest.mark.parametrize("service", ["policy", "budget"])
def test_a_service_beside_the_gateway_that_is_not_healthy_is_named_with_its_log(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    monkeypatch.setattr(ready.await_services, "__defaults__", (tuple(ready.SERVICES), 0.3))
    operator.world.sick.add(service)
    result = operator.types(*STUB)
    assert result.exit_code == 4
    assert f"the {service} service did not become healthy" in result.stderr
    assert "unhealthy" in result.stderr and f"python ctl.py logs {service}" in result.stderr
    assert operator.world.status == {}


@pytest.mark.parametrize("service", ["policy", "budget"])
def test_a_service_that_ended_while_it_was_told_to_stop_is_started_again(operator: Operator, service: str) -> None:
    operator.world.ending.append(service)
    assert operator.types(*STUB).exit_code == 0
    assert f"start {service}" in operator.world.events


def test_keep_leaves_what_was_started(operator: Operator) -> None:
    operator.world.stuck.add("engine-1")
    assert operator.types(*STUB, "--timeout", "1", "--keep").exit_code == 4
    assert operator.world.status["engine-1"] == "running"


def test_a_stack_that_ran_before_is_left_alone_when_up_fails(operator: Operator) -> None:
    operator.types(*STUB)
    operator.world.dying.add("engine-0")
    result = operator.types(*STUB)
    assert result.exit_code == 4
    assert operator.world.status["gateway"] == "running"
    assert "down" not in " ".join(operator.world.events)
    told = next(line for line in result.stderr.splitlines() if "ran before" in line)
    assert "gateway, engine-1" in told or "engine-1, gateway" in told
    assert "engine-0" not in told, "it has ended, and so it does not run"


def test_a_failing_start_shows_composes_words_and_takes_back(operator: Operator) -> None:
    operator.world.fail["up"] = "Bind for 127.0.0.1:8000 failed: port is already allocated"
    result = operator.types(*STUB)
    assert result.exit_code == 1
    assert "port is already allocated" in result.stderr
    assert operator.world.events[-1] == "down"


def test_ctrl_c_leaves_what_is_there_and_says_how_to_go_on(operator: Operator) -> None:
    operator.world.interrupt.add("up")
    result = operator.types(*STUB)
    assert result.exit_code == 130
    assert "goes on" in result.stderr
    assert "down" not in operator.world.events
    operator.world.interrupt.clear()
    assert operator.types(*STUB).exit_code == 0


def test_profile_and_set_are_remembered_until_the_next_up(operator: Operator) -> None:
    operator.types(*STUB, "--set", "engine.replicas=3")
    shown = operator.types("config", "show", "--origin").stdout
    assert "remembered (up --profile stub)" in shown
    assert "remembered (up --set engine.replicas=3)" in shown
    operator.types(*STUB)
    assert "engine.replicas=3" not in operator.types("config", "show", "--origin").stdout


def test_a_refused_up_is_not_remembered(operator: Operator) -> None:
    operator.types(*STUB)
    assert operator.types("up", "--profile", "gpu").exit_code == 3
    assert "up --profile stub" in operator.types("config", "show", "--origin").stdout


def test_profile_of_the_command_is_stronger_than_the_environment(operator: Operator) -> None:
    operator.environ["FLASHBOX__ENGINE__KIND"] = "gpu"
    assert operator.types(*STUB).exit_code == 0


def test_two_kinds_are_refused(operator: Operator) -> None:
    result = operator.types("up", "--profile", "stub", "--profile", "cpu")
    assert result.exit_code == 2
    assert "one kind" in result.stderr


def test_a_changed_bootstrap_of_a_running_gateway_is_said(operator: Operator) -> None:
    operator.types(*STUB)
    path = operator.folder / "config/envoy/bootstrap.yaml.j2"
    path.write_text(path.read_text() + "\n# a change\n")
    result = operator.types(*STUB)
    assert "`python ctl.py gateway apply` takes it up" in result.stderr


def test_only_one_command_changes_the_stack_at_a_time(operator: Operator) -> None:
    operator.types(*STUB)
    with files.lock(operator.folder / "run/.stack.lock", "ctl.py restart"):
        result = operator.types(*STUB)
    assert result.exit_code == 1
    assert "ctl.py restart" in result.stderr


def test_an_image_that_cannot_be_built_refuses_before_anything_starts(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> list[str]:
        raise CommandFailed(Completed(("docker", "buildx", "build"), 1, err="pip: no matching distribution"))

    monkeypatch.setattr(image_builder, "build_all", fail)
    result = operator.types(*STUB)
    assert result.exit_code == 3
    assert "no matching distribution" in result.stderr and "images build" in result.stderr
    assert operator.world.events == []


def test_a_start_that_failed_is_not_remembered(operator: Operator) -> None:
    operator.types(*STUB)
    operator.types("down")
    operator.world.dying.add("engine-0")
    assert operator.types(*STUB, "--set", "engine.replicas=3").exit_code == 4
    assert "engine.replicas=3" not in operator.types("config", "show", "--origin").stdout


def test_an_address_of_another_host_refuses_before_anything_is_written(operator: Operator) -> None:
    operator.host = dataclasses.replace(GOOD_HOST, bindable=False)
    result = operator.types(*STUB)
    assert result.exit_code == 3
    assert "gateway.bind" in result.stderr
    assert not (operator.folder / ".env").exists()


def test_up_after_an_interrupted_stop_waits_for_what_drains_and_then_starts_it(operator: Operator) -> None:
    operator.types(*STUB)
    operator.world.events.clear()
    operator.world.draining["engine-1"] = 3
    result = operator.types(*STUB)
    assert result.exit_code == 0, result.output
    assert operator.world.events[:2] == ["engine-1 ended", "up"]
    assert any(line.startswith("drain") and "engine-1" in line for line in result.stderr.splitlines())
    assert operator.world.status["engine-1"] == "running"


@pytest.mark.parametrize("name", ["gateway", "engine-0"])
def test_a_container_that_ends_well_while_up_waits_is_started_again_once(operator: Operator, name: str) -> None:
    operator.world.ending = [name]
    result = operator.types(*STUB)
    assert result.exit_code == 0, result.output
    assert operator.world.events.count(f"start {name}") == 1
    assert operator.world.status[name] == "running"


@pytest.mark.parametrize("name", ["gateway", "engine-0"])
def test_a_container_that_ends_well_again_is_given_up(operator: Operator, name: str) -> None:
    operator.world.ending = [name, name]
    assert operator.types(*STUB).exit_code == 4
    assert operator.world.events.count(f"start {name}") == 1


def test_a_failing_undo_does_not_hide_why_the_start_failed(operator: Operator) -> None:
    operator.world.dying.add("engine-0")
    operator.world.unstoppable.add("engine-1")
    result = operator.types(*STUB)
    assert result.exit_code == 4
    assert "not ready" in result.stderr and "still running: engine-1" in result.stderr
