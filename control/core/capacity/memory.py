"""The sum of one GPU: what the engine may take, what it needs, and what is left for the KV cache."""

from __future__ import annotations

from dataclasses import dataclass

from control.core.capacity.case import LEAST_REQUESTS, Case
from control.core.capacity.terms import GIB, Basis, Term, total
from control.core.capacity.weights import draft_terms, weight_terms

LENGTHS = (2048, 9216, 32_768, 131_072)


@dataclass(frozen=True)
class Budget:
    """allowed = the terms + KV cache, to the byte. A negative KV cache is what is missing for the weights alone."""

    tensor_parallel: int
    usable_bytes: int
    utilization: float
    allowed_bytes: int
    terms: tuple[Term, ...]
    weights: tuple[Term, ...]  # the parts of the term `weights`
    row_bytes: int
    in_flight_rows: int
    request_rows: int  # one request of max_model_len
    least_requests: int = LEAST_REQUESTS

    @property
    def kv_bytes(self) -> int:
        return self.allowed_bytes - total(self.terms)

    @property
    def rows(self) -> int:
        return max(0, self.kv_bytes) // self.row_bytes

    @property
    def needed_rows(self) -> int:
        """The prefill in flight, and the least number of requests of full length beside it."""
        return self.in_flight_rows + self.least_requests * self.request_rows

    @property
    def short_bytes(self) -> int:
        """0 when it fits, else what is missing."""
        return max(0, self.needed_rows * self.row_bytes - self.kv_bytes)

    @property
    def fits(self) -> bool:
        return self.short_bytes == 0


@dataclass(frozen=True)
class Held:
    """How many requests of one length a replica runs at the same time, and what stops the next one."""

    tokens: int
    requests: int
    cache_holds: int  # what the KV cache alone would hold
    limited_by: str  # "KV cache" or "max_num_seqs"


def budget(case: Case, usable_bytes: int, tensor_parallel: int) -> Budget:
    """The sum for a GPU of which CUDA sees `usable_bytes`."""
    weights = weight_terms(case.model.architecture, case.model.formats, tensor_parallel)
    if case.shape.speculation:
        weights += draft_terms(case.model, tensor_parallel)
    shape = case.shape
    return Budget(
        tensor_parallel=tensor_parallel,
        usable_bytes=usable_bytes,
        utilization=shape.utilization,
        allowed_bytes=int(usable_bytes * shape.utilization),
        terms=(_weights(weights, tensor_parallel), *_beside(case, tensor_parallel)),
        weights=weights,
        row_bytes=case.kv.row_bytes,
        in_flight_rows=case.kv.in_flight_rows(shape.max_num_batched_tokens, case.batches),
        request_rows=case.kv.request_rows(shape.max_model_len),
    )


def _weights(weights: tuple[Term, ...], tensor_parallel: int) -> Term:
    return Term(
        "weights", total(weights), "computed", f"{len(weights)} terms of the model's config at TP {tensor_parallel}"
    )


def _beside(case: Case, tensor_parallel: int) -> tuple[Term, ...]:
    memory = case.engines.memory
    seen = f"vLLM {memory.measured_release}, {memory.measured_batched_tokens} batched tokens"
    extra, is_allowance = memory.extra_gib(case.release)
    terms = [
        _term("peak activation", memory.activation_gib, "measured", seen),
        _term("CUDA graphs", memory.graphs_gib, "measured", f"{seen}, what the engine sets aside"),
        _term("outside of torch", memory.non_torch_gib, "measured", seen),
    ]
    if tensor_parallel > 1:
        terms.append(_term("NCCL", memory.nccl_allowance_gib, "allowance", "not measured"))
    if extra:
        how = f"as {memory.extra_allowance_since} needs; not known to be cured" if is_allowance else case.release.source
        basis: Basis = "allowance" if is_allowance else "measured"
        terms.append(_term(f"more on {case.release.version}", extra, basis, how))
    return tuple(terms)


def _term(name: str, gib: float, basis: Basis, how: str) -> Term:
    return Term(name, round(gib * GIB), basis, how)


def held(case: Case, one: Budget) -> tuple[Held, ...]:
    """Admitted requests at the usual lengths and at max_model_len."""
    shape = case.shape
    lengths = sorted({length for length in LENGTHS if length < shape.max_model_len} | {shape.max_model_len})
    found = []
    for tokens in lengths:
        fit = case.kv.held(one.rows, shape.max_num_batched_tokens, case.batches, tokens)
        by = "max_num_seqs" if fit > shape.max_num_seqs else "KV cache"
        found.append(Held(tokens, min(fit, shape.max_num_seqs), fit, by))
    return tuple(found)


def seats_fill_up_to(case: Case, one: Budget) -> int:
    """The longest request of which max_num_seqs fit at the same time; 0 when even short ones do not."""
    free = max(0, one.rows - one.in_flight_rows)
    rows = free // case.shape.max_num_seqs - case.kv.tail_rows()
    return min(case.shape.max_model_len, max(0, rows) * case.kv.block_tokens)
