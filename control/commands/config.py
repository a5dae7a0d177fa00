"""`config show` and `config schema`: the settings that count, and what may be set."""

from __future__ import annotations

import click

from control.context import Control
from control.core import schema, settings_docs
from control.core.complaints import found
from control.options import json_option, pass_control, settings_option
from control.steps.survey import settings_yaml, value_at


@click.group("config")
def command() -> None:
    """Show settings and where they come from."""


@command.command("show")
@click.option("--origin", is_flag=True, help="One setting a line, with the place that set it.")
@json_option
@settings_option
@pass_control
def show(control: Control, origin: bool, as_json: bool) -> None:
    """Show every setting that counts now."""
    resolved, console = control.resolved, control.console
    if as_json and origin:
        console.json(
            {
                path: {"value": value_at(resolved.settings, path), "origin": resolved.origins[path]}
                for path in schema.leaves()
            }
        )
    elif as_json:
        console.json(resolved.settings.model_dump(mode="json"))
    elif origin:
        console.table(
            ("setting", "value", "from"),
            [(path, found(value_at(resolved.settings, path)), resolved.origins[path]) for path in schema.leaves()],
        )
    else:
        console.piece(settings_yaml(resolved.settings))


@command.command("schema")
@pass_control
def show_schema(control: Control) -> None:
    """Print the JSON Schema of config/stack.yaml, for editors."""
    control.console.json(settings_docs.json_schema())
