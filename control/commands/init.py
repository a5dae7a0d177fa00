"""`init`: make a clone ready for `up` or for plain `docker compose`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from control.context import Control
from control.core.errors import PreflightRefused
from control.core.model import Plan
from control.core.plan_report import describe
from control.core.planning import REHEARSE
from control.options import pass_control, profile_option, settings_option
from control.steps import prepare, survey


@click.command("init")
@profile_option
@settings_option
@pass_control
def command(control: Control, profiles: Sequence[str]) -> None:
    """Write config/stack.yaml, the secrets and the rendered files.

    May be run again at any time: what is yours (config/stack.yaml, secrets) is never overwritten.
    """
    if profiles or control.assignments:
        control.choose("init", profiles)
    console = control.console
    made = prepare.initialise(control)
    console.say("init", ", ".join(made) if made else "config/stack.yaml and secrets were there")
    plan = _planned(control)
    console.say("plan", describe(plan))
    with console.step("render") as step:
        step.text = prepare.told(*prepare.publish(control, plan))
    control.workspace.remember(control.choices)
    console.note("next:    python ctl.py up")


def _planned(control: Control) -> Plan:
    """The plan; without GPUs the way out is this command with the stand-in, after which bare Compose works too."""
    try:
        return survey.planned(control)
    except PreflightRefused as refused:
        fix = refused.fix.replace(REHEARSE, "python ctl.py init --profile stub")
        raise PreflightRefused(refused.what, refused.why, fix) from None
