"""GPUs by product: config/hardware.yaml."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from control.core.facts.base import Capability, Group, Sourced, Word

Mib = Annotated[int, Field(ge=1, le=10_000_000)]


class GpuFacts(Sourced):
    """One product."""

    id: Word
    names: list[str] = Field(min_length=1)
    pci_device_id: str | None = Field(pattern=r"^0x[0-9A-F]{8}$")
    capability: Capability
    memory_mib: Mib
    reserved_mib: Mib | None
    bandwidth_gb_s: int | None = Field(ge=1, le=1_000_000)
    sm_count: int | None = Field(ge=1, le=10_000)
    nvlink: Literal["switch", "bridge", "none"]
    fabric_manager: bool


class ReservedAllowance(Sourced):
    """What the driver keeps of a GPU's memory where nobody tells."""

    mib: Mib


class HardwareFacts(Group):
    """All products."""

    reserved_allowance: ReservedAllowance
    gpus: list[GpuFacts] = Field(min_length=1)

    def find(self, name: str | None, pci_device_id: str | None) -> GpuFacts | None:
        """By device id, else by full name; a part of a name or an amount of memory decides nothing."""
        wanted = normal_device_id(pci_device_id)
        by_id = next((g for g in self.gpus if wanted and g.pci_device_id == wanted), None)
        return by_id or next((g for g in self.gpus if name is not None and name.strip() in g.names), None)


def normal_device_id(text: str | None) -> str | None:
    """`233510DE` and `0x233510de` are the same device."""
    digits = (text or "").strip().upper().removeprefix("0X")
    return f"0x{digits}" if len(digits) == 8 else None
