"""`plan` of the kind gpu: for this machine, and for another one that a file describes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tests.unit.capacity.world import HOSTS, host, host_names
from tests.unit.world import GOOD_HOST, Operator

REFUSED = 3


def test_another_machine_is_planned_from_its_file_whatever_runs_here(operator: Operator) -> None:
    operator.types("up", "--profile", "stub")
    result = operator.types("plan", "--host", str(HOSTS / "dgx-h100.json"))
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("2 replicas of 4 GPUs (NVIDIA H100 80GB HBM3, TP 4), both active")
    for word in ("engine-1", "4, 5, 6, 7", "KV GiB", "128k", "256 seats to 11776 tokens"):
        assert word in result.stdout


def test_the_sum_and_the_settings_are_explained(operator: Operator) -> None:
    result = operator.types(
        "plan", "--host", str(HOSTS / "hgx-h200.json"), "--explain", "--set", "engine.preset=latency"
    )
    assert result.exit_code == 0, result.stderr
    for word in ("= KV cache", "left out  --max-num-queued-reqs", "vllm serve /models", "--set engine.preset=latency"):
        assert word in result.stdout


def test_json_of_a_plan_is_json_and_so_is_a_refusal(operator: Operator) -> None:
    plan = json.loads(operator.types("plan", "--host", str(HOSTS / "dgx-h100.json"), "--json").stdout)
    assert [len(replica["gpus"]) for replica in plan["replicas"]] == [4, 4]
    refused = operator.types("plan", "--host", str(HOSTS / "h100-x2.json"), "--json")
    assert refused.exit_code == REFUSED
    assert [one["tensor_parallel"] for one in json.loads(refused.stdout)["tried"]] == [1, 2, 4]


def test_a_refusal_shows_the_sum_and_the_rehearsal(operator: Operator) -> None:
    result = operator.types("plan", "--host", str(HOSTS / "one-gpu.json"))
    assert result.exit_code == REFUSED and not result.stdout
    for word in ("a replica needs 4 GPUs", "short by 92.15", "python ctl.py up --profile stub"):
        assert word in result.stderr


@pytest.mark.parametrize("name", host_names())
def test_every_described_machine_is_planned_or_refused_and_nothing_is_written(operator: Operator, name: str) -> None:
    result = operator.types("plan", "--host", str(HOSTS / f"{name}.json"))
    assert result.exit_code in (0, REFUSED), result.output
    assert not (operator.folder / ".env").exists() and not (operator.folder / "run/choices.json").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "expected JSON"),
        ('{"snapshot": 1, "gpus": [{"memory_total_mib": -1}]}', "gpus[0].memory_total_mib"),
        ('{"snapshot": 2}', "snapshot"),
    ],
)
def test_a_file_that_cannot_be_is_refused_with_its_path(
    operator: Operator, tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "odd.json"
    file.write_text(text)
    result = operator.types("plan", "--host", str(file))
    assert result.exit_code == 2 and str(file) in result.stderr and words in result.stderr


def test_a_file_that_is_not_there_is_a_matter_of_usage(operator: Operator) -> None:
    result = operator.types("plan", "--host", "no-such.json")
    assert result.exit_code == 2 and "no-such.json" in result.stderr


def test_a_broken_file_of_facts_is_named(operator: Operator) -> None:
    operator.types("plan", "--profile", "stub")
    path = operator.folder / "config/engines.yaml"
    path.write_text(path.read_text().replace("activation_gib: 2.66", "activation_gib: -1"))
    result = operator.types("plan", "--host", str(HOSTS / "dgx-h100.json"))
    assert result.exit_code == 2 and "config/engines.yaml: memory.activation_gib" in result.stderr
    assert operator.types("plan", "--profile", "stub").exit_code == 0  # which is planned without


def test_this_machine_is_planned_on_its_own_gpus_and_rendered(operator: Operator) -> None:
    operator.host = dataclasses.replace(GOOD_HOST, inventory=host("dgx-h100"))
    assert operator.types("init").exit_code == 0
    services = operator.text("run/engines.yaml")
    assert services.count("device_ids:") == 2 and "cache-owner" in services
    assert "FB_ENGINE_IMAGE=vllm/vllm-openai:v0.26.0\n" in operator.text(".env")
    assert operator.types("render", "--check").exit_code == 0


def test_up_says_what_is_known_against_the_plan(operator: Operator) -> None:
    operator.host = dataclasses.replace(GOOD_HOST, inventory=host("dgx-h100"))
    result = operator.types("up", "--set", "engine.tensor_parallel=8")
    assert "1 replica of 8 GPUs" in result.stderr and "warning  TP 8 on eight H100 failed" in result.stderr


def test_doctor_tells_the_sum_of_a_machine_that_is_too_small(operator: Operator) -> None:
    operator.host = dataclasses.replace(GOOD_HOST, inventory=host("one-gpu"))
    result = operator.types("doctor")
    assert result.exit_code == REFUSED
    assert "FAILED   capacity: 1 x NVIDIA H100 80GB HBM3 is too few" in result.stdout
    assert "short by 92.15" in result.stdout and "ok       gpu-present" in result.stdout


def test_a_new_key_reaches_the_gateway_while_our_own_replicas_hold_the_gpus(operator: Operator) -> None:
    operator.host = dataclasses.replace(GOOD_HOST, inventory=host("dgx-h100"))
    operator.types("init")
    operator.host = dataclasses.replace(GOOD_HOST, inventory=host("running"))
    result = operator.types("keys", "add", "laptop", "--owner", "me")
    assert result.exit_code == 0, result.stderr
    (key,) = json.loads(operator.text("secrets/api-keys.json"))["keys"]
    assert key["digest"] in operator.text("run/envoy/dynamic/ecds_auth.yaml")
