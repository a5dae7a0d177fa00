"""A plan in words and as data."""

from __future__ import annotations

import json
import re

import pytest

from control.core.capacity.refusals import CapacityRefused
from control.core.capacity.report import as_json, explain, refusal_json, summary
from control.core.errors import PreflightRefused
from tests.unit.capacity.world import host_names, plan


def test_the_summary_is_one_sentence() -> None:
    assert summary(plan("dgx-h100")) == "2 replicas of 4 GPUs (NVIDIA H100 80GB HBM3, TP 4)"
    assert summary(plan("h200-x2")) == "1 replica of 2 GPUs (NVIDIA H200, TP 2)"


@pytest.mark.parametrize("name", ["dgx-h100", "hgx-h200", "h20-x8"])
def test_the_printed_sum_adds_up_to_a_hundredth(name: str) -> None:
    numbers = [
        float(number) for number in re.findall(r"^ +(-?\d+\.\d\d)  (?:x |- |= )", "\n".join(explain(plan(name))), re.M)
    ]
    allowed, *terms, cache = numbers
    assert allowed + sum(terms) == pytest.approx(cache, abs=0.04)
    assert len(terms) == 5


def test_the_data_of_a_plan_add_up_to_the_byte() -> None:
    memory = json.loads(json.dumps(as_json(plan("dgx-h100"))))["memory"]
    assert sum(term["bytes"] for term in memory["terms"]) + memory["kv_cache_bytes"] == memory["allowed_bytes"]
    assert sum(term["bytes"] for term in memory["weights"]) == memory["terms"][0]["bytes"]
    assert memory["rows"] == memory["kv_cache_bytes"] // memory["row_bytes"]


def test_the_words_say_what_limits_what_is_left_out_and_what_was_tried() -> None:
    text = "\n".join(explain(plan("dgx-h100")))
    for part in (
        "limit     engine.max_num_seqs (256) up to 11776 tokens, KV cache beyond",
        "left out  --max-num-queued-reqs 512: not known in 0.26.0, first seen in 0.31.0",
        "TP 2: 69.68 - weights 74.04",
        "121  of 32768 tokens, limited by KV cache",
        "engine-1: GPU 4, 5, 6, 7",
        "image for CUDA 13.0; driver 580.95.05 (needs 580 or newer)",
    ):
        assert part in text


def test_the_words_name_who_holds_a_gpu() -> None:
    text = "\n".join(explain(plan("held")))
    assert "not used: GPU 1: it is held by VLLM::Worker_TP1 (process 41208, 22300 MiB)" in text


@pytest.mark.parametrize("name", host_names())
def test_every_host_has_words_and_data_whether_it_is_planned_or_refused(name: str) -> None:
    try:
        made = plan(name)
        assert all(line.strip() for line in explain(made))
        assert json.dumps(as_json(made))
    except CapacityRefused as refused:
        assert json.loads(json.dumps(refusal_json(refused)))["refused"] == refused.what
    except PreflightRefused as refused:  # an old driver has no sum to show
        assert "driver" in refused.what


def test_a_refusal_carries_its_sums_as_data() -> None:
    with pytest.raises(CapacityRefused) as refused:
        plan("one-gpu")
    tried = refusal_json(refused.value)["tried"]
    assert [(one["tensor_parallel"], one["fits"]) for one in tried] == [(1, False), (2, False), (4, True)]
    assert tried[0]["short_bytes"] > 0
