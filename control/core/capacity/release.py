"""Which vLLM release and which of its images fit the model and the driver, and what is known against them."""

from __future__ import annotations

from dataclasses import dataclass

from control.core.capacity.case import Case
from control.core.capacity.result import Note
from control.core.complaints import did_you_mean
from control.core.errors import PreflightRefused, UsageError
from control.core.facts import EngineFacts, ModelFacts, Release
from control.core.facts.base import version_key
from control.core.facts.engines import Build, Report
from control.core.gpus import Inventory
from control.core.settings import Engine


@dataclass(frozen=True)
class DriverFit:
    """The image to run: built for a CUDA that the driver runs."""

    build: Build
    compatibility: bool
    notes: tuple[Note, ...] = ()


def find_release(engine: Engine, model: ModelFacts, engines: EngineFacts) -> Release:
    """The release of the settings, when it is known and can load the model."""
    wanted = engine.release or engines.default_release
    least = model.support.min_release
    if version_key(wanted) < version_key(least):
        raise UsageError(
            f"engine.release: expected {least} or newer, which {model.name} needs, found {wanted}",
            f"Older releases do not know the model ({model.support.source}).",
            f"Leave engine.release out to take {engines.default_release}.",
        )
    release = engines.find(wanted)
    if release is None:
        known = [one.version for one in engines.releases if version_key(one.version) >= version_key(least)]
        hint = did_you_mean(wanted, known)
        raise UsageError(
            f"engine.release: expected one of {', '.join(known)}, found {wanted}{hint}",
            "Nothing is known of its flags, its CUDA and its faults.",
            "Choose a known release, or add it to config/engines.yaml with its sources.",
        )
    _drafts(engine, model, wanted)
    return release


def _drafts(engine: Engine, model: ModelFacts, wanted: str) -> None:
    drafts = model.speculation
    if engine.speculation and drafts and version_key(wanted) < version_key(drafts.min_release):
        raise UsageError(
            f"engine.speculation: expected false, found true: {model.name} drafts from {drafts.min_release} on, "
            f"engine.release is {wanted}",
            fix="Turn engine.speculation off or choose a newer engine.release.",
        )


def fit_driver(engine: Engine, release: Release, engines: EngineFacts, inventory: Inventory) -> DriverFit:
    """The first image of the release that the driver runs; an unknown driver is said, not guessed."""
    verdicts = [(build, _runs(build, inventory)) for build in release.builds]
    good = next((build for build, runs in verdicts if runs), None)
    if good is not None:
        return DriverFit(good, False, _second_choice(good, release))
    if any(runs is None for _, runs in verdicts):
        return DriverFit(release.builds[0], False, (_unknown_driver(release.builds[0]),))
    branches = engines.compatibility.driver_branches
    if engine.cuda_compatibility and inventory.driver_branch in branches:
        return DriverFit(release.builds[0], True, (_compatibility(inventory, engines),))
    raise _driver_too_old(release, inventory, branches)


def _runs(build: Build, inventory: Inventory) -> bool | None:
    if inventory.driver_branch is not None:
        return inventory.driver_branch >= build.min_driver
    if inventory.cuda is not None:
        return version_key(inventory.cuda) >= version_key(build.cuda)
    return None


def _second_choice(build: Build, release: Release) -> tuple[Note, ...]:
    if build == release.builds[0]:
        return ()
    best = release.builds[0]
    text = (
        f"The driver runs the image for CUDA {build.cuda}, not the one for {best.cuda}, which needs {best.min_driver}"
    )
    return (Note("older-cuda", "info", text, f"Driver branch {best.min_driver} or newer runs the main image."),)


def _unknown_driver(build: Build) -> Note:
    text = (
        f"The driver's version could not be learnt; the image for CUDA {build.cuda} needs {build.min_driver} or newer"
    )
    return Note("driver-unknown", "warn", text, "Read it with nvidia-smi before the start.")


