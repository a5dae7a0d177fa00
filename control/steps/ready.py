"""Waits until replicas and gateway are ready, says their phases, and gives up with a reason."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

from control.adapters import compose
from control.adapters.gateway_client import GatewayClient
from control.context import Control
from control.core import kinds, phases
from control.core.errors import FlashboxError, NotHealthyInTime
from control.core.model import ContainerState
from control.core.phases import GateState
from control.core.settings import Settings

LOOK_EVERY_S = 1.0
MAX_DEATHS = 3  # a replica that Docker had to restart this often while we waited will not come up
GATEWAY_S = 60.0  # for the gateway once the replicas are ready: its health checks have to see them
LAST_LINES = 20
GATEWAY = "gateway"
POLICY = "policy"
BUDGET = "budget"
SERVICES: Mapping[str, str] = {POLICY: "the policy service", BUDGET: "the budget service"}
SERVICE_S = 60.0  # seconds until such a service is healthy; it needs about two
DRAIN_MARGIN_S = 15.0  # what Compose adds before it kills
SAY_EVERY_S = 10.0
ENDED = ("container missing", "container exited", "container dead", "container created")
Gates = Mapping[str, GateState | None]


def start_limit_s(settings: Settings) -> float:
    """The gate gives up by itself at start_timeout_s; a little later so do we."""
    return kinds.start_timeout_s(settings) + GATEWAY_S


def await_drained(control: Control) -> None:
    """Wait for what an interrupted stop left on its way out: Compose takes it for running, and it would end later."""
    engine, begun, said = control.settings.engine, time.monotonic(), -SAY_EVERY_S
    limit_s = engine.notice_s + engine.drain_s + DRAIN_MARGIN_S
    while True:
        leaving = [s.service for s in control.dockerd.states() if s.phase == "draining" or s.status == "removing"]
        waited = time.monotonic() - begun
        if not leaving or waited > limit_s:
            return
        if waited - said >= SAY_EVERY_S:
            control.console.say("drain", f"{', '.join(leaving)}: on the way out; started again after that", waited)
            said = waited
        time.sleep(LOOK_EVERY_S)


def await_replicas(control: Control, names: Collection[str], timeout_s: float) -> None:
    """Return when each replica's gate says ready; raise NotHealthyInTime with phase and last log lines."""
    begun, deaths = time.monotonic(), control.dockerd.restarts()
    before: Gates = {}
    revived: set[str] = set()
    while True:
        now = control.dockerd.gates(names)
        waited = time.monotonic() - begun
        for line in phases.changes(before, now):
            control.console.say("wait" if " " in line.verb else line.verb, line.text, waited)
        if len(phases.ready(now)) == len(now):
            return
        ended_well = _ended_well(now) - revived
        if ended_well and waited <= timeout_s:
            _start_again(control, sorted(ended_well))
            revived |= ended_well
        elif waited > timeout_s or _hopeless(control, now, deaths):
            raise _never_ready(control, now, waited)
        before = now
        time.sleep(LOOK_EVERY_S)


def _ended_well(gates: Gates) -> set[str]:
    """Replicas that ended with exit code 0: they finished draining, and nothing is wrong with them."""
    ended = ((name, gate) for name, gate in gates.items() if gate is not None and gate.phase == "container exited")
    return {name for name, gate in ended if gate.last_error == "exit code 0"}


def _start_again(control: Control, names: Sequence[str]) -> None:
    """Once for each container: it was on its way out when this command came."""
    from control.steps.lifecycle import project  # which imports this module

    control.console.say("start", f"{', '.join(names)}: ended after draining, started again")
    control.shell.run(compose.start(project(control), names))


def _hopeless(control: Control, gates: Gates, deaths_before: Mapping[str, int]) -> bool:
    """Is waiting longer pointless? A container that Docker restarts gets a few chances."""
    ended = any(gate is not None and gate.phase.startswith(ENDED) for gate in gates.values())
    deaths = control.dockerd.restarts()
    return ended or any(deaths.get(name, 0) - deaths_before.get(name, 0) >= MAX_DEATHS for name in gates)


