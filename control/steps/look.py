"""What runs, as data for programs and as rows for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from control.context import Control
from control.core.model import ContainerState
from control.steps import lifecycle, ready

COLUMNS = ("service", "container", "phase", "for", "detail")


@dataclass(frozen=True)
class Seen:
    """The stack at one moment."""

    project: str
    kind: str | None
    url: str | None  # of the gateway, without /v1; None when it does not run
    health: int | None  # what its /health answered
    states: Sequence[ContainerState]


def look(control: Control) -> Seen:
    """Ask the daemon, each gate, and the gateway as a client would."""
    dockerd = control.dockerd_for(lifecycle.project(control))
    url = ready.url_of(dockerd.gateway_address(), control.workspace.certificate() is not None)
    health = ready.client_of(control, url).health() if url else None
    return Seen(dockerd.project, dockerd.kind(), url, health, dockerd.states())


def as_data(seen: Seen) -> dict[str, object]:
    """For `status --json`."""
    gateway = next((s for s in seen.states if s.service == ready.GATEWAY), None)
    replicas = [s for s in seen.states if _is_replica(s)]
    others = [s for s in seen.states if s is not gateway and not _is_replica(s)]
    return {
        "project": seen.project,
        "kind": seen.kind,
        "url": f"{seen.url}/v1" if seen.url else None,
        "gateway": gateway and {"status": gateway.status, "health": gateway.health, "answers": seen.health},
        "replicas": [_replica(state) for state in replicas],
        "other": [{"name": s.service, "status": s.status, "health": s.health} for s in others],
    }


def _is_replica(state: ContainerState) -> bool:
    return state.service.startswith("engine-")


def _replica(state: ContainerState) -> dict[str, object]:
    return {
        "name": state.service,
        "status": state.status,
        "health": state.health,
        "phase": state.phase,
        "phase_s": state.phase_since_s,
        "detail": state.detail,
    }


def row(state: ContainerState) -> tuple[str, str, str, str, str]:
    """One container under COLUMNS."""
    code = f" ({state.exit_code})" if state.exit_code is not None else ""
    since = "" if state.phase_since_s is None else f"{state.phase_since_s:.0f} s"
    return state.service, state.status + code, state.phase or state.health or "", since, state.detail


def verdict(seen: Seen) -> str:
    """The last line: where the gateway is and whether it answers."""
    if seen.url is None:
        return "the gateway is not running"
    words = {200: "answers", None: "does not answer"}
    return f"{seen.url}/v1 ({words.get(seen.health, f'answers {seen.health}: no replica is ready')})"
