"""`status`: what runs and how it is."""

from __future__ import annotations

import click

from control.context import Control
from control.options import json_option, pass_control
from control.steps import look


@click.command("status")
@json_option
@pass_control
def command(control: Control, as_json: bool) -> None:
    """Show the gateway, the replicas and their phases."""
    seen = look.look(control)
    if as_json:
        control.console.json(look.as_data(seen))
    elif not seen.states:
        control.console.data(f"no container of project {seen.project} exists (python ctl.py up)")
    else:
        control.console.table(look.COLUMNS, [look.row(state) for state in seen.states])
        control.console.data(f"\n{look.verdict(seen)}")
