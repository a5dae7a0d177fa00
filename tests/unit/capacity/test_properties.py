"""What must hold for any machine and any settings, however odd."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from control.core.capacity.plan import plan_gpus
from control.core.capacity.refusals import CapacityRefused
from control.core.capacity.report import as_json, explain, refusal_json
from control.core.capacity.result import GpuPlan
from control.core.capacity.terms import MIB, total
from control.core.errors import FlashboxError
from control.core.gpus import Gpu, GpuProcess, Inventory
from control.core.host_snapshot import dump, parse
from tests.unit.capacity.world import facts
from tests.unit.capacity.world import settings as engine_settings

NAMES = [
    "NVIDIA H100 80GB HBM3",
    "NVIDIA H200",
    "NVIDIA H20",
    "NVIDIA H100 NVL",
    "NVIDIA A800-SXM4-80GB",
    "NVIDIA B200",
    "NVIDIA H100L-2-24C",
    None,
]
SIZES = [None, 0, 1, 500, 24_576, 81_559, 95_830, 143_771, 10_000_000]
processes = st.none() | st.lists(
    st.builds(
        GpuProcess,
        pid=st.none() | st.integers(0, 10),
        name=st.none() | st.just("python"),
        memory_mib=st.none() | st.sampled_from([0, 300, 71_000]),
        replica=st.none() | st.just("engine-0"),
    ),
    max_size=2,
).map(tuple)


def healthy(index: int, name: str, size: int) -> st.SearchStrategy[Gpu]:
    return st.builds(
        Gpu,
        index=st.just(index),
        name=st.just(name),
        uuid=st.just(f"GPU-{index}"),
        capability=st.sampled_from(["9.0", None]),
        memory_total_mib=st.sampled_from([size, size, size, size - 3000, size * 2]),
        memory_reserved_mib=st.sampled_from([476, 616, None]),
        memory_used_mib=st.sampled_from([0, 4, 1024]),
        numa=st.just(index // 4),
        processes=st.just(()),
    )


def odd(index: int) -> st.SearchStrategy[Gpu]:
    """Each value may be missing or absurd."""
    return st.builds(
        Gpu,
        index=st.sampled_from([index, index, index, None]),
        name=st.sampled_from([NAMES[0], NAMES[0], NAMES[1], *NAMES]),
        uuid=st.sampled_from([f"GPU-{index}", f"GPU-{index}", f"GPU-{index}", "GPU-0", None]),
        capability=st.sampled_from(["9.0", "9.0", "9.0", None, "8.0", "10.0"]),
        memory_total_mib=st.sampled_from([81_559, 143_771, 143_771, *SIZES]),
        memory_reserved_mib=st.sampled_from([476, None, 0, 10_000_000]),
        memory_used_mib=st.sampled_from([0, 0, 0, 4, 900, *SIZES]),
        memory_free_mib=st.sampled_from([None, None, *SIZES]),
        mig=st.sampled_from([False, False, False, None, True]),
        display_active=st.sampled_from([False, False, None, True]),
        recovery_action=st.sampled_from([None, None, "None", "Reset"]),
        fault=st.sampled_from([None, None, None, "GPU requires reset"]),
        numa=st.sampled_from([None, 0, 1]),
        processes=st.sampled_from([(), ()]) | processes,
    )


def machine(kind: tuple[str, int], count: int) -> st.SearchStrategy[tuple[Gpu, ...]]:
    """Mostly healthy and alike, so that plans are found."""
    each = [st.one_of(*[healthy(i, *kind)] * 6, odd(i)) for i in range(count)]
    return st.tuples(*each)


links = st.none() | st.dictionaries(
    st.integers(0, 9), st.dictionaries(st.integers(0, 9), st.sampled_from(["NV18", "SYS", "PXB", "X", ""]), max_size=9)
)
inventories = st.builds(
    Inventory,
    gpus=st.none()
    | st.tuples(
        st.sampled_from([("NVIDIA H100 80GB HBM3", 81_559), ("NVIDIA H200", 143_771), ("NVIDIA H20", 97_871)]),
        st.integers(0, 9),
    ).flatmap(lambda kind_and_count: machine(*kind_and_count)),
    driver=st.sampled_from(["580.95.05", "580.95.05", "575.1", "535.129.03", None]),
    cuda=st.sampled_from([None, "13.0", "12.2"]),
    links=links,
    lost=st.sampled_from([(), ("GPU 6 is lost",)]),
    expected=st.sampled_from([None, 8]),
)
engines = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.none() | st.integers(1, 4),
        "release": st.sampled_from([None, "0.20.0", "0.26.0", "0.27.0", "0.28.0", "0.33.0"]),
        "preset": st.sampled_from(["latency", "balanced", "throughput"]),
        "tensor_parallel": st.sampled_from([None, None, 1, 2, 3, 4, 8]),
        "max_model_len": st.sampled_from([16, 4096, 131_072, 1_048_576]),
        "max_num_seqs": st.sampled_from([1, 64, 1024]),
        "max_num_batched_tokens": st.sampled_from([None, 256, 2048, 32_768]),
        "gpu_memory_utilization": st.sampled_from([0.1, 0.5, 0.88, 0.95, 0.98]),
        "speculation": st.booleans(),
        "cuda_compatibility": st.booleans(),
        "model": st.sampled_from(["deepseek-v4-flash", "deepseek-v4-flash-0731"]),
    },
)


@settings(max_examples=250, deadline=None)
@given(inventories, engines)
def test_any_machine_gets_a_sound_plan_or_a_sentence(box: Inventory, engine: dict[str, object]) -> None:
    try:
        made = plan_gpus(engine_settings(**engine), facts(), box)
    except FlashboxError as refused:
        assert refused.what and refused.exit_code in (2, 3)
        assert refused.fix
        if isinstance(refused, CapacityRefused):
            json.dumps(refusal_json(refused))
        return
    no_two_replicas_share_a_gpu(made)
    no_gpu_gets_more_than_it_has(made)
    the_sum_adds_up(made)
    only_gpus_that_can_serve_are_used(made)
    assert all(explain(made))
    assert json.loads(json.dumps(as_json(made)))["memory"]["kv_cache_bytes"] == made.budget.kv_bytes


def no_two_replicas_share_a_gpu(made: GpuPlan) -> None:
    uuids = [uuid for replica in made.replicas for uuid in replica.uuids]
    assert made.replicas
    assert len(set(uuids)) == len(uuids) == len(made.replicas) * made.tensor_parallel
    assert all(uuids)
    assert not set(uuids) & {one.gpu.uuid for one in made.spare}


def no_gpu_gets_more_than_it_has(made: GpuPlan) -> None:
    one = made.budget
    assert total(one.terms) + one.needed_rows * one.row_bytes <= one.allowed_bytes
    for replica in made.replicas:
        for member in replica.members:
            gpu = member.gpu
            assert gpu.memory_total_mib is not None and gpu.memory_used_mib is not None
            ours = sum(p.memory_mib or 0 for p in gpu.processes or () if p.replica)
            unknown = any(p.memory_mib is None for p in gpu.processes or () if p.replica)
            foreign = 0 if unknown else max(0, gpu.memory_used_mib - ours)
            assert one.allowed_bytes <= member.usable_bytes - foreign * MIB
            assert member.usable_bytes <= gpu.memory_total_mib * MIB


def the_sum_adds_up(made: GpuPlan) -> None:
    one, case = made.budget, made.case
    assert total(one.terms) + one.kv_bytes == one.allowed_bytes
    assert total(one.weights) == one.terms[0].bytes
    for held in made.held:
        rows = one.in_flight_rows + held.requests * case.kv.request_rows(held.tokens)
        assert rows * one.row_bytes <= one.kv_bytes
        assert held.requests <= case.shape.max_num_seqs
    assert made.held[-1].tokens == case.shape.max_model_len
    if made.seats_fill_up_to:
        assert case.kv.held(one.rows, case.shape.max_num_batched_tokens, case.batches, made.seats_fill_up_to) >= (
            case.shape.max_num_seqs
        )


def only_gpus_that_can_serve_are_used(made: GpuPlan) -> None:
    members = [member for replica in made.replicas for member in replica.members]
    assert len({member.kind for member in members}) == 1
    assert not any(m.gpu.mig or m.gpu.fault or m.gpu.display_active for m in members)
    assert not any(p.replica is None for m in members for p in m.gpu.processes or ())


@settings(max_examples=100, deadline=None)
@given(inventories)
def test_a_possible_machine_is_written_and_read_back_the_same(box: Inventory) -> None:
    text = dump("box", box)
    try:
        read = parse(text, "box.json")
    except FlashboxError as refused:  # two GPUs with one UUID, or more in use than there is
        assert "box.json: gpus" in refused.what
        return
    assert read.inventory == box


def test_enough_of_the_machines_above_can_serve() -> None:
    """The properties would say nothing if every machine were refused."""
    planned = []

    @settings(max_examples=250, deadline=None, database=None, derandomize=True)
    @given(inventories)
    def count(box: Inventory) -> None:
        try:
            planned.append(plan_gpus(engine_settings(), facts(), box))
        except FlashboxError:
            return

    count()
    assert len(planned) > 50
