"""Replicas of the kind gpu as Compose services."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from control.core import engine_gpu, engines, kinds, planning
from control.core.model import Host, ImageRef, Plan
from control.core.settings import Engine, Settings
from tests.unit.capacity.world import ROOT, facts, host, settings

REF = ImageRef("engine", "example/vllm", "default")


def planned(machine: str = "dgx-h100", wanted: Settings | None = None, rootless: bool = False) -> Plan:
    here = Host(inventory=host(machine), docker_rootless=rootless)
    return planning.plan_capacity(wanted or settings(kind="gpu"), here, facts())


def rendered(machine: str = "dgx-h100", wanted: Settings | None = None, rootless: bool = False) -> dict[str, Any]:
    wanted = wanted or settings(kind="gpu")
    found: dict[str, Any] = yaml.safe_load(engines.engines_yaml(wanted, planned(machine, wanted, rootless)))
    return found


def replica(slot: int = 0, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = rendered(**more)["services"][f"engine-{slot}"]
    return found


def test_every_replica_reserves_its_own_gpus_by_uuid_one_id_an_item() -> None:
    seen: list[str] = []
    for slot in range(4):
        (device,) = replica(slot, machine="hgx-h200")["deploy"]["resources"]["reservations"]["devices"]
        assert device["driver"] == "nvidia" and device["capabilities"] == ["gpu"] and "count" not in device
        assert len(device["device_ids"]) == 2 and not any("," in uuid for uuid in device["device_ids"])
        seen += device["device_ids"]
    assert seen == [gpu.uuid for gpu in host("hgx-h200").gpus or ()]


def test_the_command_is_the_planners_word_by_word() -> None:
    plan = planned()
    assert plan.gpu is not None
    assert replica()["command"] == list(plan.gpu.serve.args)


def test_the_environment_is_the_gates_and_the_planners_and_holds_no_secret() -> None:
    environment = replica()["environment"]
    assert environment["HOME"] == "/cache" and environment["GATE_UPSTREAM"] == "http://127.0.0.1:8000"
    assert environment["GATE_START_TIMEOUT_S"] == environment["VLLM_ENGINE_READY_TIMEOUT_S"] == "3600"
    assert [name for name in environment if "KEY" in name] == ["GATE_API_KEY_FILE"]
    assert all(isinstance(value, str) for value in environment.values())
    assert not any(name.startswith("STUB_") for name in environment)


def test_weights_are_read_only_and_the_cache_is_a_volume_of_its_release_and_gpu_type() -> None:
    whole = rendered()
    assert replica()["volumes"] == ["weights:/models:ro", "cache:/cache"]
    assert whole["volumes"]["weights"]["driver_opts"]["device"] == "/var/lib/flashbox/weights"
    assert whole["volumes"]["cache"]["name"] == "flashbox-cache-0.26.0-cu13.0-h100-sxm"
    older = rendered(wanted=settings(kind="gpu", release="0.25.1"))
    assert older["volumes"]["cache"]["name"] != whole["volumes"]["cache"]["name"]


def test_another_folder_of_weights_is_another_volume() -> None:
    """Compose would ask before it changes one that is there, and nobody answers."""
    wanted = settings(kind="gpu").model_copy(
        update={"weights": settings().weights.model_copy(update={"path": "/data/a"})}
    )
    there, here = rendered(wanted=wanted)["volumes"]["weights"], rendered()["volumes"]["weights"]
    assert there["driver_opts"]["device"] == "/data/a" and there["name"] != here["name"]


def test_a_dollar_is_doubled_in_commands_and_paths_too() -> None:
    wanted = settings(kind="gpu", extra_args=["--chat-template", "a$b"])
    wanted = wanted.model_copy(update={"weights": wanted.weights.model_copy(update={"path": "/w$1"})})
    whole = rendered(wanted=wanted)
    assert whole["services"]["engine-0"]["command"][-1] == "a$$b"
    assert whole["volumes"]["weights"]["driver_opts"]["device"] == "/w$$1"


def test_engines_wait_until_the_cache_is_theirs() -> None:
    services = rendered()["services"]
    assert services["cache-owner"]["command"] == ["1001:1001", "/cache"]
    assert services["engine-0"]["depends_on"] == {"cache-owner": {"condition": "service_completed_successfully"}}


@pytest.mark.parametrize("rootless", [True, False])
def test_limits_are_raised_only_where_docker_may_raise_them(rootless: bool) -> None:
    assert ("ulimits" in replica(rootless=rootless)) is not rootless


def test_docker_calls_a_replica_unhealthy_only_after_the_longest_start() -> None:
    assert replica()["healthcheck"] == {"start_period": "3600s"}
    assert replica(wanted=settings(kind="gpu", start_timeout_s=90.0))["healthcheck"] == {"start_period": "90s"}


def test_a_stub_has_nothing_of_this() -> None:
    stub = Settings.model_validate({"engine": {"kind": "stub"}})
    whole = yaml.safe_load(engines.engines_yaml(stub, planning.plan_capacity(stub, Host())))
    assert list(whole) == ["services"] and list(whole["services"]) == ["engine-0", "engine-1"]
    assert not {"deploy", "command", "volumes", "depends_on", "ulimits"} & set(whole["services"]["engine-0"])


@pytest.mark.parametrize(
    ("machine", "engine", "tag"),
    [
        ("dgx-h100", {}, "v0.26.0"),
        ("old-driver-575", {}, "v0.26.0-cu129"),
        ("dgx-h100", {"release": "0.33.0"}, "v0.33.0"),
    ],
)
def test_the_image_is_that_of_the_release_and_of_a_cuda_that_the_driver_runs(
    machine: str, engine: dict[str, Any], tag: str
) -> None:
    assert engine_gpu.image(REF, planned(machine, settings(kind="gpu", **engine))) == f"example/vllm:{tag}"


def test_without_a_plan_on_gpus_the_image_is_what_the_list_of_images_says() -> None:
    stub = Settings.model_validate({"engine": {"kind": "stub"}})
    assert engine_gpu.image(REF, planning.plan_capacity(stub, Host())) == "example/vllm:default"


def test_the_listed_tag_is_that_of_the_default_release() -> None:
    listed = yaml.safe_load((ROOT / "config/images.yaml").read_text(encoding="utf-8"))["engine"]["tag"]
    release = facts().engines.find(facts().engines.default_release)
    assert release is not None and listed == engine_gpu.tag(release, release.builds[0])


@pytest.mark.parametrize(("kind", "seconds"), [("gpu", 3600.0), ("cpu", 1800.0), ("stub", 120.0)])
def test_every_kind_has_a_longest_start_and_the_setting_wins(kind: str, seconds: float) -> None:
    assert kinds.start_timeout_s(settings(kind=kind)) == seconds
    assert kinds.start_timeout_s(settings(kind=kind, start_timeout_s=5.0)) == 5.0
    assert f"{seconds:.0f} {kind}" in str(Engine.model_fields["start_timeout_s"].description)
