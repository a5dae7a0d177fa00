"""A machine described in JSON: what `plan --host FILE` reads, and what a probe can write down.

Any value may be null or left out: a hole is something that could not be learnt. A value that cannot be is refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from control.core.complaints import found
from control.core.encoding import SAVE_AS_UTF8, looks_like_utf16
from control.core.errors import UsageError
from control.core.facts import words
from control.core.gpus import Gpu, GpuProcess, Inventory

FORMAT = 1
Mib = Annotated[int, Field(ge=0, le=10_000_000)]
Index = Annotated[int, Field(ge=0, le=255)]
Text = Annotated[str, Field(max_length=400)]
_WHY = "A snapshot may have holes (null), but what it does say must be possible."
_FIX = "Correct the value, or write null for what is not known."


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class _Process(_Closed):
    pid: int | None = Field(None, ge=0)
    name: Text | None = None
    memory_mib: Mib | None = None
    replica: Text | None = None


class _Gpu(_Closed):
    index: Index | None = None
    name: Text | None = None
    uuid: Text | None = None
    pci_bus_id: Text | None = None
    pci_device_id: Text | None = None
    capability: str | None = Field(None, pattern=r"^\d{1,2}\.\d$")
    memory_total_mib: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    memory_reserved_mib: Mib | None = None
    memory_used_mib: Mib | None = None
    memory_free_mib: Mib | None = None
    mig: bool | None = None
    display_active: bool | None = None
    recovery_action: Text | None = None
    fault: Text | None = None
    unreadable: Text | None = None
    numa: Index | None = None
    processes: list[_Process] | None = None


class _Snapshot(_Closed):
    snapshot: int = Field(ge=FORMAT, le=FORMAT)
    name: Text = ""
    note: Text = ""
    driver: str | None = Field(None, pattern=r"^\d+(\.\d+)*$")
    cuda: str | None = Field(None, pattern=r"^\d+\.\d+$")
    expected: int | None = Field(None, ge=0, le=256)
    gpus: list[_Gpu] | None = None
    links: dict[str, dict[str, Text]] | None = None
    lost: list[Text] = []
    problem: Text | None = None
    warnings: list[Text] = []


@dataclass(frozen=True)
class Snapshot:
    """A named machine."""

    name: str
    note: str
    inventory: Inventory


def parse(text: str, path: str) -> Snapshot:
    """Read one snapshot; every complaint names the file, the path inside it, what was expected and what was found."""
    try:
        seen = _Snapshot.model_validate(_mapping(text, path))
    except ValidationError as error:
        raise UsageError("\n".join(words.of(error, _Snapshot, path)), _WHY, _FIX) from None
    wrong = [f"{path}: {line}" for line in (*_repeated(seen), *_impossible(seen), *_odd_links(seen))]
    if wrong:
        raise UsageError("\n".join(wrong), _WHY, _FIX)
    gpus = None if seen.gpus is None else tuple(_gpu(gpu) for gpu in seen.gpus)
    links = None if seen.links is None else {int(a): {int(b): v for b, v in to.items()} for a, to in seen.links.items()}
    inventory = Inventory(
        gpus=gpus,
        driver=seen.driver,
        cuda=seen.cuda,
        links=links,
        lost=tuple(seen.lost),
        problem=seen.problem,
        expected=seen.expected,
        warnings=tuple(seen.warnings),
    )
    return Snapshot(seen.name or path.rpartition("/")[2].removesuffix(".json"), seen.note, inventory)


def dump(name: str, inventory: Inventory, note: str = "") -> str:
    """The JSON text of a machine; `parse` reads it back to the same."""
    seen: dict[str, object] = {"snapshot": FORMAT, "name": name, "note": note}
    seen |= {key: value for key, value in asdict(inventory).items() if value is not None and value != ()}
    if inventory.gpus is not None:
        seen["gpus"] = [_without_holes(asdict(gpu)) for gpu in inventory.gpus]
    if inventory.links is not None:
        seen["links"] = {str(a): {str(b): link for b, link in to.items()} for a, to in inventory.links.items()}
    return json.dumps(seen, indent=1, ensure_ascii=False) + "\n"


def _without_holes(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _mapping(text: str, path: str) -> Mapping[str, object]:
    if looks_like_utf16(text):
        raise UsageError(f"{path}: this file is UTF-16, expected UTF-8", fix=SAVE_AS_UTF8)
    try:
        value = json.loads(text.removeprefix("\ufeff"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: expected JSON, found {str(error) or 'brackets without an end'}", fix=_FIX) from None
    if not isinstance(value, dict):
        raise UsageError(f"{path}: expected a JSON object with gpus, found {found(value)}", _WHY, _FIX)
    return value


def _no_constant(name: str) -> object:
    raise ValueError(f"{name}, which is no number")


def _gpu(seen: _Gpu) -> Gpu:
    values = {name: getattr(seen, name) for name in _Gpu.model_fields if name != "processes"}
    running = None if seen.processes is None else tuple(GpuProcess(**p.model_dump()) for p in seen.processes)
    return Gpu(**values, processes=running)


def _repeated(seen: _Snapshot) -> list[str]:
    lines = []
    for name in ("index", "uuid", "pci_bus_id"):
        values = Counter(getattr(gpu, name) for gpu in seen.gpus or [])
        lines += [f"gpus: {name} {v} is written {n} times" for v, n in values.items() if v is not None and n > 1]
    return lines


def _impossible(seen: _Snapshot) -> list[str]:
    lines = []
    for number, gpu in enumerate(seen.gpus or []):
        for name in ("memory_used_mib", "memory_free_mib", "memory_reserved_mib"):
            part, whole = getattr(gpu, name), gpu.memory_total_mib
            if part is not None and whole is not None and part > whole:
                lines.append(f"gpus[{number}].{name}: expected at most memory_total_mib {whole}, found {part}")
    return lines


def _odd_links(seen: _Snapshot) -> list[str]:
    keys = [a for a in seen.links or {}] + [b for to in (seen.links or {}).values() for b in to]
    odd = sorted({key for key in keys if not (key.isascii() and key.isdigit() and len(key) <= 3)})
    return [f"links: expected GPU indexes such as 0, found {found(key)}" for key in odd]
