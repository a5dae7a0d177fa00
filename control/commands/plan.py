"""`plan`: what would run, without touching anything."""

from __future__ import annotations

from pathlib import Path

import click

from control.adapters import files
from control.context import Control
from control.core import plan_report
from control.core.errors import PreflightRefused
from control.core.model import Plan
from control.options import json_option, pass_control, profile_option, settings_option
from control.steps import survey


@click.command("plan")
@json_option
@click.option("--explain", is_flag=True, help="Show every step of the sum, and where the settings come from.")
@click.option(
    "--host",
    "machine",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Plan for the machine that this JSON file describes, not for this one; kind gpu unless --profile says more.",
)
@profile_option
@settings_option
@pass_control
def command(control: Control, as_json: bool, explain: bool, machine: str | None, profiles: tuple[str, ...]) -> None:
    """Show what would run on this machine, or on another one that a file describes. Touches nothing."""
    if profiles or machine:
        control.choose("plan", profiles or ("gpu",))
    try:
        plan = _planned(control, machine)
    except PreflightRefused as refused:
        if as_json:
            control.console.json(plan_report.refusal_data(refused))
        raise
    if as_json:
        control.console.json(plan_report.as_data(plan))
        return
    _show(control, plan, explain)


def _planned(control: Control, machine: str | None) -> Plan:
    if machine is None:
        return survey.planned(control)
    return survey.elsewhere(control, files.read(Path(machine)) or "", machine)


def _show(control: Control, plan: Plan, explain: bool) -> None:
    console = control.console
    console.data(plan_report.describe(plan))
    console.table(plan_report.columns(plan), list(plan_report.rows(plan)))
    if not explain:
        for line in plan_report.warnings(plan):
            console.say("warning", line)
        return
    for line in plan_report.explained(plan):
        console.data(line)
    console.table(("setting", "value", "from"), survey.reasons(control))
