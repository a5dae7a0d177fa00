"""Above the line of no impact: what would run here, and does the machine allow it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import yaml

from control.context import Control
from control.core import host_snapshot, plan_report
from control.core.checks import CHECKS, Finding, Report, Situation, run
from control.core.complaints import found
from control.core.errors import PreflightRefused
from control.core.model import Host, Plan
from control.core.planning import plan_capacity
from control.core.settings import Settings

PLANNED_FROM = (
    "engine.kind",
    "engine.replicas",
    "autoscaler.enabled",
    "autoscaler.min_replicas",
    "network.engine_subnet",
)
# The kind gpu follows from these too.
PLANNED_ON_GPUS = (
    "weights.model",
    "weights.path",
    "engine.release",
    "engine.preset",
    "engine.max_model_len",
    "engine.max_num_seqs",
    "engine.max_num_batched_tokens",
    "engine.tensor_parallel",
    "engine.gpu_uuids",
    "engine.gpu_memory_utilization",
    "engine.speculation",
    "engine.cuda_compatibility",
    "engine.extra_args",
)


def planned(control: Control) -> Plan:
    """The plan for this machine, or the reason why there is none."""
    return plan_capacity(control.settings, control.host, control.facts)


def elsewhere(control: Control, text: str, path: str) -> Plan:
    """The plan for a machine that a file describes, seen from nowhere else."""
    inventory = host_snapshot.parse(text, path).inventory
    return plan_capacity(control.settings, Host(inventory=inventory), control.facts)


def examined(control: Control) -> Report:
    """Every check over one snapshot of the machine; a refused plan is one of the findings."""
    plan, refusal = None, None
    try:
        plan = planned(control)
    except PreflightRefused as refused_plan:
        refusal = refused_plan
    return run(CHECKS, Situation(control.settings, control.host, plan, refusal))


def checked(control: Control, plan: Plan) -> None:
    """Run the checks; a fatal finding stops here, before anything is touched."""
    if control.host.docker_error is not None:
        _ = control.dockerd  # raises with the socket's name and the way to mend it, which the check cannot know
    with control.console.step("check") as step:
        report = run(CHECKS, Situation(control.settings, control.host, plan))
        step.text = f"{report.summary()} (python ctl.py doctor)"
    for line in plan_report.warnings(plan):
        control.console.say("warning", line)
    for finding in report.warnings:
        control.console.say("warning", f"{finding.seen.text} ({finding.fix})")
    if report.fatal:
        raise refused(report.fatal)


def refused(fatal: Sequence[Finding]) -> PreflightRefused:
    """All of them at once: mending one to meet the next is a waste of an operator's time."""
    if len(fatal) == 1:
        return PreflightRefused(fatal[0].seen.text, fatal[0].check.why, fatal[0].fix)
    what = "\n".join(f"{finding.check.id}: {finding.seen.text}" for finding in fatal)
    fix = "\n".join(f"{finding.check.id}: {finding.fix}" for finding in fatal)
    return PreflightRefused(what, "python ctl.py doctor says why each of them matters", fix)


def in_words(report: Report) -> Iterator[str]:
    """`doctor` for people: what is wrong first, each with why and fix; then what is fine."""
    for finding in report.findings:
        word = "FAILED" if finding.severity == "fatal" else "warning"
        yield f"{word:<8} {finding.check.id}: {finding.seen.text}".replace("\n", f"\n{'':<9}")
        yield f"{'':<8} why: {finding.check.why}"
        yield f"{'':<8} fix: {finding.fix}"
    for finding in report.could_not_tell:
        yield f"{'unknown':<8} {finding.check.id}: {finding.seen.text}"
    for finding in report.passed:
        yield f"{'ok':<8} {finding.check.id}: {finding.seen.text}"
    yield report.summary()


def reasons(control: Control) -> list[tuple[str, str, str]]:
    """The settings that the plan follows from: name, value, where it comes from."""
    resolved = control.resolved
    paths = (*PLANNED_FROM, *(PLANNED_ON_GPUS if resolved.settings.engine.kind == "gpu" else ()))
    return [(path, found(value_at(resolved.settings, path)), resolved.origins[path]) for path in paths]


def value_at(settings: Settings, path: str) -> object:
    """The value of a setting by its path."""
    here: object = settings
    for name in path.split("."):
        here = getattr(here, name)
    return here


def settings_yaml(settings: Settings) -> str:
    """The whole tree as a person would write it."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)
