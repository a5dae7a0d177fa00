"""What is said when nothing can be planned: the sum, what is missing, and what would do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from control.core.capacity.case import Case
from control.core.capacity.choose import Choice, Unusable
from control.core.capacity.layout import Attempt
from control.core.capacity.memory import Budget, budget
from control.core.capacity.terms import GIB
from control.core.errors import PreflightRefused
from control.core.gpus import Inventory

REHEARSE = "To rehearse the whole stack without a GPU: python ctl.py up --profile stub"
_CURES = {
    "capability": "Hopper GPUs (compute capability 9.0: H100, H800, H200, H20) can serve it.",
    "mig": "Turn MIG off: nvidia-smi -i N -mig 0, with no process on the GPU.",
    "held": "End the processes that hold the GPUs, or name free ones in engine.gpu_uuids. Nothing is killed for you.",
    "crowded": "Lower engine.gpu_memory_utilization.",
    "memory": "Run nvidia-smi as root and read why the memory is not shown.",
    "recovery": "Do what the driver asks for, then try again.",
    "fault": "Reset the GPU: nvidia-smi -r -i N, or reboot.",
    "vgpu": "Pass whole GPUs through to this machine.",
    "display": "Use GPUs that drive no display.",
    "unlisted": "Name more GPUs in engine.gpu_uuids, or empty it.",
    "uuid": "Run nvidia-smi -L as root: it prints the UUIDs.",
}


class CapacityRefused(PreflightRefused):
    """Refused with the sums that were tried, so that `plan --json` can show them."""

    def __init__(
        self, what: str, why: str, fix: str, tried: Sequence[Budget] = (), unusable: Sequence[Unusable] = ()
    ) -> None:
        super().__init__(what, why, fix)
        self.tried = tuple(tried)
        self.unusable = tuple(unusable)


def nothing_to_ask(inventory: Inventory) -> PreflightRefused | None:
    """No answer, or no GPU at all."""
    if inventory.gpus is None:
        problem = inventory.problem or "nvidia-smi is missing or gave no answer"
        return CapacityRefused("engine.kind is gpu and the GPUs of this host could not be read", problem, REHEARSE)
    if not inventory.gpus:
        problem = inventory.problem or "nvidia-smi lists none."
        return CapacityRefused("engine.kind is gpu and this host has no NVIDIA GPU", problem, REHEARSE)
    return None


def none_can_serve(choice: Choice, model: str) -> PreflightRefused:
    """Every GPU has a reason against it."""
    cures = dict.fromkeys(_CURES[one.id] for one in choice.unusable)
    return CapacityRefused(
        f"no GPU of this host can serve {model}",
        "\n".join(reasons(choice.unusable)),
        " ".join((*cures, REHEARSE)),
        unusable=choice.unusable,
    )


def reasons(unusable: Sequence[Unusable]) -> list[str]:
    """One line for each reason, with the GPUs it holds for: `GPU 0, 1: ...`."""
    by_reason: dict[str, list[str]] = {}
    for one in unusable:
        by_reason.setdefault(one.why, []).append(one.gpu.label.removeprefix("GPU "))
    return [f"GPU {', '.join(labels)}: {why}" for why, labels in by_reason.items()]


def does_not_fit(case: Case, attempt: Attempt, choice: Choice) -> PreflightRefused:
    """GPUs that can serve are there, and they are too few or too small."""
    count, chosen = len(attempt.candidates), attempt.chosen
    if chosen is not None:
        size = chosen.tensor_parallel
        too_few = "is too few" if count == 1 else "are too few"
        what = f"{count} x {attempt.kind} {too_few} for {case.model.name}: a replica needs {size} GPUs"
    else:
        what = f"{count} x {attempt.kind} cannot hold {case.model.name}"
    return CapacityRefused(
        what,
        "\n".join((*sum_lines(attempt.tried, case), *reasons(choice.unusable))),
        _fix(case, attempt),
        tried=attempt.tried,
        unusable=choice.unusable,
    )


def _fix(case: Case, attempt: Attempt) -> str:
    count = len(attempt.candidates)
    least = min(one.usable_bytes for one in attempt.candidates)
    sums = [budget(case, least, tp) for tp in sorted(case.model.support.tensor_parallel)]
    fits = next((one.tensor_parallel for one in sums if one.fits), None)
    parts = []
    changed = _smaller(case, attempt)
    if fits is not None and fits <= count:
        parts.append(f"TP {fits} fits: leave engine.tensor_parallel out.")
    elif changed:
        parts.append(f"By the same sum this fits, untried: {changed}.")
    if fits is not None and fits > count:
        parts.append(f"{fits} GPUs of this kind hold it.")
    return " ".join((*parts, REHEARSE))


def _smaller(case: Case, attempt: Attempt) -> str:
    """The least change of settings at which the GPUs that are there would do; empty when there is none."""
    most = max(
        (one.tensor_parallel for one in attempt.tried if one.tensor_parallel <= len(attempt.candidates)), default=0
    )
    if not most:
        return ""
    shape, least = case.shape, min(one.usable_bytes for one in attempt.candidates)
    steps = [tokens for tokens in (4096, 2048) if shape.max_num_seqs <= tokens < shape.max_num_batched_tokens]
    lengths = [length for length in (65_536, 32_768) if length < shape.max_model_len]
    shares = [share for share in (0.92, 0.95) if share > shape.utilization]
    choices = product([None, *steps], [None, *lengths], [None, *shares])
    for tokens, length, share in sorted(choices, key=lambda one: sum(value is not None for value in one)):
        changed = replace(
            shape,
            max_num_batched_tokens=tokens or shape.max_num_batched_tokens,
            max_model_len=length or shape.max_model_len,
            utilization=share or shape.utilization,
        )
        if budget(replace(case, shape=changed), least, most).fits:
            named = {"max_num_batched_tokens": tokens, "max_model_len": length, "gpu_memory_utilization": share}
            return " ".join(f"--set engine.{name}={value}" for name, value in named.items() if value)
    return ""


def sum_lines(tried: Sequence[Budget], case: Case) -> list[str]:
    """The whole sum of one GPU: what must fit, then a line for each TP."""
    if not tried:
        return []
    one = tried[0]
    flight = one.in_flight_rows * one.row_bytes / GIB
    requests = one.least_requests * one.request_rows * one.row_bytes / GIB
    return [
        f"One GPU, in GiB: {one.usable_bytes / GIB:.2f} that CUDA sees x {one.utilization:g} = "
        f"{one.allowed_bytes / GIB:.2f} allowed; the KV cache must hold {flight + requests:.2f}: {flight:.2f} for "
        f"{case.shape.max_num_batched_tokens} batched tokens in flight, {requests:.2f} for {one.least_requests} "
        f"requests of {case.shape.max_model_len} tokens.",
        *(_sum_line(budget) for budget in tried),
    ]


def _sum_line(one: Budget) -> str:
    terms = " - ".join((f"{one.allowed_bytes / GIB:.2f}", *(f"{term.name} {term.gib:.2f}" for term in one.terms)))
    verdict = "it fits" if one.fits else f"short by {one.short_bytes / GIB:.2f}"
    return f"TP {one.tensor_parallel}: {terms} = {one.kv_bytes / GIB:.2f} for KV cache: {verdict}"


def too_many_replicas(asked: int, attempt: Attempt, tensor_parallel: int) -> PreflightRefused:
    """engine.replicas is more than the GPUs allow."""
    count = len(attempt.candidates)
    return CapacityRefused(
        f"engine.replicas: {asked} replicas of {tensor_parallel} GPUs need {asked * tensor_parallel}, and {count} x "
        f"{attempt.kind} can serve",
        f"Two replicas never share a GPU; {len(attempt.groups)} can be planned.",
        f"Set engine.replicas to {len(attempt.groups)} or less, or leave it out.",
        tried=attempt.tried,
    )
