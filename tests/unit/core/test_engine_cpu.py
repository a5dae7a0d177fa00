"""The kind `cpu` in Compose's words and in vLLM's."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from control.core import engine_cpu, engines, kinds, planning, policies
from control.core.model import Host
from control.core.settings import Settings
from tests.sources import SOURCES


def service(**engine: Any) -> dict[str, Any]:
    wanted = Settings(engine={"kind": "cpu", **engine})  # type: ignore[arg-type]
    text = engines.engines_yaml(wanted, planning.plan_capacity(wanted, Host()))
    found: dict[str, Any] = yaml.safe_load(text)["services"]["engine-0"]
    return found


def option(command: list[str], name: str) -> str:
    return command[command.index(f"--{name}") + 1]


def test_the_gateway_goes_by_the_context_that_the_engine_is_given() -> None:
    for asked, given in ((131_072, 8192), (1024, 1024)):
        wanted = Settings(engine={"kind": "cpu", "max_model_len": asked})  # type: ignore[arg-type]
        assert kinds.context(wanted) == given == int(option(service(max_model_len=asked)["command"], "max-model-len"))
        rules = policies.govern(wanted, planning.plan_capacity(wanted, Host()), policies.chosen(wanted, SOURCES))
        assert rules.bounds["max_tokens"][1] == given


def test_real_vllm_runs_the_model_of_its_image_without_weights_and_with_a_bounded_cache() -> None:
    command = service()["command"]
    assert command[:3] == ["vllm", "serve", engine_cpu.MODEL]
    assert option(command, "load-format") == "dummy"
    assert "--enforce-eager" in command
    assert option(command, "kv-cache-memory-bytes") == str(64 * 1024**2)


@pytest.mark.parametrize(("asked", "served"), [(131_072, 8192), (8192, 8192), (1024, 1024), (16, 16)])
def test_the_context_is_the_settings_up_to_what_the_tiny_model_is_given(asked: int, served: int) -> None:
    assert option(service(max_model_len=asked)["command"], "max-model-len") == str(served)


def test_settings_of_the_engine_reach_the_command() -> None:
    command = service(max_num_seqs=3, drain_s=10.2, served_model_name="m")["command"]
    assert option(command, "max-num-seqs") == "3"
    assert option(command, "shutdown-timeout") == "11"
    assert option(command, "served-model-name") == "m"


def test_it_asks_no_hub_sends_no_statistics_and_writes_to_the_tmpfs_alone() -> None:
    environment = service()["environment"]
    assert environment["HF_HUB_OFFLINE"] == environment["VLLM_NO_USAGE_STATS"] == "1"
    folders = [value for name, value in environment.items() if name == "HOME" or "CACHE" in name]
    assert len(folders) == 3 and all(folder.startswith("/tmp") for folder in folders)


def test_limits_are_the_kinds_own_unless_they_are_set() -> None:
    assert service()["mem_limit"] == "3072m" and "cpus" not in service()
    limited = service(memory_mib=4096, cpus=1.5)
    assert (limited["mem_limit"], limited["cpus"]) == ("4096m", 1.5)
