"""The GPUs of a machine, asked through a small nvidia-smi that says what people met in the field (group A)."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from control.adapters import host
from control.core import nvidia
from control.core.capacity.choose import choose
from control.core.gpus import Inventory
from tests.eventually import eventually
from tests.unit.adapters.fake_nvidia_smi import H100, FakeSmi, installed, process, xml
from tests.unit.capacity.world import answer, facts, settings

EIGHT = [{"index": n} for n in range(8)]


@pytest.fixture
def smi(tmp_path: Path) -> FakeSmi:
    return installed(tmp_path)


def rows(name: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """The lines of a case that are rows; a first line of headings is left out."""
    lines = [line for line in answer(name).splitlines() if line[:1].isdigit()]
    return [dict(zip(columns, cells, strict=True)) for cells in csv.reader(lines, skipinitialspace=True)]


def reasons(inventory: Inventory) -> dict[int | None, str]:
    """GPU index -> why it cannot serve."""
    made = choose(inventory, facts(), facts().model("deepseek-v4-flash"), settings().engine)
    return {one.gpu.index: one.why for one in made.unusable}


def asked(smi: FakeSmi, everything: str) -> Inventory:
    smi.says("everything", everything)
    return smi.inventory()


CAPACITY = ("index", "name", "uuid", "memory.total", "memory.used", "memory.free", "utilization.gpu", "driver_version")


def test_a01_an_unknown_cell_drops_no_gpu_a_slice_and_a_busy_one_are_told(smi: FakeSmi) -> None:
    seen = asked(smi, xml(rows("A01.txt", CAPACITY), driver="550.127.08", cuda="12.4"))
    assert [gpu.memory_total_mib for gpu in seen.gpus or ()] == [81559, None, 24576, 81559]
    assert (seen.driver, seen.cuda) == ("550.127.08", "12.4")
    why = reasons(seen)
    assert 0 not in why and "N/A" in why[1] and "slice" in why[2] and "78012 MiB" in why[3]


def test_a02_a_cell_without_rights_is_told_with_its_reason(smi: FakeSmi) -> None:
    columns = ("index", "name", "uuid", "memory.total", "memory.used", "utilization.gpu")
    cells = [{key: value.removesuffix(" MiB") for key, value in row.items()} for row in rows("A02.txt", columns)]
    why = reasons(asked(smi, xml(cells)))
    assert set(why) == {0} and "Insufficient Permissions" in why[0]


def test_a04_a_gpu_that_needs_a_reset_is_out_and_an_unknown_error_is_unknown(smi: FakeSmi) -> None:
    columns = ("index", "name", "memory.total", "memory.used", "power.draw", "temperature.gpu")
    seen = asked(smi, xml(rows("A04.txt", columns)))
    assert [gpu.fault for gpu in seen.gpus or ()] == [None, None, "GPU requires reset", None]
    why = reasons(seen)
    assert set(why) == {1, 2} and "Unknown Error" in why[1] and "requires reset" in why[2]


def test_a05_a_display_gpu_of_another_product_is_never_chosen(smi: FakeSmi) -> None:
    boxes = json.loads(answer("A05.json"))["nvidia_smi_L_in_PCI_order"]
    cells = [{**box, "memory.total": box["memory_total_mib"], "pci.bus_id": box["pci"]} for box in boxes]
    smi.says("capabilities", "index, uuid, compute_cap\n0, GPU-0, 12.0\n1, GPU-1, 9.0\n2, GPU-2, 9.0\n")
    why = reasons(asked(smi, xml(cells)))
    assert set(why) == {0} and "12.0" in why[0]


def test_a08_products_are_told_apart_by_device_id_and_ampere_is_refused(smi: FakeSmi) -> None:
    boxes = json.loads(answer("A08.json"))
    cells = [
        {
            "index": n,
            "name": box["name"],
            "memory.total": box["memory_total_mib"],
            "pci.device_id": (box["pci_device_id"] or "N/A").removeprefix("0x"),
        }
        for n, box in enumerate(boxes)
    ]
    why = reasons(asked(smi, xml(cells)))
    assert {boxes[n or 0]["name"] for n in why} == {"NVIDIA A800-SXM4-80GB", "NVIDIA A100-SXM4-80GB"}
    assert all("8.0" in text for text in why.values())


@pytest.mark.parametrize(
    ("case", "code", "words"),
    [
        ("A09.txt", 18, "kernel module is still the old one"),
        ("A10.txt", 9, "No NVIDIA driver is loaded"),
        ("A18.txt", 6, "no GPU came up"),
        ("A12.txt", 0, "gave no XML"),  # a table for people is never read
    ],
)
def test_a09_a10_a12_a18_no_answer_is_told_with_its_reason(smi: FakeSmi, case: str, code: int, words: str) -> None:
    smi.says("everything", answer(case), code=code)
    seen = smi.inventory()
    assert seen.gpus == (() if case == "A18.txt" else None)
    assert words in (seen.problem or "")


def test_a11_a_lost_gpu_is_named_and_the_others_keep_their_numbers(smi: FakeSmi) -> None:
    lost, *others = answer("A11.txt").splitlines()
    cells = [{"index": line.partition(",")[0]} for line in others]
    smi.says("everything", f"{lost}\n{xml(cells)}")
    seen = smi.inventory()
    assert [gpu.index for gpu in seen.gpus or ()] == [0, 1, 2, 3, 4, 5, 7]
    assert seen.lost == (lost,)


@pytest.mark.parametrize(("case", "linked"), [("A13.txt", True), ("A13-pcie.txt", False)])
def test_a13_links_and_numa_nodes_come_from_the_topology(smi: FakeSmi, case: str, linked: bool) -> None:
    smi.says("topology", answer(case))
    seen = asked(smi, xml(EIGHT))
    assert seen.links is not None and seen.links[0][1].startswith("NV") is linked
    assert (seen.gpus or ())[0].numa == 0


def test_a14_a_tool_that_never_answers_is_ended_and_asked_once(smi: FakeSmi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "TIME_LIMIT_S", 0.3)
    smi.does("everything", "printf '0, NVIDIA H100 80GB HBM3, '\nexec sleep 86400\n")
    seen = smi.inventory()
    assert seen.gpus is None and "wedged" in (seen.problem or "")
    assert smi.asked == ["-q -x"]
    eventually(lambda: not Path(f"/proc/{smi.last_pid}").exists(), within_s=5)


def test_a14_one_part_that_hangs_leaves_the_rest(smi: FakeSmi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "TIME_LIMIT_S", 1.0)
    smi.does("topology", "exec sleep 86400\n")
    seen = asked(smi, xml(EIGHT))
    assert len(seen.gpus or ()) == 8 and seen.links is None


def test_a16_a_gpu_that_asks_for_a_recovery_action_waits_for_it(smi: FakeSmi) -> None:
    why = reasons(asked(smi, xml(rows("A16.txt", ("index", "uuid", "memory.total", "gpu_recovery_action")))))
    assert set(why) == {1, 2, 3, 4} and "Drain P2P" in why[3]


def test_a17_memory_of_processes_without_a_name_or_a_container_is_held(smi: FakeSmi) -> None:
    lines = [line.partition(": ")[::2] for line in answer("A17.txt").splitlines()]
    gpus = [rest.split(", ") for kind, rest in lines if kind == "gpu"]
    apps = {uuid: (pid, name, used) for uuid, pid, name, used in (r.split(", ") for k, r in lines if k == "apps")}
    cells = [
        {
            "index": index, "uuid": uuid, "memory.total": total, "memory.used": used, "memory.free": free,
            "processes": process(int(apps[uuid][0]), apps[uuid][1], apps[uuid][2]),
        }
        for index, uuid, total, used, free, _ in gpus
    ]  # fmt: skip
    why = reasons(asked(smi, xml(cells)))
    assert "process 41207, 22300 MiB" in why[0] and "VLLM::Worker_TP1 (process 41208" in why[1]


def test_without_the_tool_there_is_no_gpu_unless_a_driver_is_loaded(tmp_path: Path) -> None:
    shell = host.Shell(tmp_path, {"PATH": "/nonexistent"})
    without = host.probe(tmp_path, shell, tmp_path / "proc").inventory
    assert without.gpus == () and "no NVIDIA driver" in (without.problem or "")
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    loaded = host.probe(tmp_path, shell, tmp_path / "proc").inventory
    assert loaded.gpus is None and "nvidia-smi cannot be run" in (loaded.problem or "")


def test_gpus_are_asked_only_when_somebody_wants_to_know(smi: FakeSmi, tmp_path: Path) -> None:
    shell = host.Shell(tmp_path, {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    assert host.probe(tmp_path, shell, ask_gpus=False).inventory == Inventory()
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize(
    "text", ["", "\x00\xff", "<?xml version='1.0'?><nvidia_smi_log>", "<a>" * 5000, xml(EIGHT)[:900]]
)
def test_whatever_the_tool_prints_the_probe_never_crashes(smi: FakeSmi, text: str) -> None:
    for name in ("everything", "capabilities", "topology"):
        smi.says(name, text)
    seen = smi.inventory()
    assert seen.gpus is None and seen.problem


def test_a_broken_answer_to_the_smaller_questions_costs_only_them(smi: FakeSmi) -> None:
    for name in ("capabilities", "topology"):
        smi.says(name, "\x00<odd>,,,\n,,\n", code=3)
    seen = asked(smi, xml(EIGHT))
    assert [gpu.name for gpu in seen.gpus or ()] == [H100] * 8
    assert seen.links is None
