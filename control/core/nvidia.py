"""What nvidia-smi prints, read without trust: cell by cell, row by row; the table for people is never parsed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from control.core.gpus import Gpu, GpuProcess

EVERYTHING = ("nvidia-smi", "-q", "-x")
CAPABILITIES = ("nvidia-smi", "--query-gpu=index,uuid,compute_cap", "--format=csv")
TOPOLOGY = ("nvidia-smi", "topo", "-m")
TIME_LIMIT_S = 15.0  # a healthy driver may take 3-8 s; a wedged one never answers

_BRACKETS = re.compile(r"\[(.*)\]|(N/A|ERR!|Not Supported)")
_UNIT = re.compile(r"^(-?\d+(?:\.\d+)?) (?:MiB|%|W|MHz|C)$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NUMBER = re.compile(r"\d+")
_OTHER_NAMES = {"gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id", "used_gpu_memory": "used_memory"}


@dataclass(frozen=True)
class Cell:
    """A value, or why there is none: the text between the brackets."""

    value: str | None
    missing: str | None = None

    @property
    def whole(self) -> int | None:
        """The value as a count; a blank after a number starts a unit."""
        number = _UNIT.match(self.value or "")
        text = number[1] if number else self.value or ""
        return int(text) if text.isascii() and text.isdigit() else None


@dataclass(frozen=True)
class Table:
    """Rows by column name, and the lines that are no rows: nvidia-smi says important things in sentences."""

    rows: tuple[Mapping[str, Cell], ...] = ()
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failure:
    """Why nvidia-smi gave no answer: an id, a sentence, the fix."""

    id: str
    what: str
    fix: str


_FAILURES = (
    (
        re.compile(r"driver/library version mismatch", re.I),
        Failure(
            "driver-mismatch",
            "The NVIDIA driver was updated and the loaded kernel module is still the old one",
            "Reboot, or reload the module when no process uses a GPU; then hold the driver packages.",
        ),
    ),
    (
        re.compile(r"couldn't communicate with the NVIDIA driver|driver is not loaded", re.I),
        Failure(
            "driver-absent",
            "No NVIDIA driver is loaded: its module was not built for the running kernel, or nouveau holds the card",
            "Build the module for this kernel (`uname -r`, dkms status) and turn nouveau off.",
        ),
    ),
    (
        re.compile(r"no devices were found", re.I),
        Failure(
            "no-devices",
            "The driver is loaded and no GPU came up",
            "Read `dmesg | grep -i nvrm`: module flavour, BIOS settings, or device nodes that were not made.",
        ),
    ),
    (
        re.compile(r"is not a valid field to query", re.I),
        Failure("old-field", "This driver does not know a field that was asked for", "Update the NVIDIA driver."),
    ),
)
WEDGED = Failure(
    "driver-wedged",
    "nvidia-smi does not answer: the driver is wedged",
    "Read `dmesg | grep -i xid`; a reboot is the usual cure.",
)


def failure(out: str, err: str, code: int | None) -> Failure | None:
    """What the two streams and the exit status say; None for a plain answer. `code` None = ended by a time limit."""
    if code is None:
        return WEDGED
    text = f"{out}\n{err}"
    named = next((known for pattern, known in _FAILURES if pattern.search(text)), None)
    if named is not None or code == 0 or _has_rows(out):
        return named
    first = next((line.strip() for line in text.splitlines() if line.strip()), f"exit status {code}")
    return Failure("unknown", f"nvidia-smi failed: {first}", "Run nvidia-smi by hand and read its first lines.")


def _has_rows(out: str) -> bool:
    return any(re.match(r"\s*(\d+, |<gpu )", line) for line in out.splitlines())


def cell(text: str) -> Cell:
    """One rule for every spelling of "no value"."""
    text = text.strip()
    bracket = _BRACKETS.fullmatch(text)
    if bracket:
        return Cell(None, bracket[1] if bracket[1] is not None else bracket[2])
    return Cell(text or None, None if text else "empty")


def table(text: str, columns: Sequence[str] = ()) -> Table:
    """A CSV answer. Without `columns` its first line with commas names them, as `--format=csv` prints it."""
    names = [_column(name) for name in columns]
    rows, sentences = [], []
    for line in text.splitlines():
        cells = [cell(part) for part in line.split(",")]
        if not line.strip():
            continue
        if not names and len(cells) > 1:
            names = [_column(part) for part in line.split(",")]
        elif len(cells) == len(names) and _is_row(cells, names):
            rows.append(dict(zip(names, cells, strict=True)))
        elif [_column(part) for part in line.split(",")] != names:
            sentences.append(line.strip())
    return Table(tuple(rows), tuple(sentences))


def _column(name: str) -> str:
    bare = name.partition("[")[0].strip()
    return _OTHER_NAMES.get(bare, bare)


def _is_row(cells: Sequence[Cell], names: Sequence[str]) -> bool:
    by_name = dict(zip(names, cells, strict=True))
    if "index" in by_name:
        return by_name["index"].whole is not None
    if "uuid" in by_name:
        return (by_name["uuid"].value or "").startswith(("GPU-", "MIG-"))
    return all(c.value is None or c.whole is not None for c in cells)


@dataclass(frozen=True)
class Seen:
    """GPUs of a CSV answer and what was said besides."""

    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    lost: tuple[str, ...] = ()
    warnings: tuple[str, ...] = field(default=())


def gpus(text: str, columns: Sequence[str] = ()) -> Seen:
    """GPUs from a `--query-gpu` answer; a GPU with unknown cells stays a GPU."""
    answer = table(text, columns)
    drivers = [row["driver_version"].value for row in answer.rows if "driver_version" in row]
    return Seen(
        gpus=tuple(_gpu(row) for row in answer.rows),
        driver=next((driver for driver in drivers if driver), None),
        lost=tuple(line for line in answer.sentences if "lost" in line.lower()),
        warnings=tuple(warning for row in answer.rows for warning in _warnings(row)),
    )


def _gpu(row: Mapping[str, Cell]) -> Gpu:
    def text(name: str) -> str | None:
        return row[name].value if name in row else None

    def count(name: str) -> int | None:
        return row[name].whole if name in row else None

    reasons = [row[name].missing for name in ("memory.total", "memory.used") if name in row]
    return Gpu(
        index=count("index"),
        name=text("name"),
        uuid=text("uuid"),
        pci_bus_id=text("pci.bus_id"),
        pci_device_id=text("pci.device_id"),
        capability=text("compute_cap"),
        memory_total_mib=count("memory.total"),
        memory_reserved_mib=count("memory.reserved"),
        memory_used_mib=count("memory.used"),
        memory_free_mib=count("memory.free"),
        mig=switch(text("mig.mode.current")),
        display_active=switch(text("display_active")),
        recovery_action=text("gpu_recovery_action"),
        fault=fault_of([c.missing for c in row.values()]),
        unreadable=next((reason for reason in reasons if reason), None),
    )


def switch(value: str | None) -> bool | None:
    """Enabled and Disabled, On and Off, Yes and No; anything else is unknown."""
    known = {"enabled": True, "on": True, "yes": True, "disabled": False, "off": False, "no": False}
    return known.get((value or "").strip().lower())


def fault_of(missing: Sequence[str | None]) -> str | None:
    """A GPU that asks for a reset is out; so is one whose every cell is ERR!."""
    reset = next((why for why in missing if why and "reset" in why.lower()), None)
    if reset:
        return reset
    return "ERR! in every field" if missing and all(why == "ERR!" for why in missing) else None


def _warnings(row: Mapping[str, Cell]) -> list[str]:
    odd = [name for name, c in row.items() if c.missing in ("Unknown Error", "ERR!")]
    return [f"GPU {row['index'].value if 'index' in row else '?'}: {name} could not be read" for name in odd]


def processes(text: str, columns: Sequence[str] = ()) -> dict[str, tuple[GpuProcess, ...]]:
    """GPU UUID -> processes, from a `--query-compute-apps=gpu_uuid,pid,process_name,used_memory` answer."""
    running: dict[str, tuple[GpuProcess, ...]] = {}
    for row in table(text, columns).rows:
        uuid = row["uuid"].value or ""
        one = GpuProcess(row["pid"].whole, row["process_name"].value, row["used_memory"].whole)
        running[uuid] = (*running.get(uuid, ()), one)
    return running


@dataclass(frozen=True)
class Topology:
    """Which GPUs share a link, and the NUMA node of each."""

    links: Mapping[int, Mapping[int, str]]
    numa: Mapping[int, int]


def topology(text: str) -> Topology:
    """`topo -m`: only the cells GPU x GPU; network cards, legends, colours and missing columns do no harm."""
    lines = _COLOUR.sub("", text).splitlines()
    header = next((line for line in lines if re.match(r"\s+GPU\d", line)), "")
    across = [int(number) for number in re.findall(r"\bGPU(\d+)\b", header)]
    names = [name.strip() for name in header.split("\t")]
    links: dict[int, dict[int, str]] = {}
    numa: dict[int, int] = {}
    for line in lines:
        row = re.match(r"GPU(\d+)\b(.*)", line)
        if not row or not across:
            continue
        here = int(row[1])
        links[here] = {there: link for there, link in zip(across, row[2].split(), strict=False) if there != here}
        cells = line.split("\t")
        place = names.index("NUMA Affinity") if "NUMA Affinity" in names else len(cells)
        if place < len(cells) and _NUMBER.fullmatch(cells[place].strip()):
            numa[here] = int(cells[place])
    return Topology(links, numa)
