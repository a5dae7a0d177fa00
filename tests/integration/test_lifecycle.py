"""up, status, stop, restart, down: what an operator types, and what is left afterwards."""

from __future__ import annotations

import json
import os
import signal

import requests

from tests.eventually import eventually
from tests.integration.stack import Stack, docker, new_stack
from tests.load import Target


def answers(target: Target) -> bool:
    return requests.get(f"{target.url}/models", headers=target.headers, timeout=5).ok


def test_up_is_idempotent_and_starts_nothing_anew(stack: Stack) -> None:
    before = [stack.container(s) for s in ("gateway", "engine-0", "engine-1")]
    started = docker("inspect", "--format", "{{.State.StartedAt}}", *before)
    ran = stack.up()
    assert "ready    2 of 2" in ran.err
    assert "keys add" in ran.err
    assert [stack.container(s) for s in ("gateway", "engine-0", "engine-1")] == before
    assert docker("inspect", "--format", "{{.State.StartedAt}}", *before) == started


def test_status_tells_url_and_phases(stack: Stack) -> None:
    status = stack.status()
    assert {r["name"]: r["phase"] for r in status["replicas"]} == {"engine-0": "ready", "engine-1": "ready"}
    assert requests.get(status["url"].removesuffix("/v1") + "/health", timeout=5).ok
    assert "engine-0" in stack.must("status").out


def test_logs_show_one_service(stack: Stack) -> None:
    out = stack.must("logs", "engine-0", "--tail", "50").out
    assert "engine-0" in out and "engine-1" not in out


def test_stop_keeps_containers_and_up_brings_the_same_back() -> None:
    with new_stack("stop") as stack:
        stack.settings(engine__replicas=1, engine__drain_s=10, gateway__drain_s=10)
        stack.up()
        target = stack.target()
        assert answers(target)
        before = stack.container("engine-0")
        stack.must("stop")
        assert (
            docker("inspect", "--format", "{{.State.Status}}", stack.container("gateway"), before).split()
            == ["exited"] * 2
        )
        stack.up()
        assert stack.container("engine-0") == before
        assert answers(Target(stack.url, target.key))
        stack.must("down", "--yes")
        assert stack.leftovers() == ""
        stack.must("down", "--yes")


def test_down_also_takes_a_standby_replica_that_was_started_by_hand() -> None:
    with new_stack("standby") as stack:
        stack.settings(engine__replicas=2, engine__drain_s=5, gateway__drain_s=5)
        stack.up("--profile", "autoscale")
        state = docker("inspect", "--format", "{{.State.Status}}", stack.container("engine-1"))
        assert state == "created"
        phases = {r["name"]: r["phase"] for r in stack.status()["replicas"]}
        assert phases["engine-0"] == "ready" and phases["engine-1"] != "ready"
        docker("start", stack.container("engine-1"))
        eventually(lambda: stack.gate("engine-1")["phase"] == "ready", 30)
        assert len(stack.healthy_endpoints()) == 1, "a standby replica gets requests once it is registered, not before"
        stack.must("down", "--yes")
        assert stack.leftovers() == ""


def test_ctrl_c_during_up_leaves_a_state_from_which_up_goes_on() -> None:
    with new_stack("ctrlc") as stack:
        stack.settings(engine__replicas=1, stub__load_s=8, engine__drain_s=5, gateway__drain_s=5)
        up = stack.start("up", "--profile", "stub")
        eventually(lambda: docker("ps", "-q", "--filter", f"label=com.docker.compose.project={stack.project}"), 240)
        os.kill(up.pid, signal.SIGINT)
        out, _ = up.communicate(timeout=60)
        assert up.returncode == 130 and "Traceback" not in out, out
        stack.up()
        assert answers(stack.target())


def test_a_replica_that_never_becomes_ready_is_named_with_its_phase_and_nothing_is_left() -> None:
    with new_stack("never") as stack:
        stack.settings(
            engine__replicas=1, stub__load_s=600, engine__start_timeout_s=4, engine__drain_s=5, gateway__drain_s=5
        )
        ran = stack.ctl("up", "--profile", "stub", "--timeout", "12")
        assert ran.code == 4, ran.text
        assert "engine-0" in ran.err and "fix" in ran.err
        assert stack.leftovers() == ""
        kept = stack.ctl("up", "--profile", "stub", "--timeout", "6", "--keep")
        assert kept.code == 4
        assert stack.leftovers() != ""


def test_a_stack_of_another_kind_is_not_touched(stack: Stack) -> None:
    before = stack.container("engine-0")
    for kind in ("gpu", "cpu"):
        ran = stack.ctl("up", "--profile", kind)
        assert ran.code == 3, ran.text
    assert stack.container("engine-0") == before
    assert json.loads(stack.must("status", "--json").out)["replicas"][0]["phase"] == "ready"


def test_a_taken_port_is_named_with_its_holder(stack: Stack) -> None:
    port = int(stack.url.rsplit(":", 1)[1].split("/")[0])
    with new_stack("port") as other:
        other.settings(gateway__port=port)
        ran = other.ctl("up", "--profile", "stub")
        assert ran.code == 3, ran.text
        assert str(port) in ran.err and stack.project in ran.err
        assert other.leftovers() == ""
