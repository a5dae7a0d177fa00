"""Docker Compose accepts the golden trees, and makes of them what was planned. It needs no daemon for that."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from control.adapters import compose
from tests.golden import trees

GPU_TREES = ("dgx-h100", "hgx-h200")


@lru_cache(maxsize=8)
def judged(name: str) -> dict[str, Any]:
    """The tree in a clone of its own, as Compose understands it with every profile."""
    with TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        shutil.copytree(trees.HERE / name, clone)
        shutil.copytree(trees.ROOT / "compose", clone / "compose")
        shutil.copy(trees.ROOT / "compose.yaml", clone)
        args = [*compose.BASE, "--profile", "*", "config", "--format", "json"]
        done = subprocess.run(args, cwd=clone, env=clean(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "variable is not set" not in done.stderr, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.replace(str(clone), "/clone"))
        return found


def clean() -> dict[str, str]:
    return compose.environment({"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent"})


def replicas(name: str) -> dict[str, dict[str, Any]]:
    return {key: one for key, one in judged(name)["services"].items() if key.startswith("engine-")}


@pytest.mark.parametrize("name", trees.names())
def test_compose_accepts_the_tree_and_has_every_replica(name: str) -> None:
    assert sorted(replicas(name)) == sorted(replica.name for replica in trees.plan(name).replicas)


@pytest.mark.parametrize("name", GPU_TREES)
def test_compose_hands_over_exactly_the_planned_command_and_gpus(name: str) -> None:
    plan = trees.plan(name)
    assert plan.gpu is not None
    for replica in plan.replicas:
        service = replicas(name)[replica.name]
        words = [word.replace("$$", "$") for word in service["command"]]  # config prints it escaped again
        assert words == list(plan.gpu.serve.args)
        assert service["entrypoint"] == ["python3", "-u", "/opt/flashbox/gate/gate.py", "run", "--"]
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert tuple(device["device_ids"]) == replica.gpus


@pytest.mark.parametrize("name", GPU_TREES)
def test_a_replica_on_gpus_is_locked_down_and_writes_only_to_its_cache(name: str) -> None:
    for service in replicas(name).values():
        assert service["read_only"] is True and service["cap_drop"] == ["ALL"] and not service.get("cap_add")
        assert service["security_opt"] == ["no-new-privileges:true"] and not service.get("privileged")
        assert service["user"] == "1001:1001" and list(service["networks"]) == ["engine"]
        assert "ports" not in service and "network_mode" not in service and "ipc" not in service
        mounts = {mount["target"]: mount for mount in service["volumes"]}
        assert {target for target, mount in mounts.items() if not mount.get("read_only")} == {"/cache"}
        assert mounts["/opt/flashbox/gate"]["source"] == "/clone/images/gate"
        inside = [value for key, value in service["environment"].items() if "CACHE" in key or key == "HOME"]
        assert inside and all(value == "/cache" or value.startswith("/cache/") for value in inside)
    assert judged(name)["networks"]["engine"]["internal"] is True


@pytest.mark.parametrize("name", GPU_TREES)
def test_the_weights_are_the_folder_of_the_settings(name: str) -> None:
    options = judged(name)["volumes"]["weights"]["driver_opts"]
    assert options["device"].replace("$$", "$") == trees.settings(name).weights.path
    assert (options["type"], options["o"]) == ("none", "bind")


@pytest.mark.parametrize("name", GPU_TREES)
def test_docker_waits_longer_than_the_gate_and_the_gate_as_long_as_the_engine(name: str) -> None:
    engine = trees.settings(name).engine
    for service in replicas(name).values():
        minutes, _, seconds = service["stop_grace_period"].removesuffix("s").partition("m")
        assert int(minutes) * 60 + float(seconds) >= engine.notice_s + engine.drain_s + 15
        words = service["command"]
        assert float(service["environment"]["GATE_DRAIN_S"]) >= float(words[words.index("--shutdown-timeout") + 1])


@pytest.mark.parametrize("name", GPU_TREES)
def test_no_secret_is_in_the_tree(name: str) -> None:
    for service in replicas(name).values():
        assert [secret["source"] for secret in service["secrets"]] == ["upstream_key"]
        assert not [key for key in service["environment"] if key.endswith(("_KEY", "_TOKEN"))]
        assert not any(word.startswith(("--api-key", "--hf-token")) for word in service["command"])


def test_a_standby_replica_has_its_gpus_and_is_started_by_no_plain_command() -> None:
    *active, last = replicas("hgx-h200").values()
    assert last["profiles"] == ["standby"] and not any("profiles" in service for service in active)
    assert len(last["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]) == 2


def test_the_cache_is_given_away_by_a_container_without_a_network() -> None:
    owner = judged("dgx-h100")["services"]["cache-owner"]
    assert owner["network_mode"] == "none" and owner["cap_drop"] == ["ALL"] and owner["read_only"] is True
    assert [mount["target"] for mount in owner["volumes"]] == ["/cache"]
    assert owner["restart"] == "no"
