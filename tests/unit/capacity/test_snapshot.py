"""Machines described in JSON."""

from __future__ import annotations

import json

import pytest

from control.core.errors import UsageError
from control.core.gpus import Gpu, Inventory
from control.core.host_snapshot import dump, parse
from tests.unit.capacity.world import HOSTS, host_names

PATH = "box.json"


def complaint(text: str) -> str:
    with pytest.raises(UsageError) as refused:
        parse(text, PATH)
    assert refused.value.fix
    return refused.value.what


def gpu(**values: object) -> str:
    return json.dumps({"snapshot": 1, "gpus": [values]})


@pytest.mark.parametrize("name", host_names())
def test_a_described_host_is_written_as_it_is_read(name: str) -> None:
    text = (HOSTS / f"{name}.json").read_text(encoding="utf-8")
    read = parse(text, name)
    assert read.name == name and read.note
    assert dump(read.name, read.inventory, read.note) == text


@pytest.mark.parametrize("text", ['{"snapshot": 1}', '{"snapshot": 1, "gpus": null}', '\ufeff{"snapshot": 1}'])
def test_a_snapshot_may_say_nothing_at_all(text: str) -> None:
    assert parse(text, PATH).inventory == Inventory()


def test_no_gpu_is_another_thing_than_not_knowing() -> None:
    assert parse('{"snapshot": 1, "gpus": []}', PATH).inventory.gpus == ()


def test_every_value_of_a_gpu_may_be_missing() -> None:
    assert parse('{"snapshot": 1, "gpus": [{}]}', PATH).inventory.gpus == (Gpu(),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected JSON"),
        ("[]", "expected a JSON object with gpus, found a list"),
        ("[" * 100_000, "expected JSON"),
        ('{"gpus": []}', "snapshot: missing, expected an integer from 1 to 1"),
        ('{"snapshot": 2}', "snapshot: expected an integer from 1 to 1, found 2"),
        ('{"snapshot": 1, "gpu": []}', "gpu: unknown name (did you mean gpus?)"),
        ('{"snapshot": 1, "gpus": {}}', "gpus: expected a list or null, found a mapping"),
        (
            '{"snapshot": 1, "driver": "new"}',
            'driver: expected text that matches ^\\d+(\\.\\d+)*$ or null, found "new"',
        ),
        ('{"snapshot": 1, "expected": NaN}', "expected JSON, found NaN, which is no number"),
        ('{"snapshot": 1, "links": {"zero": {}}}', 'links: expected GPU indexes such as 0, found "zero"'),
        (
            gpu(memory_total_mib=-5),
            "gpus[0].memory_total_mib: expected an integer from 1 to 10000000 or null, found -5",
        ),
        (
            gpu(memory_total_mib="81559 MiB"),
            'gpus[0].memory_total_mib: expected an integer from 1 to 10000000 or null, found "81559 MiB"',
        ),
        (
            gpu(memory_total_mib=81559, memory_used_mib=90000),
            "gpus[0].memory_used_mib: expected at most memory_total_mib 81559, found 90000",
        ),
        (gpu(mig="off"), 'gpus[0].mig: expected true or false or null, found "off"'),
        (gpu(capability="nine"), "gpus[0].capability: expected text that matches"),
        (gpu(processes=[{"pid": -1}]), "gpus[0].processes[0].pid: expected an integer at least 0 or null, found -1"),
        (json.dumps({"snapshot": 1, "gpus": [{"uuid": "A"}, {"uuid": "A"}]}), "gpus: uuid A is written 2 times"),
        ("\x00{\x00", "this file is UTF-16, expected UTF-8"),
    ],
)
def test_a_snapshot_that_cannot_be_is_told_with_path_expected_and_found(text: str, said: str) -> None:
    assert f"{PATH}: {said}" in complaint(text)
