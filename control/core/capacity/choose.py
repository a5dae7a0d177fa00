"""Which GPUs of a machine can serve, and why the others cannot. A reason for each, and never a guess."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from control.core.capacity.terms import GIB, MIB
from control.core.errors import UsageError
from control.core.facts.hardware import normal_device_id
from control.core.gpus import Gpu, GpuProcess, Inventory

if TYPE_CHECKING:
    from control.core.facts import Facts, GpuFacts, ModelFacts
    from control.core.settings import Engine

IDLE_MIB = 1024  # a GPU that nobody uses shows up to a few hundred MiB in use
_VIRTUAL = re.compile(r"-\d+(A|B|C|Q|CME|ME)\b")  # NVIDIA H100L-2-24C: a slice that a hypervisor hands out
_NO_ACTION = ("none", "n/a")


@dataclass(frozen=True)
class Candidate:
    """A GPU that can serve. `usable_bytes` is what CUDA sees of its memory."""

    gpu: Gpu
    product: GpuFacts | None
    usable_bytes: int

    @property
    def kind(self) -> str:
        """GPUs of one replica, and of all replicas, are of one kind."""
        return self.gpu.name or (self.product.names[0] if self.product else "unknown")


@dataclass(frozen=True)
class Unusable:
    """A GPU that is not planned on: an id for programs, a sentence for people."""

    gpu: Gpu
    id: str
    why: str


@dataclass(frozen=True)
class Choice:
    """All GPUs of the machine, sorted into two."""

    candidates: tuple[Candidate, ...]
    unusable: tuple[Unusable, ...]


@dataclass(frozen=True)
class _Look:
    """One GPU with all that decides about it."""

    gpu: Gpu
    product: GpuFacts | None
    model: ModelFacts
    engine: Engine
    reserved_mib: int
    context_bytes: int

    @property
    def usable_bytes(self) -> int:
        return max(0, (self.gpu.memory_total_mib or 0) - self.reserved_mib) * MIB

    @property
    def others(self) -> tuple[GpuProcess, ...]:
        """Processes that are not in a container of this project."""
        return tuple(one for one in self.gpu.processes or () if one.replica is None)

    @property
    def foreign_mib(self) -> int:
        """Memory in use that our own replicas do not account for."""
        ours = [one for one in self.gpu.processes or () if one.replica is not None]
        if any(one.memory_mib is None for one in ours):
            return 0  # ours hold an unknown part of it, and no other process is there
        return max(0, (self.gpu.memory_used_mib or 0) - sum(one.memory_mib or 0 for one in ours))


def choose(inventory: Inventory, facts: Facts, model: ModelFacts, engine: Engine) -> Choice:
    """Look at every GPU in the order of the machine."""
    gpus = inventory.gpus or ()
    _all_named_are_there(engine.gpu_uuids, gpus)
    candidates: list[Candidate] = []
    unusable: list[Unusable] = []
    for gpu in gpus:
        look = _look(gpu, facts, model, engine)
        reason = next(((id_, why) for id_, test in _TESTS if (why := test(look))), None)
        if reason is None and any(one.gpu.uuid == gpu.uuid for one in candidates):
            reason = ("uuid", "another GPU was reported with the same UUID")
        if reason is None:
            candidates.append(Candidate(gpu, look.product, look.usable_bytes))
        else:
            unusable.append(Unusable(gpu, *reason))
    return Choice(tuple(candidates), tuple(unusable))


def _look(gpu: Gpu, facts: Facts, model: ModelFacts, engine: Engine) -> _Look:
    product = facts.hardware.find(gpu.name, normal_device_id(gpu.pci_device_id))
    reserved = gpu.known_reserved_mib
    if reserved is None:
        reserved = product.reserved_mib if product else None
    if reserved is None:
        reserved = facts.hardware.reserved_allowance.mib
    return _Look(gpu, product, model, engine, reserved, round(facts.engines.memory.context_gib * GIB))


def _all_named_are_there(uuids: list[str], gpus: tuple[Gpu, ...]) -> None:
    here = {gpu.uuid for gpu in gpus}
    missing = [uuid for uuid in uuids if uuid not in here]
    doubled = sorted({uuid for uuid in uuids if uuids.count(uuid) > 1})
    wrong = [f"engine.gpu_uuids: expected the UUID of a GPU of this host, found {uuid!r}" for uuid in missing]
    wrong += [f"engine.gpu_uuids: {uuid} is written {uuids.count(uuid)} times; keep one" for uuid in doubled]
    if wrong:
        raise UsageError("\n".join(wrong), "GPUs are reserved by UUID, one id each.", "`nvidia-smi -L` prints them.")


def _faulty(look: _Look) -> str | None:
    return f"it reports a fault: {look.gpu.fault}" if look.gpu.fault else None


def _sick(look: _Look) -> str | None:
    action = look.gpu.recovery_action
    if action is None or action.strip().lower() in _NO_ACTION:
        return None
    return f"the driver asks for a recovery action first: {action}"


def _sliced(look: _Look) -> str | None:
    if _VIRTUAL.search(look.gpu.name or ""):
        return f"{look.gpu.name} is a slice of a GPU (vGPU), and the model needs whole ones"
    return None


def _too_old(look: _Look) -> str | None:
    needs = " or ".join(look.model.support.capabilities)
    capability = look.gpu.capability or (look.product.capability if look.product else None)
    if capability is None:
        product = look.gpu.name or "its product"
        return f"its compute capability could not be learnt and {product} is not in config/hardware.yaml"
    if capability in look.model.support.capabilities:
        return None
    return f"{look.gpu.name or 'it'} has compute capability {capability}, {look.model.name} needs {needs}"


def _mig(look: _Look) -> str | None:
    return (
        "MIG is on: no part of a GPU holds this model; turn it off with `nvidia-smi -mig 0`" if look.gpu.mig else None
    )


def _nameless(look: _Look) -> str | None:
    return None if look.gpu.uuid else "its UUID could not be read, and GPUs are reserved by UUID"


def _unreadable(look: _Look) -> str | None:
    gpu = look.gpu
    if gpu.memory_total_mib is not None and gpu.memory_used_mib is not None:
        return None
    what = "its memory" if gpu.memory_total_mib is None else "how much of its memory is in use"
    cause = f" ({gpu.unreadable})" if gpu.unreadable else ""
    return f"{what} could not be read{cause}: the reader lacks rights, MIG is on, or the GPU is ill"


def _drives_a_display(look: _Look) -> str | None:
    return "it drives a display" if look.gpu.display_active else None


def _not_named(look: _Look) -> str | None:
    named = look.engine.gpu_uuids
    return "engine.gpu_uuids does not name it" if named and look.gpu.uuid not in named else None


def _held(look: _Look) -> str | None:
    if look.others:
        return f"it is held by {', '.join(str(one) for one in look.others)}"
    if look.foreign_mib > IDLE_MIB:
        return f"{look.foreign_mib} MiB of it are in use, by no process that can be seen"
    return None


def _crowded(look: _Look) -> str | None:
    """The engine compares free memory with what it may take when it starts, its own context included."""
    free = look.usable_bytes - look.foreign_mib * MIB - look.context_bytes
    asked = int(look.usable_bytes * look.engine.gpu_memory_utilization)
    if asked <= free:
        return None
    share = max(0, int(free / max(1, look.usable_bytes) * 100)) / 100
    return (
        f"engine.gpu_memory_utilization {look.engine.gpu_memory_utilization:g} asks for {asked / GIB:.2f} GiB and "
        f"{max(0, free) / GIB:.2f} GiB are free at start; {share:g} or less would do"
    )


_TESTS: tuple[tuple[str, Callable[[_Look], str | None]], ...] = (
    ("fault", _faulty),
    ("recovery", _sick),
    ("vgpu", _sliced),
    ("capability", _too_old),
    ("mig", _mig),
    ("uuid", _nameless),
    ("memory", _unreadable),
    ("display", _drives_a_display),
    ("unlisted", _not_named),
    ("held", _held),
    ("crowded", _crowded),
)
