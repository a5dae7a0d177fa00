"""A small nvidia-smi, first in PATH: it prints what a case of the field says, and notes what it was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from control.adapters import host
from control.adapters.shell import Shell
from control.core.gpus import Inventory

SCRIPT = """#!/bin/sh
echo "$*" >> "{folder}/asked"
echo $$ > "{folder}/pid"
case "$*" in
  "-q -x") name=everything ;;
  "topo -m") name=topology ;;
  *) name=capabilities ;;
esac
[ -f "{folder}/$name.sh" ] && exec sh "{folder}/$name.sh"
cat "{folder}/$name.err" >&2 2>/dev/null
cat "{folder}/$name" 2>/dev/null
exit "$(cat "{folder}/$name.code" 2>/dev/null || echo 0)"
"""
XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<driver_version>{driver}</driver_version>
	<cuda_version>{cuda}</cuda_version>
	<attached_gpus>{count}</attached_gpus>
{gpus}</nvidia_smi_log>
"""
H100 = "NVIDIA H100 80GB HBM3"


@dataclass
class FakeSmi:
    """One machine with this tool."""

    folder: Path

    def says(self, name: str, out: str = "", err: str = "", code: int = 0) -> None:
        """`name`: everything, capabilities or topology."""
        (self.folder / name).write_text(out, encoding="utf-8")
        (self.folder / f"{name}.err").write_text(err, encoding="utf-8")
        (self.folder / f"{name}.code").write_text(str(code), encoding="utf-8")

    def does(self, name: str, script: str) -> None:
        (self.folder / f"{name}.sh").write_text(script, encoding="utf-8")

    @property
    def asked(self) -> list[str]:
        return (self.folder / "asked").read_text(encoding="utf-8").splitlines()

    @property
    def last_pid(self) -> int:
        return int((self.folder / "pid").read_text(encoding="ascii"))

    def inventory(self) -> Inventory:
        """What the probe makes of it."""
        shell = Shell(self.folder, {"PATH": f"{self.folder}/bin:/usr/bin:/bin"})
        return host.probe(self.folder, shell).inventory


def installed(folder: Path) -> FakeSmi:
    tool = folder / "bin/nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(SCRIPT.format(folder=folder), encoding="utf-8")
    tool.chmod(0o755)
    return FakeSmi(folder)


def xml(gpus: Sequence[Mapping[str, object]], driver: str = "580.82.07", cuda: str = "13.0") -> str:
    """`nvidia-smi -q -x` of these GPUs: names are those of `--query-gpu`, cells as they stand there."""
    return XML.format(driver=driver, cuda=cuda, count=len(gpus), gpus="".join(map(_gpu, gpus)))


def _gpu(cells: Mapping[str, object]) -> str:
    def text(name: str, default: str = "") -> str:
        return escape(str(cells.get(name, default)).strip("[]"))

    def size(name: str, default: str) -> str:
        value = text(name, default)
        return f"{value} MiB" if value.isdigit() else value

    bus = text("pci.bus_id", f"00000000:{int(str(cells.get('index', 0))):02X}:00.0")
    return f"""	<gpu id="{bus}">
		<product_name>{text("name", H100)}</product_name>
		<display_active>{text("display_active", "Disabled")}</display_active>
		<mig_mode><current_mig>{text("mig.mode.current", "Disabled")}</current_mig></mig_mode>
		<uuid>{text("uuid", f"GPU-{cells.get('index', 0)}")}</uuid>
		<gpu_recovery_action>{text("gpu_recovery_action", "None")}</gpu_recovery_action>
		<pci><pci_device_id>{text("pci.device_id")}</pci_device_id><pci_bus_id>{bus}</pci_bus_id></pci>
		<fb_memory_usage>
			<total>{size("memory.total", "81559")}</total>
			<used>{size("memory.used", "0")}</used>
			<free>{size("memory.free", "")}</free>
		</fb_memory_usage>
		<processes>{cells.get("processes", "")}</processes>
	</gpu>
"""


def process(pid: int, name: str, memory: str) -> str:
    """One process that computes."""
    return (
        f"<process_info><pid>{pid}</pid><type>C</type><process_name>{escape(name)}</process_name>"
        f"<used_memory>{memory} MiB</used_memory></process_info>"
    )
