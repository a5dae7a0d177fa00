"""`render`: the files that Docker Compose and Envoy read."""

from __future__ import annotations

import click

from control.context import Control
from control.options import pass_control, settings_option
from control.steps import prepare, survey

STALE = 1


@click.command("render")
@click.option("--check", is_flag=True, help="Write nothing; show what would change and exit 1 if anything would.")
@settings_option
@pass_control
@click.pass_context
def command(context: click.Context, control: Control, check: bool) -> None:
    """Write .env and run/ from the settings, judged by Envoy before anything is replaced."""
    plan = survey.planned(control)
    if check:
        difference = prepare.difference(control, plan)
        control.console.piece(difference)
        context.exit(STALE if difference else 0)
    with control.console.step("render") as step:
        step.text = prepare.told(*prepare.publish(control, plan))
