"""`stop`: drain and stop; everything is kept."""

from __future__ import annotations

import click

from control.context import Control
from control.options import foreign_option, pass_control
from control.steps import lifecycle


@click.command("stop")
@foreign_option
@pass_control
def command(control: Control, foreign: bool) -> None:
    """Stop gracefully: the gateway first (streams in flight finish), then the replicas. Nothing is removed."""
    with control.workspace.changing_stack("ctl.py stop"):
        ran = lifecycle.stop(control, foreign)
    control.console.say(
        "done", f"{len(ran)} containers stopped" if ran else "nothing was running", control.console.elapsed_s
    )
