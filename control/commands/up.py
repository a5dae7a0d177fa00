"""`up`: from settings to an answering gateway, one line a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from control.context import Control
from control.core.errors import FlashboxError
from control.core.model import Plan
from control.core.plan_report import describe
from control.options import pass_control, profile_option, settings_option
from control.steps import images, lifecycle, prepare, published, ready, replicas, survey


@click.command("up")
@profile_option
@settings_option
@click.option("--keep", is_flag=True, help="Leave what was started when it does not become ready, to look at it.")
@click.option("--timeout", type=click.FloatRange(min=1), metavar="SECONDS", help="Longest wait for the replicas.")
@pass_control
def command(control: Control, profiles: Sequence[str], keep: bool, timeout: float | None) -> None:
    """Start the stack and wait until it answers. May be run again at any time."""
    control.choose("up", profiles)
    plan = survey.planned(control)
    control.console.say("plan", describe(plan))
    with control.workspace.changing_stack("ctl.py up"):
        survey.checked(control, plan)
        prepare.initialise(control)
        _render(control, plan)
        _images(control, plan)
        ready.await_drained(control)
        with _nothing_half_started(control, keep):
            _start(control, plan)
            url = _ready(control, plan, timeout)
            if published.gateway_sees(control) is False:  # run/ was deleted and made anew while the gateway ran
                replicas.restart_gateway(control)
    control.console.say("done", f"{url}/v1", control.console.elapsed_s)
    control.console.note("key:     python ctl.py keys add NAME --owner YOU")


def _render(control: Control, plan: Plan) -> None:
    with control.console.step("render") as step:
        rendered, changed = prepare.publish(control, plan)
        step.text = prepare.told(rendered, changed)
    if prepare.needs_gateway_restart(changed) and lifecycle.anything_runs(control):
        control.console.say(
            "note", "the gateway's bootstrap changed: `python ctl.py gateway apply` takes it up, no stream is cut"
        )


def _images(control: Control, plan: Plan) -> None:
    with control.console.step("images") as step:
        step.text = images.obtain(control, images.for_plan(control, plan)).text


def _start(control: Control, plan: Plan) -> None:
    with control.console.step("start", ", ".join([ready.GATEWAY, *ready.SERVICES, *(r.name for r in plan.active)])):
        lifecycle.start(control, plan)


def _ready(control: Control, plan: Plan, timeout: float | None) -> str:
    names = [replica.name for replica in plan.active]
    ready.await_replicas(control, names, timeout or ready.start_limit_s(control.settings))
    ready.await_services(control)
    url = ready.await_gateway(control)
    control.console.say("ready", f"{len(names)} of {len(names)} replicas")
    return url


@contextmanager
def _nothing_half_started(control: Control, keep: bool) -> Iterator[None]:
    """A start that fails takes back what it started. A stack that ran before is left alone; so is one after Ctrl-C."""
    ran_before, choices_before = lifecycle.anything_runs(control), control.workspace.choices()
    # From here on: `keys add` and `status` in another shell need them while replicas load.
    control.workspace.remember(control.choices)
    try:
        yield
    except FlashboxError:
        control.workspace.remember(choices_before)
        if ran_before:
            now = ", ".join(lifecycle.running(control.dockerd)) or "none"
            control.console.note(
                f"the stack ran before this command, so nothing is taken down; containers that run: {now}"
            )
        elif not keep:
            _undo(control)
        raise
    except KeyboardInterrupt:
        control.console.note("\n`python ctl.py up` goes on from here, `python ctl.py down` takes it back")
        raise


def _undo(control: Control) -> None:
    """Take back; what goes wrong here is only noted, since why the start failed is what the operator needs to know."""
    control.console.say("undo", "stopping and removing what was started")
    try:
        lifecycle.take_down(control)
    except FlashboxError as broken:
        control.console.note(f"warning  {broken.what}: python ctl.py down")
