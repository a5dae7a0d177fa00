"""Asks the budget service that runs: its counts, its limits, its ledger."""

from __future__ import annotations

from control.context import Control
from control.steps.ready import BUDGET

_ASK = ("/opt/flashbox/venv/bin/python", "-m", "budget")


def state(control: Control) -> str | None:
    """What it says of itself; None if it does not answer."""
    return control.dockerd.run_in(BUDGET, (*_ASK, "state"))


def usage(control: Control, since: str) -> str | None:
    """Sums of every day from this one on, a line each; None if nobody can be asked."""
    return control.dockerd.run_in(BUDGET, (*_ASK, "usage", since))


def container(control: Control) -> str | None:
    """What its container does; None if there is none."""
    states = control.dockerd.states(phases=False)
    return next((seen.status for seen in states if seen.service == BUDGET), None)
