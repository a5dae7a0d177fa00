"""`probe`: is every door of the gateway closed that should be?"""

from __future__ import annotations

from dataclasses import asdict

import click

from control.context import Control
from control.options import json_option, pass_control
from control.steps import probing


@click.command("probe")
@click.option("--url", metavar="URL", help="Another gateway than this clone's, such as https://llm.example.com.")
@json_option
@pass_control
@click.pass_context
def command(context: click.Context, control: Control, url: str | None, as_json: bool) -> None:
    """Try closed routes, wrong keys, oversized bodies and other tricks from outside; exit 1 if one of them works.

    Uses FLASHBOX_API_KEY if it is set, else a key of its own that is revoked afterwards.
    """
    results = list(probing.tried(control, url))
    failed = [result for result in results if not result.passed]
    if as_json:
        control.console.json([asdict(result) for result in results])
    else:
        rows = [("passed" if r.passed else "FAILED", r.group, r.what, r.sent, r.seen) for r in results]
        control.console.table(("", "group", "tried", "sent", "seen"), rows)
    verdict = f"{len(results) - len(failed)} of {len(results)} passed"
    control.console.say("probe", verdict, control.console.elapsed_s)
    context.exit(1 if failed else 0)
