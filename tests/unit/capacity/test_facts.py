"""The files of facts: what is in them, and what is said when they are wrong."""

from __future__ import annotations

import re

import pytest
import yaml

from control.core.errors import UsageError
from control.core.facts import load
from tests.unit.capacity.world import fact_files, facts

MODEL = "config/models/deepseek-v4-flash.yaml"
HARDWARE = "config/hardware.yaml"
ENGINES = "config/engines.yaml"


def complaint(path: str, old: str, new: str, count: int = 1) -> str:
    """What is said when one text of a file is replaced by another."""
    files = fact_files()
    assert old in files[path]
    files[path] = files[path].replace(old, new, count)
    with pytest.raises(UsageError) as refused:
        load(files)
    assert refused.value.fix
    return refused.value.what


def test_every_number_stands_beside_a_source_and_a_date() -> None:
    for path, text in fact_files().items():
        for where, group in _leaf_groups(yaml.safe_load(text), path):
            assert {"source", "checked"} <= group.keys(), where


def _leaf_groups(value: object, where: str, sourced: bool = False) -> list[tuple[str, dict[str, object]]]:
    """Mappings that hold a number and are not inside a group with a source."""
    found: list[tuple[str, dict[str, object]]] = []
    if isinstance(value, list):
        for place, item in enumerate(value):
            found += _leaf_groups(item, f"{where}[{place}]", sourced)
    elif isinstance(value, dict):
        here = sourced or "source" in value
        numbers = any(isinstance(v, (int, float)) and not isinstance(v, bool) for v in value.values())
        if numbers and not here:
            found.append((where, value))
        for key, inner in value.items():
            found += _leaf_groups(inner, f"{where}.{key}", here)
    return found


@pytest.mark.parametrize(
    ("path", "old", "new", "said"),
    [
        (
            MODEL,
            "  hidden_size: 4096\n",
            "",
            "architecture.hidden_size: missing, expected an integer from 1 to 1000000",
        ),
        (
            MODEL,
            "hidden_size: 4096",
            "hidden_size: -4",
            "architecture.hidden_size: expected an integer from 1 to 1000000, found -4",
        ),
        (
            MODEL,
            "hidden_size: 4096",
            "hidden_size: many",
            'architecture.hidden_size: expected an integer from 1 to 1000000, found "many"',
        ),
        (MODEL, "hidden_size: 4096", "hidden_size: 40960", "files.safetensors_bytes: expected about"),
        (
            MODEL,
            "hidden_size: 4096",
            "hiden_size: 4096",
            "architecture.hiden_size: unknown name (did you mean hidden_size?)",
        ),
        (
            MODEL,
            "expert_bytes: 0.53125",
            "expert_bytes: .nan",
            "formats.expert_bytes: expected a number above 0 and at most 8, found nan",
        ),
        (
            MODEL,
            "checked: 2026-11-30",
            "checked: lately",
            'files.checked: expected a date such as 2026-11-30, found "lately"',
        ),
        (
            MODEL,
            "  source: model card; SGLang's DeepSeek-V4 cookbook\n",
            "",
            "parameters.source: missing, expected text",
        ),
        (
            MODEL,
            "[0, 0, 4, 128,",
            "[0, 0, 7, 128,",
            "architecture.compress_ratios: expected 0 or one of [4, 128], found [7]",
        ),
        (MODEL, "active: 13000000000", "active: 913000000000", "parameters.active: expected at most 284000000000"),
        (
            MODEL,
            "name: deepseek-v4-flash\n",
            "name: other\n",
            "name: expected deepseek-v4-flash, as the file is called, found other",
        ),
        (MODEL, "min_release: 0.20.0", "min_release: 0.2", "support.min_release: expected text that matches"),
        (
            MODEL,
            "block-size: 256",
            "block-size: [256]",
            "serve.flags.block-size: expected true or false or an integer or text, found a list",
        ),
        (
            HARDWARE,
            "memory_mib: 81559",
            "memory_mib: 0",
            "gpus[0].memory_mib: expected an integer from 1 to 10000000, found 0",
        ),
        (
            HARDWARE,
            "memory_mib: 81559",
            "memory_mib: null",
            "gpus[0].memory_mib: expected an integer from 1 to 10000000, found null",
        ),
        (
            HARDWARE,
            "reserved_mib: 561",
            "reserved_mib: 90000",
            "gpus[0].reserved_mib: expected less than memory_mib 81559, found 90000",
        ),
        (HARDWARE, "id: h100-pcie", "id: h100-sxm", "gpus: h100-sxm is written 2 times; keep one"),
        (HARDWARE, "nvlink: switch", "nvlink: fast", "gpus[0].nvlink: expected one of switch, bridge, none"),
        (ENGINES, "default_release: 0.26.0", "default_release: 0.29.0", "default_release: expected one of"),
        (
            ENGINES,
            "activation_gib: 2.66",
            "activation_gib: 2660",
            "memory.activation_gib: expected a number from 0 to 1000, found 2660",
        ),
        (
            ENGINES,
            "gpus: [h100-sxm, h100-pcie,",
            "gpus: [h100-sxn, h100-pcie,",
            "faults[0].gpus: h100-sxn is not in config/hardware.yaml (did you mean h100-sxm?)",
        ),
        (
            ENGINES,
            "names: [VLLM_API_KEY",
            "names: [VLLM API KEY",
            "environment[0].names[0]: expected text that matches",
        ),
        (ENGINES, "numa-bind", "numa-bind, numa-bind", "flags: numa-bind is written 2 times"),
    ],
)
def test_a_wrong_fact_is_told_with_its_path_what_was_expected_and_what_was_found(
    path: str, old: str, new: str, said: str
) -> None:
    assert f"{path}: {said}" in complaint(path, old, new)


