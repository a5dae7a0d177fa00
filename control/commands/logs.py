"""`logs`: what the containers said."""

from __future__ import annotations

from collections.abc import Sequence

import click

from control.adapters import compose
from control.context import Control
from control.core.complaints import did_you_mean
from control.core.errors import UsageError
from control.steps import lifecycle


@click.command("logs")
@click.argument("services", nargs=-1, metavar="[SERVICE...]")
@click.option("-f", "--follow", is_flag=True, help="Go on as new lines come; Ctrl-C ends it.")
@click.option("--tail", default="200", show_default=True, metavar="LINES", help="Last lines of each container, or all.")
@click.pass_context
def command(context: click.Context, services: Sequence[str], follow: bool, tail: str) -> None:
    """Show the logs of the containers."""
    control: Control = context.obj
    if tail != "all" and not tail.isdigit():
        raise UsageError(f'--tail: expected a number of lines or all, found "{tail}"')
    project = lifecycle.project(control)
    known = [state.service for state in control.dockerd_for(project).states(phases=False)]
    if not known:
        control.console.note("no container exists, so there are no logs (python ctl.py up)")
        return
    for name in services:
        if name not in known:
            raise UsageError(
                f"{name}: no such service{did_you_mean(name, known)}", f"there are: {', '.join(known) or 'none'}"
            )
    context.exit(control.shell.attach(compose.logs(project, services, follow, tail)))
