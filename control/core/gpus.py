"""The GPUs of one machine, as they were seen once. `None` = could not be learnt, never zero and never "no"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

Links = Mapping[int, Mapping[int, str]]  # GPU index -> GPU index -> NV18, SYS, PXB, ...


@dataclass(frozen=True)
class GpuProcess:
    """A process that computes on a GPU. `replica` is set when it runs in a container of this project."""

    pid: int | None
    name: str | None
    memory_mib: int | None
    replica: str | None = None

    def __str__(self) -> str:
        who = self.name or "a process without a name"
        pid = "an unknown process id" if self.pid is None else f"process {self.pid}"
        return f"{who} ({pid})" if self.memory_mib is None else f"{who} ({pid}, {self.memory_mib} MiB)"


@dataclass(frozen=True)
class Gpu:
    """One GPU. Sizes as nvidia-smi counts them: total = reserved + used + free."""

    index: int | None = None
    name: str | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    pci_device_id: str | None = None
    capability: str | None = None
    memory_total_mib: int | None = None
    memory_reserved_mib: int | None = None
    memory_used_mib: int | None = None
    memory_free_mib: int | None = None
    mig: bool | None = None
    display_active: bool | None = None
    recovery_action: str | None = None
    fault: str | None = None
    unreadable: str | None = None  # why cells are missing: "Insufficient Permissions"
    numa: int | None = None
    processes: tuple[GpuProcess, ...] | None = None

    @property
    def label(self) -> str:
        """How people call it: `GPU 3`."""
        return f"GPU {self.index}" if self.index is not None else f"GPU {self.uuid or self.pci_bus_id or 'unknown'}"

    @property
    def known_reserved_mib(self) -> int | None:
        """What the driver keeps, as told or as the rest of the sum; None when neither can be had."""
        if self.memory_reserved_mib is not None:
            return self.memory_reserved_mib
        if self.memory_total_mib is None or self.memory_used_mib is None or self.memory_free_mib is None:
            return None
        return max(0, self.memory_total_mib - self.memory_used_mib - self.memory_free_mib)


@dataclass(frozen=True)
class Inventory:
    """What a machine said about its GPUs; gpus is None when it could not be asked and () when it has none."""

    gpus: tuple[Gpu, ...] | None = None
    driver: str | None = None
    cuda: str | None = None  # the newest CUDA the driver runs, as nvidia-smi prints it
    links: Links | None = None
    lost: tuple[str, ...] = ()  # sentences about GPUs that fell off the bus
    problem: str | None = None  # why the question was not answered
    expected: int | None = None  # how many GPUs this machine should have
    warnings: tuple[str, ...] = field(default=())

    @property
    def driver_branch(self) -> int | None:
        """580 of 580.159.04."""
        first = (self.driver or "").partition(".")[0]
        return int(first) if first.isdigit() else None

    @property
    def busy(self) -> bool:
        """Does any process compute on a GPU?"""
        return any(gpu.processes for gpu in self.gpus or ())

    def owned(self, replica_of: Mapping[int, str]) -> Inventory:
        """The same machine, with the replica of this project named at each process that is in its container."""
        if self.gpus is None:
            return self
        return replace(self, gpus=tuple(_owned(gpu, replica_of) for gpu in self.gpus))


def _owned(gpu: Gpu, replica_of: Mapping[int, str]) -> Gpu:
    if gpu.processes is None:
        return gpu
    named = (replace(one, replica=replica_of.get(one.pid or 0, one.replica)) for one in gpu.processes)
    return replace(gpu, processes=tuple(named))