def _compatibility(inventory: Inventory, engines: EngineFacts) -> Note:
    text = f"Driver {inventory.driver} is older than the image needs; its own CUDA libraries are used instead"
    fix = "Untried with this model: a newer driver is the sure way."
    return Note("cuda-compatibility", "warn", text, fix, engines.compatibility.source)


def _driver_too_old(release: Release, inventory: Inventory, branches: list[int]) -> PreflightRefused:
    needs = " or ".join(f"{build.min_driver} (CUDA {build.cuda})" for build in release.builds)
    found = f"driver {inventory.driver}" if inventory.driver else f"a driver for CUDA {inventory.cuda}"
    least = min(build.min_driver for build in release.builds)
    fix = f"Install driver branch {release.builds[0].min_driver} or newer ({least} is the least)."
    if inventory.driver_branch in branches:
        fix += (
            " Or try --set engine.cuda_compatibility=true: documented for the branches "
            f"{', '.join(map(str, branches))}, untried with this model."
        )
    return PreflightRefused(
        f"vLLM {release.version} needs driver branch {needs}, found {found}",
        "The attention kernels of this model are built with CUDA 12.9 or newer only.",
        fix,
    )


def faults(case: Case, product: str | None, tensor_parallel: int) -> tuple[Note, ...]:
    """Known faults of this choice; one that is known to end it is refused."""
    notes = []
    for fault in case.engines.faults:
        if not fault.applies(case.release.version, product, tensor_parallel, case.shape.max_model_len):
            continue
        if fault.effect == "refuse":
            raise PreflightRefused(
                f"vLLM {case.release.version} is not planned on this GPU type ({fault.id})",
                f"{fault.what} ({fault.source})",
                fault.workaround,
            )
        notes.append(Note(fault.id, "warn", fault.what, fault.workaround, fault.source))
    return tuple(notes)


def measured(case: Case) -> tuple[Note, ...]:
    """Where the sum rests on something that was not measured for this choice."""
    memory, shape, version = case.engines.memory, case.shape, case.release.version
    notes = []
    if version != memory.measured_release:
        text = f"Activation, graphs and other memory were measured on {memory.measured_release}, not on {version}"
        notes.append(Note("memory-unmeasured", "warn", text, source=memory.source))
    if shape.max_num_batched_tokens > memory.measured_batched_tokens:
        text = (
            f"Peak activation was measured at {memory.measured_batched_tokens} batched tokens; at "
            f"{shape.max_num_batched_tokens} it may be larger"
        )
        notes.append(Note("activation-unmeasured", "warn", text, source=memory.source))
    if shape.speculation:
        text = "The draft's own KV cache and graphs were not measured; its weights are the most that the files allow"
        notes.append(Note("drafts-unmeasured", "warn", text))
    return tuple(notes)


def evidence(case: Case, product: str | None, tensor_parallel: int) -> Note:
    """What was reported from the field about this GPU type, this TP and this release."""
    version = case.release.version
    mine = [r for r in case.engines.reports if product is not None and r.gpu == product]
    exact = [r for r in mine if r.release == version and r.tensor_parallel == tensor_parallel]
    if exact:
        said = "; ".join(_say(report) for report in exact)
        works = all(report.works for report in exact)
        return Note("evidence", "info" if works else "warn", f"Reported for this choice: {said}")
    text = f"No public report of TP {tensor_parallel} on vLLM {version} with this GPU type is known"
    near = [report for report in mine if report.tensor_parallel in (tensor_parallel, None)] or mine
    return Note("evidence", "info", f"{text}; nearest: {'; '.join(map(_say, near))}" if near else text)


def _say(report: Report) -> str:
    how = "works" if report.works else "failed"
    where = f"{report.gpus or 'some'} GPUs" + (f", TP {report.tensor_parallel}" if report.tensor_parallel else "")
    return f"{how} on {report.release or 'another build'} ({where}: {report.note}; {report.source})"
