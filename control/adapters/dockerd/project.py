"""One Compose project as the daemon sees it: containers, phases, addresses; and its removal by labels."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
from docker.errors import NotFound
from docker.models.containers import Container

from control.adapters.dockerd import machine, registry
from control.adapters.dockerd.connection import FAILURES, connect, in_words
from control.core import wiring
from control.core.image_sources import LocalImage
from control.core.model import ContainerState, Host
from control.core.phases import GateState, describe, parse_state

SERVICE = "com.docker.compose.service"
FOLDER = "com.docker.compose.project.working_dir"
GATEWAY = "gateway"
UP = ("running", "restarting", "paused")


class Dockerd:
    """The daemon, asked about one project."""

    def __init__(self, client: docker.DockerClient, project: str) -> None:
        self.client = client
        self.project = project

    @classmethod
    def connect(cls, environ: Mapping[str, str], project: str) -> Dockerd:
        return cls(connect(environ), project)

    # ---- what runs

    def _containers(self) -> list[Container]:
        labels = [f"{machine.PROJECT}={self.project}", "com.docker.compose.oneoff=False"]
        return self.client.containers.list(all=True, filters={"label": labels}, ignore_removed=True)

    def _container(self, service: str) -> Container | None:
        return next((c for c in self._containers() if c.labels.get(SERVICE) == service), None)

    @in_words
    def states(self, phases: bool = True) -> list[ContainerState]:
        """Every container of the project, by service; replicas with the phase that their gate reports."""
        return sorted((_state(c, phases) for c in self._containers()), key=lambda s: _by_number(s.service))

    @in_words
    def gates(self, names: Collection[str]) -> dict[str, GateState | None]:
        """What the gate of each named replica says; a container that does not run speaks for itself."""
        by_name = {c.labels.get(SERVICE): c for c in self._containers()}
        return {name: _spoken(by_name.get(name)) for name in names}

    @in_words
    def restarts(self) -> dict[str, int]:
        """How often Docker has restarted each service by itself since it was started."""
        return {c.labels.get(SERVICE, ""): int(c.attrs.get("RestartCount", 0)) for c in self._containers()}

    @in_words
    def last_lines(self, service: str, lines: int = 15) -> str:
        """The end of a service's log."""
        container = self._container(service)
        return container.logs(tail=lines).decode(errors="replace").rstrip() if container else ""

    @in_words
    def run_in(self, service: str, args: Sequence[str]) -> str | None:
        """Output of a command inside a running container; None if it failed or there is none."""
        container = self._container(service)
        if container is None or container.status != "running":
            return None
        code, output = container.exec_run(list(args), stderr=False)
        return output.decode(errors="replace") if code == 0 else None

    @in_words
    def published(self) -> list[tuple[str, str]]:
        """Service and published port of every running container; an empty port where nothing is published."""
        found = []
        for container in self._containers():
            service = container.labels.get(SERVICE, container.name or "?")
            bound = (container.attrs["NetworkSettings"].get("Ports") or {}).items() if container.status in UP else ()
            ports = [f"{b['HostIp']}:{b['HostPort']}->{port}" for port, bindings in bound for b in bindings or ()]
            found += [(service, port) for port in ports or ([""] if container.status in UP else [])]
        return sorted(found)

    @in_words
    def signal(self, service: str, name: str) -> bool:
        """Send a signal to PID 1 of a running container; False if there is none."""
        container = self._container(service)
        if container is None or container.status != "running":
            return False
        container.kill(signal=name)
        return True

    @in_words
    def gateway_address(self) -> tuple[str, int] | None:
        """Host address and port where the running gateway is published."""
        container = self._container(GATEWAY)
        if container is None or container.status != "running":
            return None
        ports = container.attrs["NetworkSettings"].get("Ports") or {}
        for binding in ports.get(f"{wiring.GATEWAY_PUBLIC_PORT}/tcp") or ():
            return binding["HostIp"], int(binding["HostPort"])
        return None

    @in_words
    def kind(self) -> str | None:
        """The kind of engine of the replicas that run now."""
        replicas = [c for c in self._containers() if wiring.REPLICA_LABEL in c.labels and c.status in UP]
        return next((c.labels.get(wiring.KIND_LABEL) for c in replicas), None)

    @in_words
    def folders(self) -> list[str]:
        """The clones that the running containers were started from, as Compose noted them."""
        found = (c.labels.get(FOLDER) for c in self._containers() if c.status in UP)
        return sorted({os.path.realpath(folder) for folder in found if folder})

    # ---- by labels, when there are no usable Compose files

    @in_words
    def remove_by_labels(self, volumes: bool = False) -> list[str]:
        """Stop gracefully (gateway first) and remove what carries the project's label; say what it was."""
        containers = _gateway_first(self._containers())
        gone = [container.name or "?" for container in containers]
        for container in containers:
            _stop(container)
            with suppress(NotFound):
                container.remove(force=True)
        ours: dict[str, Any] = {"label": f"{machine.PROJECT}={self.project}"}
        others: list[Any] = [*self.client.networks.list(filters=ours)]
        others += self.client.volumes.list(filters=ours) if volumes else []
        for other in others:
            with suppress(NotFound):
                other.remove()
        return [*gone, *(other.name for other in others)]

    @in_words
    def stop_by_labels(self) -> list[str]:
        """Stop gracefully, gateway first; containers and networks stay."""
        running = _gateway_first(c for c in self._containers() if c.status in UP)
        for container in running:
            _stop(container)
        return [container.name or "?" for container in running]

    # ---- images

    def image(self, reference: str) -> LocalImage | None:
        """An image that the daemon has."""
        return registry.local_image(self.client, reference)

    def name_image(self, reference: str, name: str) -> None:
        registry.name_image(self.client, reference, name)

    def registry(self, auth_file: Path | None, silence_s: float) -> registry.Registry:
        """Registries as this daemon reaches them."""
        return registry.Registry(self.client, auth_file, silence_s)

    # ---- the machine

    @in_words
    def complete(self, host: Host, images: Iterable[str] = ()) -> Host:
        """Add what only the daemon knows to a snapshot of the machine."""
        folders = (os.path.realpath(c.labels[FOLDER]) for c in self._containers() if FOLDER in c.labels)
        seen = machine.complete(self.client, host, images)
        if seen.inventory.busy:
            seen = dataclasses.replace(seen, inventory=seen.inventory.owned(self._replica_of()))
        return dataclasses.replace(seen, running_kind=self.kind(), running_project_dir=next(folders, None))

    def _replica_of(self) -> dict[int, str]:
        """Process id on the host -> the replica in whose container it runs."""
        replicas = [c for c in self._containers() if wiring.REPLICA_LABEL in c.labels and c.status in UP]
        return {pid: c.labels[wiring.REPLICA_LABEL] for c in replicas for pid in _processes(c)}


