"""Start and stop the whole stack in the right order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from control.adapters import compose
from control.context import Control
from control.core import wiring
from control.core.errors import FlashboxError, PreflightRefused, UsageError
from control.core.model import Plan
from control.core.settings import Settings
from control.steps.ready import GATEWAY

if TYPE_CHECKING:  # heavy: the SDK
    from control.adapters.dockerd import Dockerd

UP = ("running", "restarting", "paused")


def profiles(settings: Settings) -> tuple[str, ...]:
    """The Compose profiles that the settings switch on."""
    on = {"monitoring": settings.monitoring.enabled, "autoscale": settings.autoscaler.enabled}
    return tuple(name for name in wiring.PROFILES if on[name])


def start(control: Control, plan: Plan) -> None:
    """Make the standby replicas without starting them, then start everything active."""
    on = profiles(control.settings)
    name = project(control)
    if plan.standby:
        control.shell.run(compose.create(name, (*on, wiring.STANDBY_PROFILE), [r.name for r in plan.standby]))
    control.shell.run(compose.up(name, on))


def anything_runs(control: Control) -> bool:
    return bool(running(control.dockerd))


def running(dockerd: Dockerd) -> list[str]:
    """Services of the project whose container runs now."""
    return [state.service for state in dockerd.states(phases=False) if state.status in UP]


def project(control: Control) -> str:
    """The project of this clone: what was rendered last, else what the settings say, else the default."""
    try:
        rendered = control.workspace.rendered_project()
        if rendered:
            return _named_well(rendered)
    except UsageError as mangled:
        control.console.note(f"warning  {mangled.what.splitlines()[0]}; the project of the settings counts")
    try:
        return control.settings.project
    except UsageError as broken:
        control.console.note(f"warning  {broken.what.splitlines()[0]}")
        return Settings().project


def _named_well(name: str) -> str:
    """A name that the settings would refuse was not rendered by us; Docker would find nothing under it."""
    try:
        return Settings(project=name).project
    except ValueError:
        raise UsageError(f".env: COMPOSE_PROJECT_NAME: found {name!r}, which is no name of a project") from None


def stop(control: Control, foreign: bool = False) -> list[str]:
    """Gateway first: it refuses new requests and lets streams finish; then the replicas. What ran."""
    name = project(control)
    dockerd = control.dockerd_for(name)
    ran = running(dockerd)
    if not ran:
        return []
    if not foreign:
        _refuse_another_clones(control, dockerd)
    try:
        if GATEWAY in ran:
            with control.console.step("stop", "gateway: drained"):
                control.shell.run(compose.stop(name, (GATEWAY,)))
        others = [service for service in ran if service != GATEWAY]
        with control.console.step("stop", ", ".join(others) or "nothing else"):
            control.shell.run(compose.stop(name, others))
    except FlashboxError as broken:
        _without_files(control, broken)
        dockerd.stop_by_labels()
    _refuse_what_still_runs(dockerd)
    return ran


def take_down(control: Control, volumes: bool = False, foreign: bool = False) -> list[str]:
    """Stop in order, then remove containers and networks of every profile; volumes only when told. What was there."""
    name = project(control)
    dockerd = control.dockerd_for(name)
    there = [state.service for state in dockerd.states(phases=False)]
    stop(control, foreign)
    with control.console.step("remove", "containers and networks" + (", volumes" if volumes else "")):
        try:
            control.shell.run(compose.down(name, volumes))
        except FlashboxError as broken:
            _without_files(control, broken)
        dockerd.remove_by_labels(volumes)  # what Compose could not know of: other files, an older rendering
    _refuse_what_still_runs(dockerd)
    return there


def _refuse_another_clones(control: Control, dockerd: Dockerd) -> None:
    """Two clones may bear one project name; a stop here must not end what another one serves."""
    here = str(control.root.resolve())
    others = [folder for folder in dockerd.folders() if folder != here and Path(folder).is_dir()]
    if others:
        raise PreflightRefused(
            f"the containers of project {dockerd.project} run from {', '.join(others)}, and this is {here}",
            "stopping them here would end what another clone serves",
            f"run the command in {others[0]}, or say --foreign to stop them all the same",
        )


def _refuse_what_still_runs(dockerd: Dockerd) -> None:
    left = running(dockerd)
    if left:
        raise FlashboxError(
            f"still running: {', '.join(left)} of project {dockerd.project}",
            "they were told to stop, and Docker still counts them as running",
            "python ctl.py status shows them; then run the command again",
        )


def _without_files(control: Control, broken: FlashboxError) -> None:
    control.console.note("warning  Compose cannot use the files here, so containers are found by their labels")
    control.console.detail(f"{broken.what}\n{broken.why}")