def test_complaints_of_all_files_are_told_at_once() -> None:
    files = fact_files()
    files[MODEL] = files[MODEL].replace("hidden_size: 4096", "hidden_size: 0")
    files[HARDWARE] = "gpus: ["
    del files[ENGINES]
    with pytest.raises(UsageError) as refused:
        load(files)
    lines = refused.value.what.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [HARDWARE, ENGINES, MODEL]


@pytest.mark.parametrize("text", ["", "7", "[]", "a: [", "\t", "a: 1\na: 2\n"])
def test_a_file_that_is_no_mapping_is_told(text: str) -> None:
    files = {**fact_files(), HARDWARE: text}
    with pytest.raises(UsageError, match=re.escape(HARDWARE)):
        load(files)


def test_an_unknown_model_is_a_usage_error_that_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"weights\.model: expected the name of a file") as refused:
        facts().model("deepseek-v4-flsh")
    assert "did you mean deepseek-v4-flash?" in refused.value.what


def test_gpus_are_recognised_by_device_id_or_full_name_never_by_a_part_of_it() -> None:
    hardware = facts().hardware
    assert hardware.find("whatever", "233510DE").id == "h200-sxm"  # type: ignore[union-attr]
    assert hardware.find("NVIDIA H100 NVL", None).id == "h100-nvl"  # type: ignore[union-attr]
    assert hardware.find("NVIDIA H100", None) is None
    assert hardware.find("NVIDIA H100L-2-24C", None) is None
    assert hardware.find(None, None) is None


def test_only_boards_on_a_switch_need_the_fabric_manager() -> None:
    needs = {gpu.id: gpu.fabric_manager for gpu in facts().hardware.gpus}
    assert needs["h100-sxm"] and needs["h200-sxm"]
    assert not needs["h100-pcie"] and not needs["h100-nvl"]


def test_what_no_source_tells_is_unknown_and_not_zero() -> None:
    hardware = {gpu.id: gpu for gpu in facts().hardware.gpus}
    assert hardware["h20-sxm"].sm_count is None
    assert facts().model("deepseek-v4-flash").files.repository_bytes is None
    assert facts().engines.find("0.27.0").torch is None  # type: ignore[union-attr]
