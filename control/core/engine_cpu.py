"""The kind `cpu`: real vLLM with a tiny model without weights, behind the same gate and gateway as the others.

It answers nonsense in the right form: the HTTP front end, the encoding of prompts, the parsers, metrics and signals are
those of the release. The image holds the engine and the model, so that nothing is planned from facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from control.core import kinds, wiring
from control.core.errors import UsageError
from control.core.serve import Option
from control.core.settings import Settings

IMAGE = "engine-cpu"  # its name in config/images.yaml
MODEL = "/opt/flashbox/tiny-model"  # made by its Dockerfile
# 512 bytes a token (2 layers, 2 heads of 32, keys and values of 2 bytes): every seat may be full.
KV_BYTES = kinds.CPU_SEATS * kinds.CPU_CONTEXT * 512
MIN_MEMORY_MIB = 2048  # 1.4 GiB measured for all processes of 0.26.0, and the caches
_ANYWHERE = "0.0.0.0"  # inside the container, whose only network is the internal one
_HOME = "/tmp"  # a tmpfs: nothing is worth keeping


def command(settings: Settings) -> list[str]:
    """`vllm serve` with its options, word by word."""
    engine = settings.engine
    options = (
        Option("served-model-name", engine.served_model_name, "engine.served_model_name"),
        Option("load-format", "dummy", "the bundle"),
        Option("enforce-eager", True, "the bundle"),
        Option("kv-cache-memory-bytes", KV_BYTES, "the bundle"),  # without it the engine takes 92 % of the memory
        Option("max-model-len", kinds.context(settings), "engine.max_model_len"),
        Option("max-num-seqs", kinds.seats(settings), "engine.max_num_seqs"),
        # The model's own encoding and parsers, as config/models has them for GPUs.
        Option("tokenizer-mode", "deepseek_v4", "the bundle"),
        Option("enable-auto-tool-choice", True, "the bundle"),
        Option("tool-call-parser", "deepseek_v4", "the bundle"),
        Option("reasoning-parser", "deepseek_v4", "the bundle"),
        Option("shutdown-timeout", ceil(engine.drain_s), "engine.drain_s"),
        Option("disable-fastapi-docs", True, "the bundle"),
        Option("fail-on-environ-validation", True, "the bundle"),
        Option("enable-request-id-headers", True, "the bundle"),
        Option("disable-access-log-for-endpoints", "/health,/metrics", "the bundle"),
        Option("host", _ANYWHERE, "the bundle"),
        Option("port", wiring.ENGINE_PORT, "the bundle"),
    )
    return ["vllm", "serve", MODEL, *(word for option in options for word in option.words)]


def environment(settings: Settings) -> Mapping[str, str]:
    """The variables of the server: no network, and every cache where a read-only container can write."""
    return {
        "HOME": _HOME,
        "USER": "flashbox",  # the uid has no entry in the image's list of users
        "XDG_CACHE_HOME": f"{_HOME}/.cache",
        "VLLM_CACHE_ROOT": f"{_HOME}/.cache/vllm",
        "TORCHDYNAMO_DISABLE": "1",  # it would compile the sampling with a C++ compiler, which the image has not
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }


def refuse_what_cannot_start(settings: Settings) -> None:
    """A memory limit that the kernel would enforce minutes later."""
    asked = settings.engine.memory_mib
    if asked is not None and asked < MIN_MEMORY_MIB:
        raise UsageError(
            f"engine.memory_mib: expected at least {MIN_MEMORY_MIB} for kind cpu, found {asked}",
            "The processes of vLLM take 1.4 GiB with the smallest of models.",
            "Raise engine.memory_mib, or leave it out.",
        )
