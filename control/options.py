"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from control.context import PROFILE_SETTINGS, Control

F = TypeVar("F", bound=Callable[..., Any])
pass_control = click.make_pass_decorator(Control)


def _keep(context: click.Context, _: click.Parameter, value: tuple[str, ...]) -> None:
    context.obj.assignments = value


def settings_option(command: F) -> F:
    """`--set path=value`, the strongest word on a setting."""
    option = click.option(
        "--set",
        multiple=True,
        metavar="PATH=VALUE",
        expose_value=False,
        is_eager=True,
        callback=_keep,
        help="A setting for this command, such as gateway.port=9000. May be given more than once.",
    )
    return option(command)


def profile_option(command: F) -> F:
    """`--profile`, remembered until the next `up` or `init`."""
    option = click.option(
        "--profile",
        "profiles",
        multiple=True,
        type=click.Choice(list(PROFILE_SETTINGS)),
        help="stub, cpu or gpu: the kind of engine; monitoring, autoscale: parts to add. Remembered until the next up.",
    )
    return option(command)


foreign_option = click.option(
    "--foreign", is_flag=True, help="Also when the containers were started from another clone that still exists."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
