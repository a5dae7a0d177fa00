"""What a kind of engine needs where a setting is left to us."""

from __future__ import annotations

from control.core.model import Plan
from control.core.settings import Settings

STUB_SEATS = 64
CPU_SEATS = 16
CPU_CONTEXT = 8192  # tokens of one request; a token of the tiny model is a byte
# Of one replica: a stub took 45 MiB with 2,000 streams, vLLM 0.26.0 with the tiny model 1.4 GiB (all its processes).
_MEMORY_MIB = {"stub": 512, "cpu": 3072}
_CPUS = {"stub": 1.0}
# A start with empty caches took 997 s on one GPU and 6 layers, warm-up after it 6 to 9 minutes (engine 0.26.0).
_START_S = {"gpu": 3600.0, "cpu": 1800.0, "stub": 120.0}


def start_timeout_s(settings: Settings) -> float:
    """engine.start_timeout_s, or what the kind needs with room to spare; a stub also pretends to load."""
    asked, kind = settings.engine.start_timeout_s, settings.engine.kind
    if asked is not None:
        return asked
    return _START_S[kind] + (settings.stub.load_s if kind == "stub" else 0.0)


def seats(settings: Settings, plan: Plan | None = None) -> int:
    """Requests that one replica runs at the same time; of kind gpu the plan knows."""
    if plan is not None and plan.gpu is not None:
        return plan.gpu.case.shape.max_num_seqs
    return settings.engine.max_num_seqs or (CPU_SEATS if settings.engine.kind == "cpu" else STUB_SEATS)


def context(settings: Settings) -> int:
    """Tokens of one request, prompt and answer, as the engine of this kind takes them."""
    asked = settings.engine.max_model_len
    return min(asked, CPU_CONTEXT) if settings.engine.kind == "cpu" else asked


def memory_mib(settings: Settings) -> int | None:
    """engine.memory_mib, or what the kind needs with room to spare; None: no limit."""
    return settings.engine.memory_mib or _MEMORY_MIB.get(settings.engine.kind)


def cpus(settings: Settings) -> float | None:
    """engine.cpus, or the kind's share; None: no limit."""
    return settings.engine.cpus or _CPUS.get(settings.engine.kind)
