"""Which replicas a host gets, and on which GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from control.core.capacity.plan import plan_gpus
from control.core.capacity.terms import MIB
from control.core.errors import PreflightRefused, UsageError
from tests.unit.capacity.world import facts, host, host_names, plan, settings

# host -> replicas, TP, requests of 131072 tokens that one replica runs at a time
PLANS = {
    "dgx-h100": (2, 4, 34),
    "h100-x4": (1, 4, 34),
    "h100-nvl-x4": (1, 4, 57),
    "h100-pcie-x4": (1, 4, 34),
    "h800-x8": (2, 4, 34),
    "h20-x8": (2, 4, 60),
    "hgx-h200": (4, 2, 67),
    "h200-x4": (2, 2, 67),
    "h200-x2": (1, 2, 67),
    "mixed-h100-a800": (1, 4, 34),
    "mixed-h100-h200": (2, 2, 67),
    "mig-some": (1, 4, 34),
    "one-lost": (1, 4, 34),
    "held": (1, 4, 34),
    "sick": (1, 4, 34),
    "running": (2, 4, 34),
    "half-known": (2, 4, 34),
    "old-driver-575": (2, 4, 34),
}
REFUSED = {
    "h100-x2": "2 x NVIDIA H100 80GB HBM3 are too few",
    "one-gpu": "1 x NVIDIA H100 80GB HBM3 is too few",
    "h200-x1": "1 x NVIDIA H200 is too few",
    "h100-nvl-x2": "2 x NVIDIA H100 NVL are too few",
    "mixed-display": "2 x NVIDIA H100 80GB HBM3 are too few",
    "a800-x8": "no GPU of this host can serve",
    "mig-all": "no GPU of this host can serve",
    "vgpu": "no GPU of this host can serve",
    "full-memory": "no GPU of this host can serve",
    "old-driver-535": "needs driver branch 580",
    "no-gpu": "this host has no NVIDIA GPU",
    "cannot-ask": "could not be read",
}


def test_every_described_host_has_an_expectation() -> None:
    assert set(host_names()) == PLANS.keys() | REFUSED.keys()


@pytest.mark.parametrize("name", PLANS)
def test_a_host_gets_the_smallest_tp_that_fits_and_all_the_replicas_there_are_gpus_for(name: str) -> None:
    made = plan(name)
    assert (len(made.replicas), made.tensor_parallel, made.held[-1].requests) == PLANS[name]
    assert all(len(replica.members) == made.tensor_parallel for replica in made.replicas)


@pytest.mark.parametrize("name", REFUSED)
def test_a_host_that_cannot_serve_is_refused_with_a_reason_and_a_way_on(name: str) -> None:
    with pytest.raises(PreflightRefused) as refused:
        plan(name)
    assert REFUSED[name] in refused.value.what
    assert refused.value.why
    assert refused.value.fix


def test_too_few_h100_are_refused_with_the_whole_sum() -> None:
    with pytest.raises(PreflightRefused) as refused:
        plan("h100-x2")
    assert "79.18 that CUDA sees x 0.88 = 69.68 allowed" in refused.value.why
    assert "TP 2: 69.68 - weights 74.04 - peak activation 2.66" in refused.value.why
    assert "= -11.50 for KV cache: short by 22.11" in refused.value.why
    assert refused.value.fix.startswith("4 GPUs of this kind hold it.")


def test_two_h100_nvl_are_refused_at_8192_batched_tokens_and_told_what_would_fit() -> None:
    with pytest.raises(PreflightRefused) as refused:
        plan("h100-nvl-x2")
    offer = "--set engine.max_num_batched_tokens=2048 --set engine.gpu_memory_utilization=0.95"
    assert offer in refused.value.fix
    assert plan("h100-nvl-x2", max_num_batched_tokens=2048, gpu_memory_utilization=0.95).tensor_parallel == 2


def test_an_a800_is_refused_by_its_compute_capability_not_by_its_memory() -> None:
    with pytest.raises(PreflightRefused) as refused:
        plan("a800-x8")
    assert "has compute capability 8.0, deepseek-v4-flash needs 9.0" in refused.value.why


def test_the_eight_gpus_of_a_dgx_h100_are_split_by_cpu_socket() -> None:
    assert [[m.gpu.index for m in replica.members] for replica in plan("dgx-h100").replicas] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]


def test_a_lost_gpu_renumbers_nothing_and_is_said() -> None:
    made = plan("one-lost")
    assert [m.gpu.index for m in made.replicas[0].members] == [0, 1, 2, 3]
    assert [one.gpu.index for one in made.spare] == [4, 5, 7]
    assert {"gpu-lost", "gpu-missing"} <= {note.id for note in made.warnings}


def test_gpus_that_are_held_are_named_with_their_holder_and_left_alone() -> None:
    made = plan("held")
    why = {one.gpu.index: one.why for one in made.unusable}
    assert why == {
        0: "it is held by a process without a name (process 41207, 22300 MiB)",
        1: "it is held by VLLM::Worker_TP1 (process 41208, 22300 MiB)",
    }
    assert [m.gpu.index for m in made.replicas[0].members] == [4, 5, 6, 7]  # one socket, rather than 2, 3, 4, 5


def test_memory_in_use_by_nobody_that_can_be_seen_holds_a_gpu() -> None:
    with pytest.raises(PreflightRefused, match="no GPU of this host can serve") as refused:
        plan("full-memory")
    assert "81000 MiB of it are in use, by no process that can be seen" in refused.value.why


def test_our_own_replicas_do_not_hold_their_gpus_against_us() -> None:
    assert [r.uuids for r in plan("running").replicas] == [r.uuids for r in plan("dgx-h100").replicas]


def test_unreadable_faulty_and_draining_gpus_each_get_their_own_reason() -> None:
    assert {one.gpu.index: one.id for one in plan("sick").unusable} == {
        1: "memory",
        2: "memory",
        3: "fault",
        4: "recovery",
    }


def test_mig_keeps_a_gpu_out() -> None:
    made = plan("mig-some")
    assert [one.id for one in made.unusable] == ["mig", "mig"]
    assert [m.gpu.index for m in made.replicas[0].members] == [4, 5, 6, 7]


def test_kinds_are_never_mixed_and_the_one_left_aside_is_named() -> None:
    made = plan("mixed-h100-h200")
    assert {member.kind for replica in made.replicas for member in replica.members} == {"NVIDIA H200"}
    assert "NVIDIA H100 80GB HBM3" in next(note.text for note in made.notes if note.id == "other-kind")


def test_named_gpus_are_the_only_ones_used() -> None:
    wanted = [m.gpu.uuid for m in plan("mixed-h100-h200").spare]
    made = plan("mixed-h100-h200", gpu_uuids=wanted)
    assert made.kind == "NVIDIA H100 80GB HBM3"
    assert set(made.replicas[0].uuids) == set(wanted)


@pytest.mark.parametrize(("uuids", "said"), [(["GPU-9"], "found 'GPU-9'"), (["A", "A"], "A is written 2 times")])
def test_a_named_gpu_that_is_not_there_or_named_twice_is_a_usage_error(uuids: list[str], said: str) -> None:
    with pytest.raises(UsageError, match="gpu_uuids") as refused:
        plan("dgx-h100", gpu_uuids=uuids)
    assert said in refused.value.what


def test_gpus_of_a_bridged_pair_stay_together_and_a_group_of_two_pairs_is_warned_of() -> None:
    made = plan("h100-nvl-x4", max_num_batched_tokens=2048, gpu_memory_utilization=0.95)
    assert made.tensor_parallel == 2
    assert [[m.gpu.index for m in replica.members] for replica in made.replicas] == [[0, 1], [2, 3]]
    assert not any(note.id == "no-nvlink" for note in made.notes)
    across = next(note for note in plan("h100-nvl-x4").warnings if note.id == "no-nvlink")
    assert "GPU 0 - GPU 2: SYS" in across.text


def test_tp_is_a_setting_and_tp_8_on_h100_carries_its_warning() -> None:
    made = plan("dgx-h100", tensor_parallel=8)
    assert (len(made.replicas), made.tensor_parallel) == (1, 8)
    assert "#41027" in next(note.source for note in made.warnings if note.id == "tensor-parallel-8")
    assert not any(note.id == "tensor-parallel-8" for note in plan("dgx-h100").notes)


@pytest.mark.parametrize("tensor_parallel", [3, 6, 16])
def test_a_tp_that_cuts_the_weights_badly_is_a_usage_error(tensor_parallel: int) -> None:
    with pytest.raises(UsageError, match=f"expected one of 1, 2, 4, 8, found {tensor_parallel}"):
        plan("dgx-h100", tensor_parallel=tensor_parallel)


def test_a_tp_that_is_too_small_is_refused_and_the_one_that_fits_is_named() -> None:
    with pytest.raises(PreflightRefused, match="cannot hold") as refused:
        plan("dgx-h100", tensor_parallel=2)
    assert refused.value.fix.startswith("TP 4 fits: leave engine.tensor_parallel out.")


def test_more_gpus_for_a_tp_than_there_are_is_refused() -> None:
    with pytest.raises(PreflightRefused, match="a replica needs 8 GPUs"):
        plan("h100-x4", tensor_parallel=8)


def test_fewer_replicas_leave_gpus_idle_and_more_are_refused() -> None:
    assert len(plan("dgx-h100", replicas=1).spare) == 4
    with pytest.raises(PreflightRefused, match="3 replicas of 4 GPUs need 12, and 8 x") as refused:
        plan("dgx-h100", replicas=3)
    assert "engine.replicas to 2 or less" in refused.value.fix


def test_presets_trade_cache_for_larger_steps() -> None:
    full = {preset: plan("dgx-h100", preset=preset) for preset in ("latency", "balanced", "throughput")}
    assert [one.case.shape.max_num_batched_tokens for one in full.values()] == [4096, 8192, 16_384]
    held = [one.held[-1].requests for one in full.values()]
    assert held == sorted(held, reverse=True) and held[0] > held[-1]
    assert {note.id for note in full["throughput"].warnings} == {"activation-unmeasured"}


def test_a_setting_is_stronger_than_its_preset() -> None:
    shape = plan("dgx-h100", preset="latency", max_num_batched_tokens=2048, max_num_seqs=32).case.shape
    assert (shape.max_num_batched_tokens, shape.max_num_seqs) == (2048, 32)


def test_what_limits_the_requests_is_said_and_changes_with_the_seats() -> None:
    made = plan("dgx-h100", max_num_seqs=32)
    assert {held.limited_by for held in made.held} == {"max_num_seqs"}
    assert made.seats_fill_up_to == 131_072
    assert plan("dgx-h100").seats_fill_up_to == 11_776


def test_drafts_weigh_something_and_are_said_to_be_unmeasured() -> None:
    with_drafts, without = plan("dgx-h100", speculation=True), plan("dgx-h100")
    assert with_drafts.budget.kv_bytes < without.budget.kv_bytes
    assert "drafts-unmeasured" in {note.id for note in with_drafts.warnings}


def test_the_other_model_plans_alike() -> None:
    assert len(plan("dgx-h100", model="deepseek-v4-flash-0731").replicas) == 2


def test_a_full_million_tokens_of_context_needs_larger_gpus_than_h100_in_fours() -> None:
    with pytest.raises(PreflightRefused, match=r"are too few|cannot hold") as refused:
        plan("h100-x4", max_model_len=1_048_576)
    assert "8 requests of 1048576 tokens" in refused.value.why


def test_nvlink_counts_more_than_the_cpu_socket() -> None:
    """Pairs 0-3 and 1-2 are bridged across the sockets."""
    box = host("h100-nvl-x4")
    bridged = {0: {3: "NV12"}, 1: {2: "NV12"}, 2: {1: "NV12"}, 3: {0: "NV12"}}
    gpus = tuple(replace(gpu, numa=place % 2) for place, gpu in enumerate(box.gpus or ()))
    engine = settings(max_num_batched_tokens=2048, gpu_memory_utilization=0.95)
    made = plan_gpus(engine, facts(), replace(box, gpus=gpus, links=bridged))
    assert [[m.gpu.index for m in replica.members] for replica in made.replicas] == [[0, 3], [1, 2]]


def test_the_gpu_with_the_least_memory_decides_for_its_kind() -> None:
    box = host("dgx-h100")
    first, *others = box.gpus or ()
    small = replace(first, memory_total_mib=70_000, memory_free_mib=None)
    made = plan_gpus(settings(), facts(), replace(box, gpus=(small, *others)))
    assert made.budget.usable_bytes == (70_000 - 476) * MIB


def test_a_uuid_that_is_reported_twice_is_reserved_once() -> None:
    box = host("h100-x4")
    *others, last = box.gpus or ()
    doubled = (*others, replace(last, uuid=others[0].uuid))
    with pytest.raises(PreflightRefused) as refused:
        plan_gpus(settings(), facts(), replace(box, gpus=doubled))
    assert "GPU 3: another GPU was reported with the same UUID" in refused.value.why


def test_a_share_above_what_is_free_at_start_is_refused_with_the_share_that_would_do() -> None:
    box = host("h100-x4")
    busy = tuple(replace(gpu, memory_used_mib=1024, memory_free_mib=None) for gpu in box.gpus or ())
    assert plan_gpus(settings(gpu_memory_utilization=0.95), facts(), replace(box, gpus=busy)).replicas
    with pytest.raises(PreflightRefused) as refused:
        plan_gpus(settings(gpu_memory_utilization=0.98), facts(), replace(box, gpus=busy))
    assert "engine.gpu_memory_utilization 0.98 asks for 77.60 GiB and 77.58 GiB are free at start; 0.97 or less" in (
        refused.value.why
    )
