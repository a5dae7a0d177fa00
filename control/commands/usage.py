"""`usage`: requests and tokens by key, day or model."""

from __future__ import annotations

import click

from control.context import Control
from control.core import usage_report
from control.core.errors import UsageError
from control.core.usage import By
from control.options import json_option, pass_control
from control.steps import consumption


@click.command("usage")
@click.option("--key", metavar="K", help="Of this key only, by its name; revoked ones too.")
@click.option("--since", default="30d", show_default=True, help="First day (UTC): 2026-11-01, today, or 7d.")
@click.option(
    "--by", type=click.Choice(["key", "day", "model"]), default="key", show_default=True, help="A row for each."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV instead of text, without the sum.")
@json_option
@pass_control
def command(control: Control, key: str | None, since: str, by: By, as_csv: bool, as_json: bool) -> None:
    """Show requests, refusals and tokens of each key, as the engines counted them; nothing of what was said.

    A request ends ok, left (its client went), cut (broken off by a replica or the gateway), refused (4xx) or
    failed (5xx).
    """
    if as_csv and as_json:
        raise UsageError("--csv and --json: one of them at a time")
    found = consumption.report(control, by, since, key)
    if as_json:
        control.console.json(usage_report.data(found))
    elif as_csv:
        control.console.data(usage_report.comma_separated(found))
    else:
        _shown(control, found)
    for line in usage_report.warnings(found):
        control.console.say("warning", line)


def _shown(control: Control, found: usage_report.Report) -> None:
    if found.rows:
        control.console.table(usage_report.columns(found), list(usage_report.table(found)), numbers_from=1)
    for line in usage_report.notes(found):
        control.console.data(line)
