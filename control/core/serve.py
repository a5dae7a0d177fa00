"""The command line and the environment of one vLLM replica, from settings and facts; data, never a shell string.

An option that the release is not known to have is left out and named. No secret is in here: the gate hands the key to
the server, and GPUs are given to the container by UUID.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from control.core import kinds, serve_extra, wiring
from control.core.capacity.case import Case
from control.core.errors import UsageError
from control.core.settings import Settings

QUEUE_FACTOR = 2  # requests in flight over seats, where the release can refuse more
_ANYWHERE = "0.0.0.0"  # inside a container whose only network is the internal one

Value = bool | int | float | str | Mapping[str, object]


@dataclass(frozen=True)
class Option:
    """One option before it meets a release. Without an essential one the engine would be another than planned."""

    name: str
    value: Value
    setting: str
    essential: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        if isinstance(self.value, bool):
            return (f"--{self.name}",) if self.value else (f"--no-{self.name}",)
        if isinstance(self.value, Mapping):
            return (f"--{self.name}", json.dumps(self.value, separators=(",", ":")))
        return (f"--{self.name}", str(self.value))


@dataclass(frozen=True)
class LeftOut:
    """An option or a variable that the release is not known to have."""

    words: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class ServeCommand:
    """What the gate starts in each replica."""

    args: tuple[str, ...]
    environment: Mapping[str, str]
    left_out: tuple[LeftOut, ...]


def command(settings: Settings, case: Case, tensor_parallel: int, cuda_compatibility: bool = False) -> ServeCommand:
    """`vllm serve MODEL ...` and its environment for one replica."""
    flags = case.engines.flags_of(case.release.version)
    options = _options(settings, case, tensor_parallel)
    ours = {option.name: option.setting for option in options} | {"model": "weights.model"}
    extras = serve_extra.parse(settings.engine.extra_args, flags, ours)
    args: list[str] = ["vllm", "serve", f"{wiring.WEIGHTS_MOUNT}/{case.model.name}"]
    left_out: list[LeftOut] = []
    for words, name, essential in (
        *((o.words, o.name, o.essential) for o in options),
        *((e.words, serve_extra.plain(e.name, flags), False) for e in extras),
    ):
        why = flags.why_not(name)
        if why is None:
            args += words
        elif essential:
            raise UsageError(f"engine.release: --{name} is {why}", "The plan cannot do without it.", "Choose another.")
        else:
            left_out.append(LeftOut(words, why))
    environment, more = _environment(settings, case, cuda_compatibility)
    return ServeCommand(tuple(args), environment, (*left_out, *more))


def _options(settings: Settings, case: Case, tensor_parallel: int) -> tuple[Option, ...]:
    engine, shape, model = settings.engine, case.shape, case.model
    manifest = f"the manifest of {model.name} (config/models)"
    made = [
        Option("served-model-name", engine.served_model_name, "engine.served_model_name", essential=True),
        Option("tensor-parallel-size", tensor_parallel, "engine.tensor_parallel", essential=True),
        *([Option("enable-expert-parallel", True, "engine.tensor_parallel", essential=True)] * (tensor_parallel > 1)),
        *(Option(name, value, manifest, essential=True) for name, value in model.serve.flags.items()),
        Option("max-model-len", shape.max_model_len, "engine.max_model_len", essential=True),
        Option("max-num-seqs", shape.max_num_seqs, "engine.max_num_seqs", essential=True),
        Option("max-num-batched-tokens", shape.max_num_batched_tokens, "engine.preset", essential=True),
        Option("gpu-memory-utilization", shape.utilization, "engine.gpu_memory_utilization", essential=True),
        Option("shutdown-timeout", ceil(engine.drain_s), "engine.drain_s", essential=True),
        Option("max-num-queued-reqs", QUEUE_FACTOR * shape.max_num_seqs, "engine.max_num_seqs"),
        Option("disable-fastapi-docs", True, "the bundle"),
        Option("fail-on-environ-validation", True, "the bundle"),
        Option("enable-request-id-headers", True, "the bundle"),
        Option("disable-access-log-for-endpoints", "/health,/metrics", "the bundle"),
        Option("host", _ANYWHERE, "the bundle", essential=True),
        Option("port", wiring.ENGINE_PORT, "the bundle", essential=True),
    ]
    if shape.speculation and model.speculation:
        made.append(Option("speculative-config", model.speculation.config, "engine.speculation", essential=True))
    return tuple(made)


def _environment(
    settings: Settings, case: Case, cuda_compatibility: bool
) -> tuple[Mapping[str, str], Sequence[LeftOut]]:
    """Every cache lies in one volume: a second start finds its kernels compiled."""
    wanted = {
        "HOME": wiring.CACHE_HOME,
        "USER": "flashbox",  # the uid has no entry in the image's list of users
        "XDG_CACHE_HOME": f"{wiring.CACHE_HOME}/.cache",
        "VLLM_CACHE_ROOT": f"{wiring.CACHE_HOME}/.cache/vllm",
        "TRITON_CACHE_DIR": f"{wiring.CACHE_HOME}/.triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{wiring.CACHE_HOME}/torchinductor",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # as nvidia-smi counts
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENGINE_READY_TIMEOUT_S": str(ceil(kinds.start_timeout_s(settings))),
    }
    if cuda_compatibility:
        wanted[case.engines.compatibility.variable] = "1"
    variables = case.engines.variables_of(case.release.version)
    reasons = {name: variables.why_not(name) for name in wanted if name.startswith("VLLM_")}
    left_out = [LeftOut((f"{name}={wanted[name]}",), why) for name, why in reasons.items() if why]
    return {name: value for name, value in wanted.items() if not reasons.get(name)}, left_out