def _processes(container: Container) -> list[int]:
    """Its processes as the host numbers them; none if it has just ended."""
    with suppress(*FAILURES, ValueError):
        answer = container.top()
        column = answer["Titles"].index("PID")
        return [int(row[column]) for row in answer["Processes"] or ()]
    return []


def _state(container: Container, phases: bool) -> ContainerState:
    state = container.attrs["State"]
    count = container.attrs.get("RestartCount", 0)
    seen = ContainerState(
        service=container.labels.get(SERVICE, container.name or "?"),
        status=state["Status"],
        health=(state.get("Health") or {}).get("Status"),
        exit_code=state.get("ExitCode") if state["Status"] in ("exited", "dead", "restarting") else None,
        detail=state.get("Error", "") or (f"restarted {count} times by Docker" if count else ""),
    )
    if not phases or wiring.REPLICA_LABEL not in container.labels or seen.status != "running":
        return seen
    gate = gate_state(container)
    if gate is None:
        return dataclasses.replace(seen, detail=describe(None))
    return dataclasses.replace(
        seen, phase=gate.phase, phase_since_s=gate.phase_s, detail=gate.last_error or seen.detail
    )


def gate_state(container: Container) -> GateState | None:
    """What the replica's gate says of itself; None when it cannot be asked."""
    with suppress(*FAILURES, ValueError):
        code, output = container.exec_run(["python3", wiring.GATE_SCRIPT, "state"], stderr=False)
        return parse_state(json.loads(output)) if code == 0 else None
    return None


def _spoken(container: Container | None) -> GateState | None:
    if container is None:
        return GateState("container missing")
    if container.status == "running":
        return gate_state(container)
    code = container.attrs["State"].get("ExitCode")
    return GateState(f"container {container.status}", last_error=f"exit code {code}")


def _by_number(service: str) -> tuple[str, int]:
    name, _, number = service.rpartition("-")
    return (name, int(number)) if number.isdigit() else (service, -1)


def _gateway_first(containers: Iterable[Container]) -> list[Container]:
    return sorted(containers, key=lambda c: c.labels.get(SERVICE) != GATEWAY)


def _stop(container: Container) -> None:
    """`docker stop` with the container's own grace period, which the SDK adds to its time limit."""
    grace = container.attrs.get("Config", {}).get("StopTimeout") or 10
    with suppress(NotFound):
        container.stop(timeout=grace)
