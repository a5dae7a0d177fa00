"""The rendered command and environment."""

from __future__ import annotations

import json

import pytest

from control.core.engine_gpu import reservation
from control.core.errors import UsageError
from tests.unit.capacity.world import facts, plan

RELEASES = [
    release.version for release in facts().engines.releases if release.version not in ("0.19.1", "0.27.0", "0.27.1")
]


def flags(args: tuple[str, ...]) -> list[str]:
    return [word[2:] for word in args if word.startswith("--")]


def value(args: tuple[str, ...], flag: str) -> str:
    return args[args.index(f"--{flag}") + 1]


def test_the_command_is_the_one_that_was_started_and_served_on_a_gpu() -> None:
    args = plan("dgx-h100").serve.args
    assert args[:3] == ("vllm", "serve", "/models/deepseek-v4-flash")
    pairs = {
        "kv-cache-dtype": "fp8",
        "block-size": "256",
        "tokenizer-mode": "deepseek_v4",
        "tool-call-parser": "deepseek_v4",
        "reasoning-parser": "deepseek_v4",
        "max-model-len": "131072",
        "max-num-batched-tokens": "8192",
        "max-num-seqs": "256",
        "gpu-memory-utilization": "0.88",
        "tensor-parallel-size": "4",
        "disable-access-log-for-endpoints": "/health,/metrics",
        "served-model-name": "deepseek-v4-flash",
        "host": "0.0.0.0",
        "port": "8000",
    }
    assert {flag: value(args, flag) for flag in pairs} == pairs
    for switch in (
        "enable-auto-tool-choice",
        "enable-expert-parallel",
        "enable-request-id-headers",
        "fail-on-environ-validation",
        "disable-fastapi-docs",
    ):
        assert f"--{switch}" in args
    assert "--trust-remote-code" not in args and "--quantization" not in args


def test_the_shutdown_timeout_is_the_drain_time_in_whole_seconds_rounded_up() -> None:
    assert value(plan("dgx-h100").serve.args, "shutdown-timeout") == "300"
    assert value(plan("dgx-h100", drain_s=59.2).serve.args, "shutdown-timeout") == "60"


@pytest.mark.parametrize("release", RELEASES)
def test_no_release_gets_a_flag_or_a_variable_that_it_is_not_known_to_have(release: str) -> None:
    made = plan("hgx-h200", release=release, speculation=True).serve
    known = facts().engines.flags_of(release)
    assert [name for name in flags(made.args) if known.why_not(name)] == []
    variables = facts().engines.variables_of(release)
    ours = [name for name in made.environment if name.startswith("VLLM_")]
    assert [name for name in ours if variables.why_not(name)] == []


def test_a_flag_that_the_release_lacks_is_listed_with_the_reason() -> None:
    made = plan("dgx-h100").serve
    assert "--max-num-queued-reqs" not in made.args
    assert [(one.words, one.why) for one in made.left_out] == [
        (("--max-num-queued-reqs", "512"), "not known in 0.26.0, first seen in 0.31.0")
    ]
    newer = plan("dgx-h100", release="0.33.0").serve
    assert value(newer.args, "max-num-queued-reqs") == "512"
    assert newer.left_out == ()


def test_an_old_release_is_not_given_a_variable_it_may_refuse() -> None:
    made = plan("dgx-h100", release="0.20.0").serve
    assert "VLLM_ENGINE_READY_TIMEOUT_S" not in made.environment
    assert any(one.words[0].startswith("VLLM_ENGINE_READY_TIMEOUT_S=") for one in made.left_out)


def test_every_cache_lies_in_one_volume_and_nothing_phones_home() -> None:
    environment = plan("dgx-h100").serve.environment
    assert environment["HOME"] == "/cache" and {"XDG_CACHE_HOME", "TRITON_CACHE_DIR"} <= set(environment)
    assert all(environment[name].startswith("/cache/") for name in environment if "CACHE" in name)
    assert (environment["HF_HUB_OFFLINE"], environment["VLLM_NO_USAGE_STATS"]) == ("1", "1")
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert "PYTORCH_CUDA_ALLOC_CONF" not in environment  # expandable segments broke a start on H100


