"""`nvidia-smi -q -x`, and the inventory that its three answers make together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from xml.etree import ElementTree

from control.core import nvidia
from control.core.gpus import Gpu, GpuProcess, Inventory
from control.core.nvidia import cell, switch

_LOST_INDEX = re.compile(r"\bGPU(\d+)\b")


@dataclass(frozen=True)
class Answer:
    """What one call printed; code None = it was ended by the time limit, or never started."""

    out: str
    err: str = ""
    code: int | None = 0


def inventory(
    everything: Answer, capabilities: Answer, topology: Answer, replica_of: Mapping[int, str] | None = None
) -> Inventory:
    """One machine from the answers to EVERYTHING, CAPABILITIES and TOPOLOGY; the last two may be missing.

    `replica_of` names the replica of this project in whose container a process runs.
    """
    failure = nvidia.failure(everything.out, everything.err, everything.code)
    if failure is not None:
        none = () if failure.id == "no-devices" else None
        return Inventory(gpus=none, problem=f"{failure.what}. {failure.fix}")
    seen = from_xml(everything.out)
    if seen.gpus is None:
        return seen
    asked = nvidia.gpus(capabilities.out) if capabilities.code == 0 else nvidia.Seen()
    by_uuid = {gpu.uuid: gpu.capability for gpu in asked.gpus if gpu.uuid}
    places = nvidia.topology(topology.out) if topology.code == 0 else nvidia.Topology({}, {})
    gpus = tuple(
        replace(
            gpu,
            capability=gpu.capability or by_uuid.get(gpu.uuid or ""),
            numa=places.numa.get(gpu.index) if gpu.index is not None else None,
            processes=_ours(gpu.processes, replica_of or {}),
        )
        for gpu in seen.gpus
    )
    lost = tuple(dict.fromkeys((*seen.lost, *asked.lost)))
    return replace(seen, gpus=gpus, links=places.links or None, lost=lost)


def _ours(running: tuple[GpuProcess, ...] | None, replica_of: Mapping[int, str]) -> tuple[GpuProcess, ...] | None:
    if running is None:
        return None
    return tuple(replace(one, replica=replica_of.get(one.pid) if one.pid is not None else None) for one in running)


def from_xml(text: str) -> Inventory:
    """One machine as the XML tells it. Sentences before the XML are kept: they tell of lost GPUs."""
    start = max(text.find("<?xml"), 0)
    lost = tuple(line.strip() for line in text[:start].splitlines() if "lost" in line.lower())
    try:
        root = ElementTree.fromstring(text[start:])
    except ElementTree.ParseError as error:
        return Inventory(problem=f"`nvidia-smi -q -x` gave no XML: {error}", lost=lost)
    gone = {int(number) for line in lost for number in _LOST_INDEX.findall(line)}
    elements = root.findall("gpu")
    indexes = [i for i in range(len(elements) + len(gone) + 1) if i not in gone]
    return Inventory(
        gpus=tuple(_gpu(element, index) for element, index in zip(elements, indexes, strict=False)),
        driver=_text(root, "driver_version"),
        cuda=_text(root, "cuda_version"),
        lost=lost,
    )


def _text(element: ElementTree.Element, path: str) -> str | None:
    value = cell(element.findtext(path) or "").value
    return None if value == "None" and path != "gpu_recovery_action" else value


def _count(element: ElementTree.Element, path: str) -> int | None:
    return cell(element.findtext(path) or "").whole


def _no_count(element: ElementTree.Element, path: str) -> str | None:
    """Why there is no number: here words stand without brackets, such as `GPU requires reset`."""
    read = cell(element.findtext(path) or "")
    return read.missing if read.value is None else None if read.whole is not None else read.value


def _gpu(element: ElementTree.Element, index: int) -> Gpu:
    memory = [_no_count(element, f"fb_memory_usage/{name}") for name in ("total", "used")]
    return Gpu(
        index=index,
        name=_text(element, "product_name"),
        uuid=_text(element, "uuid"),
        pci_bus_id=_text(element, "pci/pci_bus_id") or element.get("id"),
        pci_device_id=_text(element, "pci/pci_device_id"),
        memory_total_mib=_count(element, "fb_memory_usage/total"),
        memory_reserved_mib=_count(element, "fb_memory_usage/reserved"),
        memory_used_mib=_count(element, "fb_memory_usage/used"),
        memory_free_mib=_count(element, "fb_memory_usage/free"),
        mig=switch(_text(element, "mig_mode/current_mig")),
        display_active=switch(_text(element, "display_active")),
        recovery_action=_text(element, "gpu_recovery_action"),
        fault=nvidia.fault_of([why for why in memory if why]),
        unreadable=next((why for why in memory if why and why != "empty"), None),
        processes=_processes(element),
    )


def _processes(element: ElementTree.Element) -> tuple[GpuProcess, ...] | None:
    """Processes that compute (type C or C+G); drawing ones (G) hold no memory worth naming."""
    group = element.find("processes")
    if group is None or cell((group.text or "").strip() or "x").missing is not None:
        return None
    return tuple(
        GpuProcess(_count(one, "pid"), _text(one, "process_name"), _count(one, "used_memory"))
        for one in group.findall("process_info")
        if "C" in (_text(one, "type") or "C")
    )
