"""Settings of the replicas: which engine, how much of the host, how it starts and stops."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from control.core import wiring
from control.core.settings.base import Seconds, Section

EngineKind = Literal["gpu", "cpu", "stub"]
StubMode = Literal["deepseek_v4", "plain"]
Preset = Literal["latency", "balanced", "throughput"]


class Engine(Section):
    """The replicas that answer requests."""

    kind: EngineKind = Field(
        "gpu",
        description="gpu: vLLM on NVIDIA GPUs; cpu: real vLLM with a tiny model; stub: a stand-in without a model.",
    )
    replicas: int | None = Field(
        None,
        ge=1,
        le=wiring.MAX_REPLICAS,
        description="Number of replicas; null lets the planner decide (stub: 2, cpu: 1).",
    )
    served_model_name: str = Field(
        "deepseek-v4-flash",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$",
        description="The `model` that clients name.",
    )
    max_model_len: int = Field(
        131_072,
        ge=16,
        le=1_048_576,
        description="Context of one request, prompt and answer, in tokens; kind cpu has at most 8192.",
    )
    max_num_seqs: int | None = Field(
        None,
        ge=1,
        le=4096,
        description="Requests a replica runs at once, more wait; null: the preset's (gpu), 64 (stub), 16 (cpu).",
    )
    release: str | None = Field(
        None,
        pattern=r"^\d+\.\d+\.\d+$",
        description="vLLM release; null takes the default of config/engines.yaml (gpu).",
    )
    preset: Preset = Field(
        "balanced", description="Tokens of one step, few, some or many: the values are in config/engines.yaml (gpu)."
    )
    max_num_batched_tokens: int | None = Field(
        None, ge=256, le=131_072, description="Tokens of one step; null takes the preset's (gpu)."
    )
    tensor_parallel: int | None = Field(
        None, ge=1, le=16, description="GPUs of one replica; null takes the smallest number that fits (gpu)."
    )
    gpu_uuids: list[str] = Field(
        [], max_length=64, description="UUIDs of the GPUs that may be used; empty means every one that can serve (gpu)."
    )
    gpu_memory_utilization: float = Field(
        0.88, ge=0.1, le=0.98, description="Share of a GPU's memory that the engine takes (gpu)."
    )
    speculation: bool = Field(False, description="Draft tokens ahead, as the model's manifest says (gpu).")
    cuda_compatibility: bool = Field(
        False, description="Run the image's own CUDA libraries on an older driver; untried with this model (gpu)."
    )
    extra_args: list[str] = Field(
        [],
        max_length=100,
        description="Further options of `vllm serve`, word by word, such as --moe-backend, marlin (gpu).",
    )
    notice_s: Seconds = Field(
        2.0, description="Between not-ready and SIGTERM: the gateway needs this long to see that a replica leaves."
    )
    drain_s: Seconds = Field(
        300.0, description="Longest wait for running requests when a replica stops; then it is killed."
    )
    start_timeout_s: Seconds | None = Field(
        None,
        description="Longest start of a replica (load, compile, warm up); null: 3600 gpu, 1800 cpu, 120 stub.",
    )
    hang_s: float = Field(
        300.0,
        ge=5,
        le=86_400,
        description="A replica that owes tokens and brings none for this long hangs: it is ended and starts again. "
        "300 is vLLM's own limit of one step; a long prefill must fit.",
    )
    probe_s: float = Field(
        60.0, ge=1, le=86_400, description="An idle replica is asked for one token this often: a hang shows early."
    )
    cpus: float | None = Field(
        None, gt=0, le=1024, description="CPU limit of one replica (kinds stub and cpu); null: 1 (stub), none (cpu)."
    )
    memory_mib: int | None = Field(
        None,
        ge=64,
        description="Memory limit of one replica (kinds stub and cpu), in MiB; null: 512 (stub), 3072 (cpu).",
    )


class Weights(Section):
    """The model's files on this host."""

    model: str = Field(
        "deepseek-v4-flash",
        pattern=r"^[a-z0-9][a-z0-9._-]{0,79}$",
        description="Manifest in config/models that names the revision to serve.",
    )
    path: str = Field(
        "/var/lib/flashbox/weights",
        pattern=r"^/[^\x00]*$",
        description="Folder of the host that holds the weights; 160 to 167 GB for each model.",
    )


class Stub(Section):
    """How the stand-in engine behaves."""

    release: Literal["0.26.0", "0.32.0", "0.33.0"] = Field("0.26.0", description="The vLLM release that it plays.")
    mode: StubMode = Field("deepseek_v4", description="deepseek_v4: tools and reasoning, as the model; plain: neither.")
    load_s: float = Field(0.0, ge=0, le=3600, description="Pretended load time before it answers at all.")
    prefill_tokens_per_s: float = Field(20_000.0, ge=0.001, description="Prompt tokens per second of one replica.")
    decode_tokens_per_s: float = Field(40.0, ge=0.001, description="Answer tokens per second of one stream.")
    default_max_tokens: int = Field(64, ge=1, description="Length of an answer whose request sets no max_tokens.")
