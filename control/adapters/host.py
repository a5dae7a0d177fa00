"""Looks at the machine once. What could not be learnt is `None`; a hanging command has a time limit.

What only the Docker daemon knows is added by `dockerd.Dockerd.complete`.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import shutil
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from control.adapters.shell import Shell
from control.core import nvidia, nvidia_xml
from control.core.gpus import Inventory
from control.core.model import Host, PortUse

T = TypeVar("T")
LISTEN = "0A"  # the state in /proc/net/tcp
WRITTEN = (".", "config", "run", "secrets")  # folders of the clone that commands write


def probe(
    root: Path,
    shell: Shell,
    proc: Path = Path("/proc"),
    etc: Path = Path("/etc"),
    ask_gpus: bool = True,
    bind: str | None = None,
) -> Host:
    """One snapshot. Touches nothing and is safe on a busy production host. GPUs take seconds to ask."""
    return Host(
        os=_learn(lambda: _os_name(etc)),
        clone_dir=os.path.realpath(root),
        cpus=_learn(lambda: len(os.sched_getaffinity(0))),
        memory_bytes=_learn(lambda: _memory(proc)),
        euid=os.geteuid(),
        cgroup_version=_learn(_cgroup_version),
        compose_version=_version(shell, ("docker", "compose", "version", "--short")),
        buildx_version=_version(shell, ("docker", "buildx", "version")),
        disk_free_bytes={str(root): _learn(lambda: shutil.disk_usage(root).free)},
        ports=_learn(lambda: listeners(proc)),
        bindable=None if bind is None else _learn(lambda: can_bind(bind)),
        subnets=_learn(lambda: _subnets(proc)),
        inventory=_inventory(shell, proc) if ask_gpus else Inventory(),
        unwritable=tuple(name for name in WRITTEN if not _writable(root / name)),
    )


def _learn(look: Callable[[], T]) -> T | None:
    try:
        return look()
    except (OSError, ValueError, LookupError):
        return None


def can_bind(address: str) -> bool:
    """Is it an address of this host? A free port is asked for, so that nobody is in the way."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.bind((address, 0))
    except OSError as refused:
        if refused.errno == errno.EADDRNOTAVAIL:
            return False
        raise
    return True


def _os_name(etc: Path) -> str:
    lines = (etc / "os-release").read_text(encoding="utf-8").splitlines()
    return next(line.partition("=")[2].strip('"') for line in lines if line.startswith("PRETTY_NAME="))


def _memory(proc: Path) -> int:
    lines = (proc / "meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:"))


def _cgroup_version() -> str | None:
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        return "2"
    return "1" if Path("/sys/fs/cgroup/memory").exists() else None


def _version(shell: Shell, args: Sequence[str]) -> str | None:
    """The first word of the answer that looks like a version: `2.40.3` of `v2.40.3`, `0.13.1` of buildx's sentence."""
    done = shell.probe(args)
    words = done.out.split() if done.ok else []
    return next((word.lstrip("v") for word in words if word.lstrip("v")[:1].isdigit()), None)


def _inventory(shell: Shell, proc: Path) -> Inventory:
    """The GPUs as nvidia-smi tells them; a driver that does not answer is asked once."""
    done = shell.probe(nvidia.EVERYTHING, timeout_s=nvidia.TIME_LIMIT_S)
    if done.code is None and not done.timed_out:
        return _without_tool(done.err, (proc / "driver/nvidia").exists())
    everything = nvidia_xml.Answer(done.out, done.err, done.code)
    if nvidia.failure(done.out, done.err, done.code):
        return nvidia_xml.inventory(everything, _SILENCE, _SILENCE)
    return nvidia_xml.inventory(everything, _answer(shell, nvidia.CAPABILITIES), _answer(shell, nvidia.TOPOLOGY))


_SILENCE = nvidia_xml.Answer("", code=None)


def _answer(shell: Shell, args: Sequence[str]) -> nvidia_xml.Answer:
    done = shell.probe(args, timeout_s=nvidia.TIME_LIMIT_S)
    return nvidia_xml.Answer(done.out, done.err, done.code)


def _without_tool(why: str, driver_loaded: bool) -> Inventory:
    """No tool and no driver: no GPU. A driver whose tool is missing is something else."""
    if driver_loaded:
        return Inventory(problem=f"An NVIDIA driver is loaded and nvidia-smi cannot be run ({why}); install it.")
    return Inventory(gpus=(), problem="nvidia-smi is not there and no NVIDIA driver is loaded.")


def _writable(folder: Path) -> bool:
    """Could a file be made there? A folder that is missing is made, so its nearest parent counts."""
    while not folder.exists():
        folder = folder.parent
    return os.access(folder, os.W_OK | os.X_OK)


def _subnets(proc: Path) -> dict[str, str]:
    """IPv4 networks that this machine routes to, without the default route."""
    found: dict[str, str] = {}
    for line in (proc / "net/route").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        address, mask = (socket.inet_ntoa(struct.pack("<L", int(fields[i], 16))) for i in (1, 7))
        if mask != "0.0.0.0":
            found[str(ipaddress.IPv4Network(f"{address}/{mask}", strict=False))] = f"interface {fields[0]}"
    return found


def listeners(proc: Path) -> tuple[PortUse, ...]:
    """Every TCP port somebody listens on, with the process that does, as far as we may see it."""
    found = [(address, port, inode) for name in ("tcp", "tcp6") for address, port, inode in _listening(proc, name)]
    holders = _holders(proc, {inode for _, _, inode in found})
    return tuple(PortUse(address, port, holders.get(inode)) for address, port, inode in found)


def _listening(proc: Path, name: str) -> Iterator[tuple[str, int, str]]:
    with suppress(FileNotFoundError):  # no IPv6
        for line in (proc / "net" / name).read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN:
                address, _, port = fields[1].partition(":")
                yield _address(address), int(port, 16), fields[9]


def _address(text: str) -> str:
    """The kernel writes addresses as hexadecimal words in the machine's own byte order."""
    raw = b"".join(struct.pack("=L", int(text[i : i + 8], 16)) for i in range(0, len(text), 8))
    return str(ipaddress.ip_address(raw))


def _holders(proc: Path, inodes: set[str]) -> dict[str, str]:
    """Socket inode -> `name (process 12)`. Other users' processes are closed to us unless we are root."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[str, str] = {}
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):
            for entry in (folder / "fd").iterdir():
                with suppress(OSError):
                    inode = wanted.get(os.readlink(entry))
                    if inode is not None and inode not in found:
                        name = (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
                        found[inode] = f"{name} (process {folder.name})"
    return found
