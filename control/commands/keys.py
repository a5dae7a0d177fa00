"""`keys add`, `list`, `limits`, `rotate`, `revoke`: clients' keys, live without a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from control.context import Control
from control.core import key_list
from control.core import keys as api_keys
from control.options import json_option, pass_control
from control.steps import access, prepare, published

F = TypeVar("F", bound=Callable[..., Any])
LIMITS = {
    "rps": "Requests per second",
    "rpm": "Requests per minute",
    "tpm": "Tokens per minute, prompt and answer",
    "streams": "Requests at the same time",
}


def _limit_options(command: F) -> F:
    """An option for each limit that a key may have of its own."""
    for name in reversed(LIMITS):
        words = f"{LIMITS[name]}; 0: no limit; {api_keys.POLICYS}: the policy's."
        command = click.option(f"--{name}", metavar="N", help=words)(command)
    return command


@click.group("keys")
def command() -> None:
    """Add, list, limit, rotate and revoke API keys. Each change is live within a second and cuts no stream."""


def _show(control: Control, name: str, key: str, live: bool) -> None:
    control.console.note(f"key for {name}, shown this once (only its digest is kept):")
    control.console.data(key)
    if not live:
        control.console.note("nothing is rendered yet: it counts from the next `python ctl.py up`")
    published.require_seen(control)


def _done(control: Control, verb: str, name: str, live: bool) -> None:
    published.require_seen(control)
    control.console.say(verb, name if live else f"{name} (nothing is rendered yet)")


@command.command("add")
@click.argument("name")
@click.option("--owner", required=True, help="Who answers for it: a person or a team.")
@click.option("--expires", help="30d, or 2027-01-31 (the end of that day, UTC). Without it the key does not expire.")
@click.option(
    "--model", "models", multiple=True, help="A model it may ask for; may be repeated. Without it: every one."
)
@_limit_options
@pass_control
def add(
    control: Control, /, name: str, owner: str, expires: str | None, models: tuple[str, ...], **typed: str | None
) -> None:
    """Make a key and show it once; only its digest is kept. Limits of its own can also be given later (limits)."""
    _show(control, name, *access.grant(control, name, owner, expires, models, typed))


@command.command("list")
@json_option
@pass_control
def list_keys(control: Control, as_json: bool) -> None:
    """List the keys: name, owner, id (the start of the digest, as logs show it), dates, models and limits."""
    known, now = prepare.stored_keys(control), access.now()
    if as_json:
        control.console.json(key_list.data(known, now))
    elif known:
        control.console.table(key_list.COLUMNS, list(key_list.rows(known, now)))
    else:
        control.console.data("no keys (python ctl.py keys add NAME --owner YOU)")


@command.command("limits")
@click.argument("name")
@_limit_options
@pass_control
def limits(control: Control, /, name: str, **typed: str | None) -> None:
    """Give a key limits of its own, stronger than the policy's and gateway.limits. Live within a second."""
    _done(control, "limited", name, access.limit(control, name, typed))


@command.command("rotate")
@click.argument("name")
@click.option("--keep", default="24h", show_default=True, help="How long the old key still counts; 0: not at all.")
@pass_control
def rotate(control: Control, name: str, keep: str) -> None:
    """Make a new key under the same name, with the same rights, and show it once."""
    _show(control, name, *access.rotate(control, name, keep))


@command.command("revoke")
@click.argument("name")
@pass_control
def revoke(control: Control, name: str) -> None:
    """Take a key away: requests with it get 401 within a second; streams in flight go on."""
    _done(control, "revoked", name, access.change(control, lambda known: api_keys.revoke(known, name)))
