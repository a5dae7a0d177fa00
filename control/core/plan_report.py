"""A plan as a table for people and as data for programs, whatever the kind.

The report of the kind gpu is imported where it is used: it brings all facts with it, and other kinds need none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from control.core.capacity.terms import GIB
from control.core.errors import PreflightRefused
from control.core.model import Plan, Replica

if TYPE_CHECKING:
    from control.core.capacity.result import GpuPlan

Row = tuple[str, ...]


def describe(plan: Plan) -> str:
    """`2 replicas (stub), both active`; of kind gpu `2 replicas of 4 GPUs (NVIDIA H200, TP 4), both active`."""
    total, active = len(plan.replicas), len(plan.active)
    replicas = f"{total} replica{'' if total == 1 else 's'} ({plan.kind})"
    if plan.gpu is not None:
        from control.core.capacity import report

        replicas = report.summary(plan.gpu)
    if active == total:
        return f"{replicas}, {'both' if total == 2 else 'all' if total > 1 else 'it is'} active"
    return f"{replicas}, {active} active, {total - active} standby"


def columns(plan: Plan) -> Row:
    """Headings; of kind gpu how many requests of each length a replica runs at the same time."""
    if plan.gpu is None:
        return ("replica", "address", "state")
    lengths = (_length(held.tokens) for held in plan.gpu.held)
    return ("replica", "address", "state", "GPUs", "TP", "KV GiB", *lengths, "limit")


def rows(plan: Plan) -> Iterator[Row]:
    """The gateway, then a row for each replica."""
    width = len(columns(plan))
    yield ("gateway", plan.gateway_address, "active", *[""] * (width - 3))
    for replica in plan.replicas:
        own = (replica.name, replica.address, "active" if replica.active else "standby")
        yield own if plan.gpu is None else (*own, *_capacity(plan.gpu, replica))


def _capacity(made: GpuPlan, replica: Replica) -> Row:
    gpus = made.replicas[replica.slot].labels
    held = (str(one.requests) for one in made.held)
    return (gpus, str(made.tensor_parallel), f"{made.budget.kv_bytes / GIB:.1f}", *held, _limit(made))


def _limit(made: GpuPlan) -> str:
    seats, to = made.case.shape.max_num_seqs, made.seats_fill_up_to
    if to == made.case.shape.max_model_len:
        return f"{seats} seats"
    return f"{seats} seats to {to} tokens, then KV cache" if to else "KV cache"


def _length(tokens: int) -> str:
    return f"{tokens // 1024}k" if tokens >= 1024 and tokens % 1024 == 0 else str(tokens)


def warnings(plan: Plan) -> list[str]:
    """What to know before `up`, one line each."""
    if plan.gpu is None:
        return []
    notes = ((note.text, note.source, note.fix) for note in plan.gpu.warnings)
    return [" ".join(filter(None, (text, f"({source})" if source else "", fix))) for text, source, fix in notes]


def explained(plan: Plan) -> list[str]:
    """Every step of the decision; kinds without a sum have none."""
    if plan.gpu is None:
        return []
    from control.core.capacity import report

    return report.explain(plan.gpu)


def as_data(plan: Plan) -> dict[str, Any]:
    """For `plan --json`."""
    return {
        **_capacity_data(plan),
        "kind": plan.kind,
        "gateway_address": plan.gateway_address,
        "ip_range": plan.ip_range,
        "replicas": [_replica(plan, replica) for replica in plan.replicas],
    }


def _capacity_data(plan: Plan) -> dict[str, Any]:
    if plan.gpu is None:
        return {}
    from control.core.capacity import report

    return report.as_json(plan.gpu)


def refusal_data(refused: PreflightRefused) -> dict[str, Any]:
    """For `plan --json`: why there is no plan, with the sums that were tried."""
    from control.core.capacity import refusals, report

    if isinstance(refused, refusals.CapacityRefused):
        return report.refusal_json(refused)
    return {"refused": refused.what, "why": refused.why.splitlines(), "fix": refused.fix}


def _replica(plan: Plan, replica: Replica) -> dict[str, Any]:
    told = {
        "slot": replica.slot,
        "name": replica.name,
        "address": replica.address,
        "active": replica.active,
        "gpus": list(replica.gpus),
    }
    if plan.gpu is not None:
        told["indexes"] = [member.gpu.index for member in plan.gpu.replicas[replica.slot].members]
    return told