def test_no_secret_and_no_gpu_id_is_in_the_command_or_the_environment() -> None:
    made = plan("dgx-h100").serve
    words = " ".join((*made.args, *made.environment, *made.environment.values()))
    assert "api" not in words.lower().replace("fastapi", "") and "GPU-" not in words and "VISIBLE" not in words


def test_drafts_are_one_json_word() -> None:
    args = plan("dgx-h100", speculation=True, model="deepseek-v4-flash-0731").serve.args
    config = json.loads(value(args, "speculative-config"))
    assert config == {"method": "dspark", "num_speculative_tokens": 7, "draft_sample_method": "probabilistic"}


def test_extra_args_are_passed_on_word_by_word() -> None:
    args = plan("dgx-h100", extra_args=["--moe-backend", "marlin", "--no-enable-prefix-caching", "--seed=7"]).serve.args
    assert args[-5:] == ("--moe-backend", "marlin", "--no-enable-prefix-caching", "--seed", "7")


def test_an_extra_flag_of_another_release_is_left_out_and_said() -> None:
    made = plan("dgx-h100", extra_args=["--reasoning-effort-map", "{}"]).serve
    assert "--reasoning-effort-map" not in made.args
    assert (("--reasoning-effort-map", "{}"), "not known in 0.26.0, first seen in 0.33.0") in [
        (one.words, one.why) for one in made.left_out
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["marlin"], "engine.extra_args[0]: expected an option that starts with --, found 'marlin'"),
        (
            ["--enforce-eager", "false"],
            "--enforce-eager is a switch and takes no word after it: write --enforce-eager or --no-enforce-eager",
        ),
        (["--enforce-eager=False"], "--enforce-eager is a switch"),
        (["--moe-backed", "marlin"], "--moe-backed is no option of any known release (did you mean --moe-backend?)"),
        (["--max-num-seq", "3"], "--max-num-seq is no option of any known release (did you mean --max-num-seqs?)"),
        (["--swap-space", "4"], "--swap-space is no option of any known release"),
        (["--max-num-seqs", "3"], "--max-num-seqs is rendered from engine.max_num_seqs"),
        (["--no-enable-auto-tool-choice"], "is rendered from the manifest of deepseek-v4-flash"),
        (["--tensor_parallel_size", "8"], "--tensor-parallel-size is rendered from engine.tensor_parallel"),
        (["--model", "/x"], "--model is rendered from weights.model"),
        (["--api-key", "s3cret"], "--api-key would show a secret in the list of processes"),
        (["--load-format", "pt"], "--load-format pt cannot serve this model: it looks for *.pt files"),
        (["--seed", "1", "--seed", "2"], "--seed is written twice; keep one"),
    ],
)
def test_extra_args_that_cannot_work_are_refused_before_anything_starts(words: list[str], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        plan("no-gpu", extra_args=words)
    assert said in refused.value.what
    assert "s3cret" not in refused.value.what


def test_a_reservation_names_each_gpu_once_and_never_counts() -> None:
    device = reservation(plan("dgx-h100").replicas[1].uuids)
    assert device.keys() == {"driver", "device_ids", "capabilities"}
    assert device["device_ids"] == list(plan("dgx-h100").replicas[1].uuids)
    assert device["capabilities"] == ["gpu"]


@pytest.mark.parametrize("ids", [[], ["0,1"], ["0", "0"], ["0, 0"], [" 0"], [""]])
def test_a_reservation_that_compose_would_misread_is_refused(ids: list[str]) -> None:
    with pytest.raises(ValueError, match="expected GPU ids"):
        reservation(ids)
