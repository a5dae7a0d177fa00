"""`version`: which flashbox this is."""

from __future__ import annotations

import click

from control.context import Control
from control.options import pass_control


@click.command("version")
@pass_control
def command(control: Control) -> None:
    """Show the version."""
    control.console.data(f"flashbox {control.workspace.version()}")
