"""`doctor`: every check of this machine, all at once."""

from __future__ import annotations

import click

from control.context import Control
from control.options import json_option, pass_control, profile_option, settings_option
from control.steps import survey

REFUSED = 3


@click.command("doctor")
@json_option
@profile_option
@settings_option
@pass_control
@click.pass_context
def command(context: click.Context, control: Control, as_json: bool, profiles: tuple[str, ...]) -> None:
    """Check this machine and say how to mend it. Touches nothing."""
    if profiles:
        control.choose("doctor", profiles)
    report = survey.examined(control)
    if as_json:
        control.console.json(report.as_data())
    else:
        for line in survey.in_words(report):
            control.console.data(line)
    if report.fatal:
        context.exit(REFUSED)