def _never_ready(control: Control, gates: Gates, waited_s: float) -> NotHealthyInTime:
    late = set(gates) - set(phases.ready(gates))
    logs = {name: control.dockerd.last_lines(name, LAST_LINES).splitlines() for name in late}
    return phases.never_ready(gates, waited_s, logs)


def url_of(address: tuple[str, int] | None, tls: bool) -> str | None:
    """The gateway as a client on this host reaches it."""
    if address is None:
        return None
    host, port = address
    if host in ("", "0.0.0.0"):
        host = "127.0.0.1"
    shown = f"[{'::1' if host == '::' else host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{port}"


def gateway_url(control: Control) -> str | None:
    return url_of(control.dockerd.gateway_address(), control.workspace.certificate() is not None)


def client_of(control: Control, url: str) -> GatewayClient:
    """A client of this clone's gateway, which must show the certificate that is published."""
    return GatewayClient(url, control.workspace.certificate())


def require_gateway(control: Control) -> str:
    url = gateway_url(control)
    if url is None:
        raise FlashboxError("the gateway is not running", "no container of it publishes a port", "python ctl.py up")
    return url


def await_gateway(control: Control, timeout_s: float = GATEWAY_S, good: Collection[int] = (200,)) -> str:
    """Return the gateway's URL once /health answers well: 200 is at least one healthy replica, 503 none."""
    begun, revived = time.monotonic(), False
    while True:
        url = gateway_url(control)
        status = client_of(control, url).health() if url else None
        if url and status in good:
            return url
        state = next((s for s in control.dockerd.states(phases=False) if s.service == GATEWAY), None)
        if state is not None and (state.status, state.exit_code) == ("exited", 0) and not revived:
            _start_again(control, (GATEWAY,))
            revived = True
            continue
        gone = state is None or state.status in ("exited", "dead")
        if gone or time.monotonic() - begun > timeout_s:
            raise _gateway_not_healthy(control, state, status)
        time.sleep(LOOK_EVERY_S / 4)


def await_services(control: Control, names: Collection[str] = tuple(SERVICES), timeout_s: float = SERVICE_S) -> None:
    """Return once Docker's health checks of the gateway's services are content.

    Without the policy service no request with a body passes; without the budget service nothing is counted.
    """
    for name in names:
        _await_service(control, name, timeout_s)


def _await_service(control: Control, name: str, timeout_s: float) -> None:
    begun, revived = time.monotonic(), False
    while True:
        state = next((s for s in control.dockerd.states(phases=False) if s.service == name), None)
        if state is not None and (state.status, state.health) == ("running", "healthy"):
            return
        if state is not None and (state.status, state.exit_code) == ("exited", 0) and not revived:
            _start_again(control, (name,))
            revived = True
            continue
        gone = state is None or state.status in ("exited", "dead")
        if gone or time.monotonic() - begun > timeout_s:
            raise _service_not_healthy(control, name, state)
        time.sleep(LOOK_EVERY_S / 4)


def _service_not_healthy(control: Control, name: str, state: ContainerState | None) -> NotHealthyInTime:
    seen = f"container {state.status}, health {state.health}" if state else "its container is missing"
    log = "".join(f"\n  {line}" for line in control.dockerd.last_lines(name).splitlines())
    return NotHealthyInTime(
        f"{SERVICES[name]} did not become healthy",
        f"{seen}\nits last log lines:{log}",
        f"python ctl.py logs {name}; python ctl.py render --check",
    )


def _gateway_not_healthy(control: Control, state: ContainerState | None, status: int | None) -> NotHealthyInTime:
    answer = f"/health answers {status}" if status else "/health does not answer"
    log = "".join(f"\n  {line}" for line in control.dockerd.last_lines(GATEWAY).splitlines())
    why = f"{answer}, container {state.status if state else 'missing'}\nits last log lines:{log}"
    return NotHealthyInTime(
        "the gateway did not become healthy", why, "python ctl.py logs gateway; python ctl.py doctor"
    )
