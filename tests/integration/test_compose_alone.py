"""People who only know docker: bare Compose commands at the root."""

from __future__ import annotations

import itertools

import pytest
import requests

from tests.eventually import eventually
from tests.integration.stack import docker, new_stack
from tests.load import Target


def test_before_init_compose_says_what_to_run() -> None:
    with new_stack("fresh") as stack:
        for command in (["up", "-d"], ["--profile", "monitoring", "up", "-d"], ["config", "-q"]):
            said = stack.compose(*command, check=False)
            assert "python ctl.py init" in said, said
        assert stack.leftovers() == ""


@pytest.mark.parametrize("profile", [[], ["--profile", "monitoring"]])
def test_after_init_and_images_bare_compose_serves(profile: list[str]) -> None:
    with new_stack("bare") as stack:
        stack.settings(engine__kind="stub", engine__replicas=1, engine__drain_s=5, gateway__drain_s=5)
        stack.must("init")
        stack.must("images", "build")
        stack.compose(*profile, "up", "-d")
        address = stack.compose("port", "gateway", "8000").strip()
        assert address.startswith("127.0.0.1:")
        target = Target(f"http://{address}/v1", stack.add_key("bare"))
        eventually(lambda: requests.get(f"{target.url}/models", headers=target.headers, timeout=5).ok, 60)
        stack.compose(*profile, "down")
        assert stack.leftovers() == ""


def test_every_mix_of_profiles_and_kinds_is_accepted_by_compose() -> None:
    with new_stack("mixes") as stack:
        for replicas, autoscale in itertools.product((1, 2, 4), (False, True)):
            stack.settings(engine__kind="stub", engine__replicas=replicas, autoscaler__enabled=autoscale)
            stack.must("init")
            stack.must("render")
            for size in range(4):
                for mix in itertools.combinations(("monitoring", "autoscale", "standby"), size):
                    stack.compose(*(word for name in mix for word in ("--profile", name)), "config", "-q")
            running = set(stack.compose("config", "--services").split())
            active = {f"engine-{n}" for n in range(1 if autoscale else replicas)}
            assert running == {"gateway", "policy", "budget"} | active


def test_the_daemon_brings_everything_back_in_order_after_a_crash_of_all_containers() -> None:
    """What a reboot does: containers start in any order, at the same addresses, and serve without a controller."""
    with new_stack("back") as stack:
        stack.settings(engine__drain_s=5, gateway__drain_s=5, gateway__port=0)
        stack.up()
        key = stack.target().key
        containers = [stack.container(s) for s in ("gateway", "engine-0", "engine-1")]
        template = f'{{{{(index .NetworkSettings.Networks "{stack.project}_engine").IPAddress}}}}'
        addresses = docker("inspect", "--format", template, *containers)
        docker("kill", *containers)
        for container in (containers[2], containers[0], containers[1]):
            docker("start", container)
        stack.wait_ready(2)
        headers = {"authorization": f"Bearer {key}"}
        assert requests.get(f"{stack.url}/models", headers=headers, timeout=5).ok
        assert docker("inspect", "--format", template, *containers) == addresses
