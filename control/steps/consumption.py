"""Who used how much: asks the service that keeps the ledger, and names whose keys are gone."""

from __future__ import annotations

from control.context import Control
from control.core import budget_status, usage, usage_report
from control.core.errors import FlashboxError
from control.core.usage import By
from control.steps import access, budget_live, prepare
from control.steps.ready import BUDGET


def report(control: Control, by: By, since: str, key: str | None) -> usage_report.Report:
    """The answer to one question; raises where nobody can give it."""
    first = usage.since_day(since, access.now().date())
    known = [one.name for one in prepare.stored_keys(control)]
    text = budget_live.usage(control, first)
    if text is None:
        raise _unread(control)
    lacking = budget_status.of_ledger(budget_status.read(budget_live.state(control)))
    return usage_report.report(usage.read_sums(text), by, first, key, known, lacking)


def _unread(control: Control) -> FlashboxError:
    """Why the ledger could not be asked; what is in it is safe all the same."""
    status = budget_live.container(control)
    if status != "running":
        return FlashboxError(
            "usage cannot be shown",
            f"the ledger is read inside the container {BUDGET}, which {_is(status)}; nothing of it is lost",
            "python ctl.py up, then this command again",
        )
    last = control.dockerd.last_lines(BUDGET, 3)
    return FlashboxError(
        "usage cannot be shown",
        f"the container {BUDGET} runs, but does not give the sums of its ledger\n{last}".rstrip(),
        "python ctl.py logs budget; an image of an older release is replaced by python ctl.py up",
    )


def _is(status: str | None) -> str:
    return "does not exist" if status is None else f"is {status}"
