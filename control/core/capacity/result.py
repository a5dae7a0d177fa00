"""What the planner returns: replicas with their GPUs, the sum, and everything that was noticed on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from control.core.capacity.case import Case
    from control.core.capacity.choose import Candidate, Unusable
    from control.core.capacity.memory import Budget, Held
    from control.core.facts.engines import Build
    from control.core.gpus import Inventory
    from control.core.serve import ServeCommand


@dataclass(frozen=True)
class Note:
    """Something to know before `up`: an id for programs, a sentence for people, the cure, the source."""

    id: str
    severity: Literal["warn", "info"]
    text: str
    fix: str = ""
    source: str = ""


@dataclass(frozen=True)
class GpuReplica:
    """One slot. Its GPUs are reserved by UUID and belong to no other slot."""

    slot: int
    members: tuple[Candidate, ...]
    crossings: tuple[str, ...] = ()  # pairs without NVLink

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(one.gpu.uuid or "" for one in self.members)

    @property
    def labels(self) -> str:
        return ", ".join(one.gpu.label.removeprefix("GPU ") for one in self.members)


@dataclass(frozen=True)
class GpuPlan:
    """The capacity plan of one machine."""

    case: Case
    inventory: Inventory
    build: Build
    cuda_compatibility: bool
    kind: str
    product: str | None  # id in config/hardware.yaml
    tensor_parallel: int
    replicas: tuple[GpuReplica, ...]
    budget: Budget
    tried: tuple[Budget, ...]  # smaller TP that did not fit, and the one that does
    held: tuple[Held, ...]
    seats_fill_up_to: int
    spare: tuple[Candidate, ...]  # can serve and are in no replica
    unusable: tuple[Unusable, ...]
    notes: tuple[Note, ...]
    serve: ServeCommand

    @property
    def expert_parallel(self) -> bool:
        return self.tensor_parallel > 1

    @property
    def warnings(self) -> tuple[Note, ...]:
        return tuple(note for note in self.notes if note.severity == "warn")
