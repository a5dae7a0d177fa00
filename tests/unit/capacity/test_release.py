"""Releases, drivers and known faults."""

from __future__ import annotations

from dataclasses import replace

import pytest

from control.core.capacity.plan import plan_gpus
from control.core.errors import PreflightRefused, UsageError
from tests.unit.capacity.world import facts, host, plan, settings


def test_the_default_release_is_0_26_0() -> None:
    assert plan("dgx-h100").case.release.version == "0.26.0"


@pytest.mark.parametrize("release", ["0.4.2", "0.19.1"])
def test_a_release_too_old_for_the_model_is_a_usage_error(release: str) -> None:
    with pytest.raises(UsageError, match=rf"engine\.release: expected 0\.20\.0 or newer, .* found {release}"):
        plan("dgx-h100", release=release)


def test_the_draft_weights_need_a_newer_release_than_the_preview() -> None:
    assert plan("dgx-h100", release="0.20.0").case.release.version == "0.20.0"
    with pytest.raises(UsageError, match=r"expected 0\.25\.0 or newer, which deepseek-v4-flash-0731 needs"):
        plan("dgx-h100", release="0.20.0", model="deepseek-v4-flash-0731")


def test_an_unknown_release_is_a_usage_error_that_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"engine\.release: expected one of 0\.20\.0, .*, found 0\.29\.0"):
        plan("dgx-h100", release="0.29.0")


def test_a_context_above_the_models_is_a_usage_error() -> None:
    known = facts()
    model = known.model("deepseek-v4-flash")
    short = model.model_copy(update={"context": model.context.model_copy(update={"max_tokens": 65_536})})
    with pytest.raises(UsageError, match=r"engine\.max_model_len: expected at most 65536, .* found 131072"):
        plan_gpus(settings(), replace(known, models={"deepseek-v4-flash": short}), host("dgx-h100"))


def test_steps_smaller_than_the_seats_are_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"engine\.max_num_batched_tokens: expected at least engine.max_num_seqs 512"):
        plan("dgx-h100", max_num_batched_tokens=256, max_num_seqs=512)


def test_a_release_that_crashes_on_hopper_is_refused_and_another_named() -> None:
    with pytest.raises(PreflightRefused, match=r"vLLM 0\.27\.1 is not planned") as refused:
        plan("dgx-h100", release="0.27.1")
    assert "#51181" in refused.value.why
    assert "0.26.0" in refused.value.fix


def test_a_newer_release_is_planned_with_the_memory_that_was_reported_for_it_and_says_what_was_not_measured() -> None:
    made = plan("dgx-h100", release="0.33.0")
    extra = next(term for term in made.budget.terms if "0.33.0" in term.name)
    assert (extra.gib, extra.basis) == (4.0, "allowance")
    assert {"memory-unmeasured", "unreported-hopper"} <= {note.id for note in made.warnings}


def test_a_driver_below_580_gets_the_image_for_cuda_12_9_and_only_where_the_release_has_one() -> None:
    assert (plan("dgx-h100").build.cuda, plan("old-driver-575").build.cuda) == ("13.0", "12.9")
    with pytest.raises(
        PreflightRefused, match=r"vLLM 0\.33\.0 needs driver branch 580 \(CUDA 13\.0\), found driver 575"
    ):
        plan("old-driver-575", release="0.33.0")


def test_driver_535_is_refused_and_compatibility_is_a_choice_that_carries_a_warning() -> None:
    with pytest.raises(PreflightRefused, match=r"found driver 535\.129\.03") as refused:
        plan("old-driver-535")
    assert "engine.cuda_compatibility=true" in refused.value.fix
    made = plan("old-driver-535", cuda_compatibility=True)
    assert made.serve.environment["VLLM_ENABLE_CUDA_COMPATIBILITY"] == "1"
    assert "cuda-compatibility" in {note.id for note in made.warnings}


def test_compatibility_is_not_offered_for_a_driver_without_it() -> None:
    inventory = replace(host("dgx-h100"), driver="550.127.08", cuda="12.4")
    with pytest.raises(PreflightRefused) as refused:
        plan_gpus(settings(cuda_compatibility=True), facts(), inventory)
    assert "cuda_compatibility" not in refused.value.fix


def test_an_unknown_driver_is_judged_by_its_cuda_and_else_said_to_be_unknown() -> None:
    by_cuda = replace(host("dgx-h100"), driver=None, cuda="12.9")
    assert plan_gpus(settings(), facts(), by_cuda).build.cuda == "12.9"
    assert "driver-unknown" in {note.id for note in plan("half-known").warnings}


def test_a_fault_of_one_gpu_type_and_length_is_told_there_and_nowhere_else() -> None:
    ids = {
        (name, length): {note.id for note in plan(name, max_model_len=length).warnings}
        for name in ("h20-x8", "dgx-h100")
        for length in (131_072, 262_144)
    }
    assert [key for key, found in ids.items() if "long-context-h20" in found] == [("h20-x8", 262_144)]


def test_reports_from_the_field_are_shown_with_the_plan() -> None:
    eight = next(note for note in plan("dgx-h100", tensor_parallel=8).notes if note.id == "evidence")
    assert eight.text.startswith("Reported for this choice: works on 0.26.0")
    four = next(note for note in plan("dgx-h100").notes if note.id == "evidence")
    assert "No public report of TP 4 on vLLM 0.26.0" in four.text and "#49101" in four.text
