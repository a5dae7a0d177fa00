"""A plan in words (`plan`, `plan --explain`) and as data (`plan --json`). The sum is shown term by term."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from control.core.capacity.memory import Budget
from control.core.capacity.refusals import CapacityRefused, reasons, sum_lines
from control.core.capacity.result import GpuPlan, Note
from control.core.capacity.terms import GIB, Term

_INDENT = " " * 10


def summary(plan: GpuPlan) -> str:
    """The plan in one line."""
    count = len(plan.replicas)
    each = f"{plan.tensor_parallel} GPUs" if plan.tensor_parallel > 1 else "1 GPU"
    return f"{count} replica{'s' if count != 1 else ''} of {each} ({plan.kind}, TP {plan.tensor_parallel})"


def explain(plan: GpuPlan) -> list[str]:
    """Every step of the decision, line by line."""
    lines = [*_head(plan), *_gpus(plan), *_tried(plan), *_sum(plan.budget), *_cache(plan), *_requests(plan)]
    lines += [*_command(plan), *(line for note in plan.notes for line in _note(note))]
    return lines


def _head(plan: GpuPlan) -> list[str]:
    model, release = plan.case.model, plan.case.release
    driver = f"driver {plan.inventory.driver}" if plan.inventory.driver else "driver unknown"
    how = (
        "with the image's own CUDA libraries" if plan.cuda_compatibility else f"needs {plan.build.min_driver} or newer"
    )
    layers = len(model.architecture.compress_ratios)
    return [
        f"model     {model.title}, {model.repository} at {model.files.revision[:12]}",
        f"{_INDENT}{layers} layers, {model.files.shards} shards, {model.files.safetensors_bytes / GIB:.1f} GiB",
        f"release   vLLM {release.version}, image for CUDA {plan.build.cuda}; {driver} ({how})",
        f"preset    {plan.case.shape.preset}: {plan.case.shape.max_num_batched_tokens} batched tokens, "
        f"{plan.case.shape.max_num_seqs} seats, context {plan.case.shape.max_model_len}",
    ]


def _gpus(plan: GpuPlan) -> list[str]:
    lines = [f"plan      {summary(plan)}{', expert parallel' if plan.expert_parallel else ''}"]
    lines += [f"{_INDENT}engine-{one.slot}: GPU {one.labels}" for one in plan.replicas]
    if plan.spare:
        labels = ", ".join(one.gpu.label.removeprefix("GPU ") for one in plan.spare)
        lines.append(f"{_INDENT}in no replica: GPU {labels}")
    lines += [f"{_INDENT}not used: {line}" for line in reasons(plan.unusable)]
    return lines


def _tried(plan: GpuPlan) -> list[str]:
    lines = sum_lines(plan.tried, plan.case)
    return [f"{'tried' if not place else '':<9} {line}" for place, line in enumerate(lines)]


def _sum(one: Budget) -> list[str]:
    rows = [
        ("memory that CUDA sees", one.usable_bytes / GIB, "host", "total less what the driver keeps"),
        (f"x {one.utilization:g}", one.allowed_bytes / GIB, "setting", "engine.gpu_memory_utilization"),
        *((f"- {term.name}", -term.gib, term.basis, term.how) for term in one.terms),
        ("= KV cache", one.kv_bytes / GIB, "computed", f"{one.rows} rows of {one.row_bytes} bytes"),
    ]
    lines = [f"memory    of one GPU, in GiB (the smallest of its kind), TP {one.tensor_parallel}"]
    lines += [f"{_INDENT}{gib:9.2f}  {name:<24} {basis:<9}  {how}" for name, gib, basis, how in rows]
    lines.append("weights   of one GPU, in GiB")
    return lines + [f"{_INDENT}{term.gib:9.2f}  {term.name:<24} {term.basis:<9}  {term.how}" for term in one.weights]


def _cache(plan: GpuPlan) -> list[str]:
    one, case = plan.budget, plan.case
    flight = one.in_flight_rows * one.row_bytes / GIB
    least = one.least_requests * one.request_rows
    batched, longest = case.shape.max_num_batched_tokens, case.shape.max_model_len
    logged = case.kv.logged_concurrency(one.rows, batched, case.batches, longest)
    tokens = case.kv.logged_tokens(one.rows, batched, case.batches, longest)
    return [
        f"cache     {one.in_flight_rows} rows ({flight:.2f} GiB) are held while prefill is in flight: "
        f"{case.batches} batches of {batched} tokens",
        f"{_INDENT}a request of n tokens holds n/{case.kv.block_tokens} + {case.kv.tail_rows()} rows; at least "
        f"{one.least_requests} of {longest} tokens ({least} rows) must fit",
        f'{_INDENT}the engine will log about {tokens} tokens and "{logged:.2f}x": its worst case, no capacity',
    ]


def _requests(plan: GpuPlan) -> list[str]:
    count = len(plan.replicas)
    lines = [f"requests  at the same time, for each of {count} replica{'s' if count != 1 else ''}"]
    lines += [
        f"{_INDENT}{one.requests:9d}  of {one.tokens} tokens, limited by {one.limited_by} "
        f"(the cache holds {one.cache_holds})"
        for one in plan.held
    ]
    seats = plan.case.shape.max_num_seqs
    if plan.seats_fill_up_to:
        lines.append(f"limit     engine.max_num_seqs ({seats}) up to {plan.seats_fill_up_to} tokens, KV cache beyond")
    else:
        lines.append(f"limit     KV cache: it holds fewer than engine.max_num_seqs ({seats}) even of short requests")
    return lines


def _command(plan: GpuPlan) -> list[str]:
    lines = [f"command   {shlex.join(plan.serve.args)}"]
    lines += [f"{_INDENT}{name}={value}" for name, value in plan.serve.environment.items()]
    return lines + [f"left out  {' '.join(one.words)}: {one.why}" for one in plan.serve.left_out]


def _note(note: Note) -> Iterable[str]:
    word = "warning" if note.severity == "warn" else "note"
    yield f"{word:<9} {note.text}{f' ({note.source})' if note.source else ''}"
    if note.fix:
        yield f"{_INDENT}{note.fix}"


def as_json(plan: GpuPlan) -> dict[str, Any]:
    """The plan as plain data; bytes are whole numbers, so that the sum can be added up again."""
    return {
        "kind": "gpu",
        **_choice_json(plan),
        "replicas": [
            {"name": f"engine-{one.slot}", "gpus": list(one.uuids), "indexes": [m.gpu.index for m in one.members]}
            for one in plan.replicas
        ],
        "spare": [one.gpu.uuid for one in plan.spare],
        "memory": budget_json(plan.budget),
        "tried": [budget_json(one) for one in plan.tried],
        "requests": [
            {
                "tokens": held.tokens,
                "requests": held.requests,
                "cache_holds": held.cache_holds,
                "limited_by": held.limited_by,
            }
            for held in plan.held
        ],
        "seats_fill_up_to_tokens": plan.seats_fill_up_to,
        "unusable": [{"gpu": one.gpu.label, "id": one.id, "why": one.why} for one in plan.unusable],
        "notes": [_note_json(note) for note in plan.notes],
        "serve": {
            "args": list(plan.serve.args),
            "environment": dict(plan.serve.environment),
            "left_out": [{"words": list(one.words), "why": one.why} for one in plan.serve.left_out],
        },
    }


def _choice_json(plan: GpuPlan) -> dict[str, Any]:
    case, shape = plan.case, plan.case.shape
    return {
        "model": {"name": case.model.name, "revision": case.model.files.revision},
        "release": case.release.version,
        "cuda": plan.build.cuda,
        "driver": plan.inventory.driver,
        "cuda_compatibility": plan.cuda_compatibility,
        "gpu": plan.kind,
        "product": plan.product,
        "tensor_parallel": plan.tensor_parallel,
        "expert_parallel": plan.expert_parallel,
        "preset": shape.preset,
        "max_model_len": shape.max_model_len,
        "max_num_seqs": shape.max_num_seqs,
        "max_num_batched_tokens": shape.max_num_batched_tokens,
    }


def budget_json(one: Budget) -> dict[str, Any]:
    """The sum of one GPU: allowed = terms + kv_cache, to the byte."""
    return {
        "tensor_parallel": one.tensor_parallel,
        "usable_bytes": one.usable_bytes,
        "utilization": one.utilization,
        "allowed_bytes": one.allowed_bytes,
        "terms": [_term_json(term) for term in one.terms],
        "weights": [_term_json(term) for term in one.weights],
        "kv_cache_bytes": one.kv_bytes,
        "row_bytes": one.row_bytes,
        "rows": one.rows,
        "in_flight_rows": one.in_flight_rows,
        "rows_of_a_full_request": one.request_rows,
        "least_requests": one.least_requests,
        "short_bytes": one.short_bytes,
        "fits": one.fits,
    }


def refusal_json(error: CapacityRefused) -> dict[str, Any]:
    """A refusal as data, for `plan --json`."""
    return {
        "refused": error.what,
        "why": error.why.splitlines(),
        "fix": error.fix,
        "tried": [budget_json(one) for one in error.tried],
        "unusable": [{"gpu": one.gpu.label, "id": one.id, "why": one.why} for one in error.unusable],
    }


def _term_json(term: Term) -> Mapping[str, object]:
    return {"name": term.name, "bytes": term.bytes, "basis": term.basis, "how": term.how}


def _note_json(note: Note) -> Mapping[str, object]:
    return {"id": note.id, "severity": note.severity, "text": note.text, "fix": note.fix, "source": note.source}
