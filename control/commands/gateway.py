"""`gateway apply` and `gateway status`: settings of the gateway taken up while it serves, and what it goes by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from control.context import Control
from control.core.errors import UsageError
from control.core.gateway_changes import Changes
from control.options import json_option, pass_control, settings_option
from control.steps import apply, gateway_look, published, survey


@click.group("gateway")
def command() -> None:
    """Apply settings of the gateway live, and show what it goes by."""


@command.command("apply")
@settings_option
@click.option("--yes", is_flag=True, help="Do not ask after the difference was shown.")
@click.option("--wait", is_flag=True, help="Wait for an earlier hot restart to end instead of refusing.")
@json_option
@pass_control
def apply_settings(control: Control, yes: bool, wait: bool, as_json: bool) -> None:
    """Take settings of the gateway up while it serves: no stream is cut.

    Envoy judges the files first, then confirms each one; whatever it refuses is taken back. A --set is remembered.
    """
    plan = survey.planned(control)
    published.require_seen(control)
    rendered, changes = apply.wanted(control, plan)
    apply.refuse_new_container(changes)
    restart = apply.await_turn(control, rendered, wait)
    _agree(control, changes, yes)
    with control.workspace.changing_stack("ctl.py gateway apply"), _remembering(control):
        done = apply.apply(control, plan, changes)
    _told(control, done, restart, as_json)


def _agree(control: Control, changes: Changes, yes: bool) -> None:
    if changes.diff:
        control.console.note(changes.diff.rstrip())
    if changes.files and not yes and not _agreed():
        raise UsageError("nothing was applied", "the question was not answered with yes", "--yes answers it")


def _agreed() -> bool:
    try:
        return click.confirm("Apply this?", err=True)
    except click.Abort:  # no terminal to ask, or Ctrl-C
        return False


@contextmanager
def _remembering(control: Control) -> Iterator[None]:
    """A --set holds until the next `up`, as it does after `up`; one that was not applied does not."""
    before = control.workspace.choices()
    if not control.assignments:
        yield
        return
    control.workspace.remember(control.with_own_assignments())
    try:
        yield
    except BaseException:
        control.workspace.remember(before)
        raise


def _told(control: Control, done: apply.Applied, restart: bool, as_json: bool) -> None:
    seconds = control.console.elapsed_s
    if as_json:
        control.console.json({"changed": done.changed, "restarted": done.restarted, "others": list(done.others)})
    if not done.anything:
        control.console.say("done", "nothing to apply: the gateway goes by its settings", seconds)
        return
    how = ", a new Envoy by hot restart" if done.restarted else ""
    control.console.say("done", f"{len(done.changed)} files taken up{how}", seconds)
    if done.others:
        control.console.note(f"not the gateway's, `python ctl.py up` takes it up: {', '.join(done.others)}")


@command.command("status")
@json_option
@pass_control
def status(control: Control, as_json: bool) -> None:
    """Show the gateway's processes, rules, limits, breakers, hosts, and whether it goes by what is rendered."""
    seen = gateway_look.look(control)
    if as_json:
        control.console.json(seen)
        return
    for title, columns, rows in gateway_look.tables(seen):
        control.console.data(f"\n{title}")
        if rows:
            control.console.table(columns, rows)
