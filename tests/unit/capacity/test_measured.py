"""The sum against what a real engine logged: vLLM 0.26.0 on one H200, 2026-11-30."""

from __future__ import annotations

import pytest

from control.core.capacity.kvmodel import KvModel, kv_model
from control.core.capacity.terms import GIB, total
from control.core.capacity.weights import weight_terms
from tests.unit.capacity.world import facts, plan

BATCHED, BATCHES, CONTEXT = 8192, 2, 131_072
# layers, KV cache GiB, bytes of a row, "GPU KV cache size", "Maximum concurrency"
ROWS = [
    (6, 96.53, 95_616, 21_240_992, 162.06),
    (12, 75.31, 276_480, 5_840_000, 44.54),
    (43, 24.31, 1_039_680, 511_933, 3.91),
]


def layout(layers: int) -> KvModel:
    model = facts().model("deepseek-v4-flash")
    return kv_model(model, model.architecture.cut(layers))


@pytest.mark.parametrize(("layers", "gib", "row_bytes", "tokens", "concurrency"), ROWS)
def test_row_bytes_cache_size_and_concurrency_are_what_the_engine_logged(
    layers: int, gib: float, row_bytes: int, tokens: int, concurrency: float
) -> None:
    kv = layout(layers)
    rows = kv.rows(int(gib * GIB))
    assert kv.row_bytes == row_bytes
    assert kv.logged_tokens(rows, BATCHED, BATCHES, CONTEXT) == pytest.approx(tokens, rel=0.01)
    assert kv.logged_concurrency(rows, BATCHED, BATCHES, CONTEXT) == pytest.approx(concurrency, rel=0.01)


def test_the_number_of_rows_is_the_engines_num_gpu_blocks() -> None:
    assert layout(6).rows(int(96.53 * GIB)) == pytest.approx(1_083_992, rel=0.0001)


def test_a_release_that_counts_one_batch_in_flight_logs_the_larger_size() -> None:
    kv = layout(6)
    assert kv.logged_tokens(kv.rows(int(96.53 * GIB)), BATCHED, 1, CONTEXT) == pytest.approx(39_300_000, rel=0.01)


@pytest.mark.parametrize(
    ("what", "logged_percent"),
    [
        ("60 decoding requests of 2100 tokens", 8.4),
        ("one prompt of 120000 tokens", 28.38),
        ("8 x 1024 in a step", 13.46),
    ],
)
def test_cache_usage_is_what_the_engine_reported(what: str, logged_percent: float) -> None:
    kv = layout(43)
    used = {
        "60 decoding requests of 2100 tokens": 60 * kv.request_rows(2100),
        "one prompt of 120000 tokens": kv.in_flight_rows(BATCHED, BATCHES) + kv.context_rows(120_000),
        "8 x 1024 in a step": kv.in_flight_rows(BATCHED, 1) + 8 * kv.context_rows(1024),
    }[what]
    assert used / kv.rows(int(24.31 * GIB)) * 100 == pytest.approx(logged_percent, rel=0.01)


@pytest.mark.parametrize(("layers", "logged"), [(6, 22.75), (12, 42.75)])
def test_weights_are_what_the_engine_loaded(layers: int, logged: float) -> None:
    model = facts().model("deepseek-v4-flash")
    terms = weight_terms(model.architecture.cut(layers), model.formats, 1)
    assert total(terms) / GIB == pytest.approx(logged, rel=0.01)


def test_weights_at_tp_8_are_what_a_public_log_of_eight_h100_shows() -> None:
    model = facts().model("deepseek-v4-flash")
    assert total(weight_terms(model.architecture, model.formats, 8)) / GIB == pytest.approx(20.06, rel=0.01)


def test_a_layer_of_one_gpu_weighs_three_and_a_third_gib() -> None:
    model = facts().model("deepseek-v4-flash")
    twelve, six = (total(weight_terms(model.architecture.cut(n), model.formats, 1)) for n in (12, 6))
    assert (twelve - six) / 6 / GIB == pytest.approx(3.333, rel=0.001)


@pytest.mark.parametrize(
    ("batched", "held"), [(8192, (563, 309, 124, 35)), (4096, (661, 362, 146, 41)), (16_384, (367, 201, 81, 23))]
)
def test_a_pool_of_25_gib_holds_what_the_reference_computed(batched: int, held: tuple[int, ...]) -> None:
    kv = layout(43)
    rows = kv.rows(25 * GIB)
    assert tuple(kv.held(rows, batched, BATCHES, tokens) for tokens in (2048, 9216, 32_768, 131_072)) == held


def test_the_constants_of_the_sum_are_the_measured_ones() -> None:
    terms = {term.name: (round(term.gib, 2), term.basis) for term in plan("dgx-h100").budget.terms}
    assert terms == {
        "weights": (38.02, "computed"),
        "peak activation": (2.66, "measured"),
        "CUDA graphs": (2.19, "measured"),
        "outside of torch": (0.29, "measured"),
        "NCCL": (2.0, "allowance"),
    }
