"""`down`: stop and remove everything but the volumes."""

from __future__ import annotations

import click

from control.context import Control
from control.core.errors import UsageError
from control.options import foreign_option, pass_control
from control.steps import lifecycle


@click.command("down")
@click.option("--volumes", is_flag=True, help="Remove the volumes too: data that cannot be brought back. Asks first.")
@click.option("--yes", is_flag=True, help="Answer yes to that question.")
@foreign_option
@pass_control
def command(control: Control, volumes: bool, yes: bool, foreign: bool) -> None:
    """Stop gracefully, then remove containers and networks of every profile. Volumes and secrets stay."""
    if volumes and not yes and not _agreed():
        raise UsageError("nothing was removed", "the question was not answered with yes", "--yes answers it")
    with control.workspace.changing_stack("ctl.py down"):
        there = lifecycle.take_down(control, volumes, foreign)
    kept = "nothing is left" if volumes else "volumes and secrets stay"
    control.console.say("done", f"{len(there)} containers removed, {kept}", control.console.elapsed_s)


def _agreed() -> bool:
    try:
        return click.confirm("Remove the volumes with all data in them, among it who used how much?", err=True)
    except click.Abort:  # no terminal to ask, or Ctrl-C
        return False
