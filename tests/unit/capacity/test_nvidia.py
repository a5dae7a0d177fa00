"""What nvidia-smi prints, as people met it in the field."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from control.core import nvidia
from control.core.capacity.choose import choose
from control.core.gpus import Gpu, Inventory
from control.core.nvidia_xml import Answer, from_xml, inventory
from tests.unit.capacity.world import answer, facts, settings

CAPACITY = ("index", "name", "uuid", "memory.total", "memory.used", "memory.free", "utilization.gpu", "driver_version")
RECORDED = Answer(answer("nvidia-smi-q-x.h200.xml"))
NOTHING = Answer("", code=1)


def reasons(gpus: tuple[Gpu, ...]) -> dict[int | None, str]:
    """GPU index -> why it cannot serve; the driver and the links play no part here."""
    model = facts().model("deepseek-v4-flash")
    made = choose(Inventory(gpus=gpus), facts(), model, settings().engine)
    return {one.gpu.index: one.why for one in made.unusable}


def test_an_unknown_cell_is_unknown_and_drops_no_gpu() -> None:
    seen = nvidia.gpus(answer("A01.txt"), CAPACITY)
    assert [gpu.memory_total_mib for gpu in seen.gpus] == [81559, None, 24576, 81559]
    assert seen.driver == "550.127.08"
    why = reasons(seen.gpus)
    assert 0 not in why
    assert "could not be read (N/A)" in why[1]
    assert "NVIDIA H100L-2-24C is a slice of a GPU" in why[2]
    assert "78012 MiB of it are in use" in why[3]


def test_a_cell_without_rights_is_told_and_units_in_cells_are_read() -> None:
    seen = nvidia.gpus(answer("A02.txt"))
    assert (seen.gpus[1].memory_total_mib, seen.gpus[1].memory_used_mib) == (81559, 4)
    assert "Insufficient Permissions" in reasons(seen.gpus)[0]
    assert "lacks rights" in reasons(seen.gpus)[0]


def test_every_bracket_is_unknown_a_needed_reset_is_a_fault_and_an_unknown_error_a_warning() -> None:
    columns = ("index", "name", "memory.total", "memory.used", "power.draw", "temperature.gpu")
    seen = nvidia.gpus(answer("A04.txt"), columns)
    assert [gpu.fault for gpu in seen.gpus] == [None, None, "GPU requires reset", None]
    assert seen.warnings == ("GPU 1: memory.used could not be read",)
    assert seen.gpus[1].memory_used_mib is None


def test_a_display_gpu_and_a_gpu_of_another_product_are_never_chosen() -> None:
    rows = json.loads(answer("A05.json"))["nvidia_smi_L_in_PCI_order"]
    gpus = tuple(
        Gpu(
            index=row["index"],
            name=row["name"],
            uuid=f"GPU-{row['index']}",
            capability=row["compute_cap"],
            memory_total_mib=row["memory_total_mib"],
            memory_used_mib=0,
            display_active=nvidia.switch(row["display_active"]),
        )
        for row in rows
    )
    assert reasons(gpus).keys() == {0}
    assert reasons((replace(gpus[1], display_active=True),)) == {1: "it drives a display"}


def test_products_are_told_apart_by_device_id_and_name_and_ampere_is_refused() -> None:
    for row in json.loads(answer("A08.json")):
        product = facts().hardware.find(row["name"], row["pci_device_id"])
        assert product is not None
        assert (product.memory_mib, product.fabric_manager) == (row["memory_total_mib"], row["needs_fabric_manager"])
        gpu = Gpu(index=0, name=row["name"], uuid="GPU-0", memory_total_mib=row["memory_total_mib"], memory_used_mib=0)
        assert ("8.0" in reasons((gpu,)).get(0, "")) == ("A800" in row["name"] or "A100" in row["name"])


@pytest.mark.parametrize(
    ("out", "err", "code", "id_"),
    [
        (answer("A09.txt"), "", 18, "driver-mismatch"),
        ("", answer("A09.txt"), 18, "driver-mismatch"),
        (answer("A10.txt"), "", 9, "driver-absent"),
        (answer("A18.txt"), "", 0, "no-devices"),
        (answer("A18.txt"), "", 6, "no-devices"),
        ("", "", None, "driver-wedged"),
        ('Field "compute_cap" is not a valid field to query.\n\n', "", 2, "old-field"),
        ("", "out of cheese", 1, "unknown"),
    ],
)
def test_each_kind_of_failure_has_its_own_message(out: str, err: str, code: int | None, id_: str) -> None:
    failed = nvidia.failure(out, err, code)
    assert failed is not None
    assert failed.id == id_ and failed.what and failed.fix


@pytest.mark.parametrize("code", [0, 15])
def test_a_lost_gpu_is_named_and_the_others_keep_their_numbers(code: int) -> None:
    text = answer("A11.txt")
    assert nvidia.failure(text, "", code) is None
    seen = nvidia.gpus(text, ("index", "name", "uuid", "memory.total", "memory.used"))
    assert [gpu.index for gpu in seen.gpus] == [0, 1, 2, 3, 4, 5, 7]
    assert "0000:BA:00.0" in seen.lost[0]


def test_the_table_for_people_yields_no_gpu() -> None:
    assert nvidia.gpus(answer("A12.txt")).gpus == ()
    assert nvidia.gpus(answer("nvidia-smi.h200.txt")).gpus == ()


def test_topology_reads_only_gpu_cells_beside_network_cards_and_a_legend() -> None:
    seen = nvidia.topology(answer("A13.txt"))
    assert seen.links.keys() == set(range(8))
    assert all(set(row.values()) == {"NV18"} and len(row) == 7 for row in seen.links.values())
    assert [seen.numa[index] for index in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_topology_of_two_cards_without_nvlink_is_the_cpu_link() -> None:
    seen = nvidia.topology(answer("A13-pcie.txt"))
    assert (seen.links, seen.numa) == ({0: {1: "SYS"}, 1: {0: "SYS"}}, {0: 0, 1: 1})


def test_topology_survives_colours_a_missing_column_and_nonsense() -> None:
    assert nvidia.topology(answer("nvidia-smi-topo-m.h200x1.txt")).numa == {0: 0}
    assert nvidia.topology("\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n").links == {0: {1: "NV12"}, 1: {0: "NV12"}}
    assert nvidia.topology("Unsupported option -i").links == {}


def test_rows_are_read_row_by_row_whatever_ends_the_lines() -> None:
    rows = nvidia.table("81559\r\n81559\r\n\r\n", ["memory.total"]).rows
    assert [row["memory.total"].whole for row in rows] == [81559, 81559]


def test_a_row_that_stops_in_the_middle_is_no_gpu() -> None:
    assert nvidia.gpus("0, NVIDIA H100 80GB HBM3, ", CAPACITY).gpus == ()


def test_a_gpu_that_asks_for_an_action_is_kept_out_and_the_action_named() -> None:
    seen = nvidia.gpus(answer("A16.txt"), ("index", "uuid", "memory.total", "gpu_recovery_action"))
    idle = tuple(replace(gpu, name="NVIDIA H100 80GB HBM3", memory_used_mib=0) for gpu in seen.gpus)
    why = reasons(idle)
    assert why.keys() == {1, 2, 3, 4}
    assert [text.rpartition(": ")[2] for text in why.values()] == ["Reset", "Reboot", "Drain P2P", "Drain and Reset"]


def test_memory_of_a_process_that_nobody_sees_is_told_with_its_process() -> None:
    lines = answer("A17.txt").splitlines()
    rows = "\n".join(line.removeprefix("gpu: ") for line in lines if line.startswith("gpu: "))
    apps = "\n".join(line.removeprefix("apps: ") for line in lines if line.startswith("apps: "))
    running = nvidia.processes(apps, ("gpu_uuid", "pid", "process_name", "used_gpu_memory"))
    seen = nvidia.gpus(rows, ("index", "uuid", "memory.total", "memory.used", "memory.free", "utilization.gpu"))
    gpus = tuple(replace(gpu, name="NVIDIA H100 80GB HBM3", processes=running[gpu.uuid or ""]) for gpu in seen.gpus)
    assert "process 41207, 22300 MiB" in reasons(gpus)[0]
    assert "VLLM::Worker_TP1 (process 41208, 22300 MiB)" in reasons(gpus)[1]


def test_the_recorded_machine_is_read_from_its_three_answers() -> None:
    csv = Answer(answer("nvidia-smi-query-gpu.h200.csv"))
    seen = inventory(RECORDED, csv, Answer(answer("nvidia-smi-topo-m.h200x1.txt")))
    (gpu,) = seen.gpus or ()
    assert (seen.driver, seen.cuda, gpu.name, gpu.capability) == ("580.159.04", "13.0", "NVIDIA H200", "9.0")
    sizes = (gpu.memory_total_mib, gpu.memory_reserved_mib, gpu.memory_used_mib, gpu.memory_free_mib)
    assert sizes == (143771, 616, 0, 143156)
    assert (gpu.mig, gpu.display_active, gpu.recovery_action, gpu.numa, gpu.processes) == (False, False, "None", 0, ())
    assert nvidia.gpus(csv.out).gpus[0].uuid == gpu.uuid


def test_a_machine_is_read_without_its_second_and_third_answer() -> None:
    seen = inventory(RECORDED, NOTHING, NOTHING)
    assert seen.links is None
    assert reasons(seen.gpus or ()) == {}  # the product's capability is known


def test_processes_in_the_xml_are_ours_or_foreign() -> None:
    process = (
        "<process_info><pid>12</pid><type>C</type>"
        "<process_name>VLLM</process_name><used_memory>300 MiB</used_memory></process_info>"
    )
    drawing = process.replace("<type>C", "<type>G").replace("12", "13")
    text = RECORDED.out.replace("<processes>", f"<processes>{process}{drawing}")
    ours = inventory(Answer(text), NOTHING, NOTHING, {12: "engine-0"}).gpus or ()
    foreign = inventory(Answer(text), NOTHING, NOTHING).gpus or ()
    assert [(one.pid, one.replica) for one in ours[0].processes or ()] == [(12, "engine-0")]
    assert reasons(ours) == {}
    assert reasons(foreign) == {0: "it is held by VLLM (process 12, 300 MiB)"}


def test_a_wedged_driver_a_missing_one_and_no_gpu_are_three_things() -> None:
    wedged = inventory(Answer("0, NVIDIA H100", code=None), NOTHING, NOTHING)
    assert wedged.gpus is None and "wedged" in (wedged.problem or "")
    assert inventory(Answer("No devices were found\n", code=6), NOTHING, NOTHING).gpus == ()
    assert inventory(Answer(answer("A10.txt"), code=9), NOTHING, NOTHING).gpus is None


def test_xml_that_ends_early_is_said_and_crashes_nothing() -> None:
    assert from_xml(RECORDED.out[:5000]).gpus is None
    assert from_xml("").problem


def test_a_lost_gpu_before_the_xml_leaves_a_gap_in_the_numbers() -> None:
    one = RECORDED.out
    gpu = one[one.index("<gpu ") : one.index("</gpu>") + len("</gpu>")]
    sentence = "Unable to determine the device handle for GPU1: 0000:2A:00.0: GPU is lost.  Reboot the system\n"
    seen = from_xml(sentence + one.replace("</gpu>", f"</gpu>{gpu}", 1))
    assert [found.index for found in seen.gpus or ()] == [0, 2]
    assert seen.lost == (sentence.strip(),)
