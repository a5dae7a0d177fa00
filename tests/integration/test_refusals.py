"""Bad input and poor hosts: what, why, fix and the exit code; nothing is started."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.stack import Stack, new_stack


@pytest.fixture(scope="module")
def idle() -> Iterator[Stack]:
    """A tree from which nothing runs."""
    with new_stack("idle") as stack:
        yield stack
        assert stack.leftovers() == ""


def test_a_wrong_setting_names_path_expected_found_and_neighbour(idle: Stack) -> None:
    ran = idle.ctl("up", "--profile", "stub", "--set", "gateway.prot=9000", "--set", "engine.max_num_seqs=many")
    assert ran.code == 2
    assert "gateway.prot" in ran.err and "port" in ran.err
    assert "engine.max_num_seqs" in ran.err and "integer" in ran.err and "many" in ran.err


def test_without_a_daemon_the_socket_is_named(idle: Stack) -> None:
    ran = idle.ctl("up", "--profile", "stub", env={"DOCKER_HOST": "unix:///nowhere/docker.sock"})
    assert ran.code == 3, ran.text
    assert "/nowhere/docker.sock" in ran.err and "make docker" in ran.err


def test_without_gpus_the_rehearsal_is_named(idle: Stack) -> None:
    ran = idle.ctl("up")
    assert ran.code == 3, ran.text
    assert "python ctl.py up --profile stub" in ran.err


def test_an_old_compose_is_refused_with_both_versions(idle: Stack, tmp_path: Path) -> None:
    fake = tmp_path / "docker"
    real = next(p for p in os.environ["PATH"].split(":") if (Path(p) / "docker").exists())
    fake.write_text(f'#!/bin/sh\ncase "$1 $2" in "compose version") echo 2.20.0;; *) exec {real}/docker "$@";; esac\n')
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    ran = idle.ctl("up", "--profile", "stub", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert ran.code == 3, ran.text
    assert "2.20.0" in ran.err and "2.24" in ran.err


def test_a_subnet_in_use_is_named_with_its_user(idle: Stack, stack: Stack) -> None:
    import yaml

    taken = yaml.safe_load((stack.root / "config/stack.yaml").read_text())["network"]["engine_subnet"]
    ran = idle.ctl("up", "--profile", "stub", "--set", f"network.engine_subnet={taken}")
    assert ran.code == 3, ran.text
    assert taken in ran.err and stack.project in ran.err


def test_doctor_reports_everything_and_starts_nothing(idle: Stack) -> None:
    ran = idle.ctl("doctor", "--set", "engine.kind=stub", "--json")
    assert ran.code in (0, 1, 3), ran.text
    assert '"docker-daemon"' in ran.out


def test_a_hand_edited_envoy_file_is_found_by_check_and_mended_by_render(idle: Stack) -> None:
    idle.must("init", "--set", "engine.kind=stub")
    idle.must("render", "--set", "engine.kind=stub")
    assert idle.ctl("render", "--check", "--set", "engine.kind=stub").code == 0
    path = idle.root / "run/envoy/dynamic/rds.yaml"
    path.write_text(path.read_text().replace("/v1/models", "/v1/modelz"))
    ran = idle.ctl("render", "--check", "--set", "engine.kind=stub")
    assert ran.code == 1 and "modelz" in ran.text
    idle.must("render", "--set", "engine.kind=stub")
    assert idle.ctl("render", "--check", "--set", "engine.kind=stub").code == 0


def test_a_template_that_envoy_refuses_is_never_published(idle: Stack) -> None:
    idle.must("render", "--set", "engine.kind=stub")
    template, published = idle.root / "config/envoy/cds.yaml.j2", idle.root / "run/envoy/dynamic/cds.yaml"
    good, before = template.read_text(), published.read_text()
    assert "type: EDS" in good
    template.write_text(good.replace("type: EDS", "type: NOWHERE"))
    try:
        ran = idle.ctl("render", "--set", "engine.kind=stub")
    finally:
        template.write_text(good)
    assert ran.code != 0 and "NOWHERE" in ran.err
    assert published.read_text() == before
