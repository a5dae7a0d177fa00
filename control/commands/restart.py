"""`restart`: replicas one at a time, so that no stream is cut and no request refused."""

from __future__ import annotations

from collections.abc import Sequence

import click

from control.context import Control
from control.core.complaints import did_you_mean
from control.core.errors import FlashboxError, UsageError
from control.options import pass_control
from control.steps import ready, replicas, survey


@click.command("restart")
@click.argument("names", nargs=-1, metavar="[REPLICA...]")
@pass_control
def command(control: Control, names: Sequence[str]) -> None:
    """Restart replicas one at a time; all running ones if none is named.

    The gateway restarts only when it is named: streams in flight finish, new requests wait for it.
    """
    plan = survey.planned(control)
    with control.workspace.changing_stack("ctl.py restart"):
        running = replicas.running(control)
        wanted = _wanted(names, running)
        if wanted:
            replicas.require_gateway(control)
        for name in wanted:
            replicas.bounce(control, plan, name, running)
        if ready.GATEWAY in names:
            replicas.restart_gateway(control)
    done = [*wanted, *([ready.GATEWAY] if ready.GATEWAY in names else [])]
    control.console.say("done", f"{', '.join(done)} restarted", control.console.elapsed_s)


def _wanted(names: Sequence[str], running: Sequence[str]) -> list[str]:
    if not running and set(names) != {ready.GATEWAY}:
        raise FlashboxError("no replica is running", "there is nothing to restart", "python ctl.py up")
    known = [*running, ready.GATEWAY]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UsageError(f"{name}: no such replica is running{hint}", f"running: {', '.join(known)}")
    return [name for name in dict.fromkeys(names) if name != ready.GATEWAY] if names else list(running)
