"""`explain`: every rule of the gateway and every check, in words."""

from __future__ import annotations

import click

from control.context import Control
from control.options import json_option, pass_control, settings_option
from control.steps import explaining


@click.command("explain")
@click.argument("wanted", required=False, metavar="[ID]")
@json_option
@settings_option
@pass_control
def command(control: Control, wanted: str | None, as_json: bool) -> None:
    """Say what refuses a request or a start, why, and how to change it. Without ID: list everything."""
    console = control.console
    if wanted:
        found = explaining.explained(control, wanted)
        if as_json:
            console.json(found.as_data())
        else:
            console.data("\n".join(found.lines()))
    elif as_json:
        console.json([{"id": entry.id, "title": entry.title} for entry in explaining.ENTRIES])
    else:
        console.table(("id", "holds when"), [(entry.id, entry.title) for entry in explaining.ENTRIES])
