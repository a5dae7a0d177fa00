"""One replica out of service and back without a client noticing: DRAINING, stop, start, ready, HEALTHY."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from control.adapters import compose
from control.context import Control
from control.core import phases, wiring
from control.core.errors import FlashboxError, NotHealthyInTime
from control.core.model import Plan
from control.steps import lifecycle
from control.steps.prepare import publish_endpoints
from control.steps.ready import GATEWAY, LOOK_EVERY_S, await_gateway, await_replicas, start_limit_s
from control.steps.undo import surely

SEEN_BY_GATEWAY_S = 30.0  # its active health check has to pass first
METRICS = f"http://127.0.0.1:{wiring.GATEWAY_INTERNAL_PORT}/metrics"
FETCH = "import sys, urllib.request as r; sys.stdout.write(r.urlopen(sys.argv[1], timeout=5).read().decode())"
HEALTHY = re.compile(
    rf'^envoy_cluster_membership_healthy{{[^}}]*="{wiring.ENGINE_CLUSTER}"[^}}]*}} (\d+)', re.MULTILINE
)


def running(control: Control) -> list[str]:
    """Replicas whose container runs now."""
    states = control.dockerd.states(phases=False)
    return [s.service for s in states if s.service.startswith("engine-") and s.status == "running"]


def require_gateway(control: Control) -> None:
    """Refuse before anything is touched: without the gateway nobody could tell when the next replica may leave."""
    if not any(s.service == GATEWAY and s.status == "running" for s in control.dockerd.states(phases=False)):
        raise FlashboxError(
            "the gateway is not running",
            "replicas restart one at a time, each once the gateway serves from the one before",
            "`python ctl.py restart gateway` or `python ctl.py up` starts it; then run this again",
        )


def bounce(control: Control, plan: Plan, name: str, serving: Collection[str]) -> None:
    """Restart one replica. New requests go elsewhere first; the gate lets running ones finish.

    HEALTHY is published whatever happens: its gate keeps a replica that is not ready out of service anyway,
    while a forgotten DRAINING would keep a ready one out for ever.
    """
    published = [replica for replica in plan.replicas if replica.active or replica.name in serving]
    with _telling_what_is_stopped(control, name):
        try:
            publish_endpoints(control, published, draining=(name,))
            _stop_and_start(control, name)
            await_replicas(control, (name,), start_limit_s(control.settings))
        finally:
            surely(lambda: publish_endpoints(control, published))
    await_seen(control, name, serving)


def restart_gateway(control: Control) -> None:
    """Streams in flight finish first; new requests are refused meanwhile."""
    with _telling_what_is_stopped(control, GATEWAY):
        _stop_and_start(control, GATEWAY)
    serving = _ready(control, running(control))
    await_gateway(control, good=(200,) if serving else (200, 503))
    if not serving:
        control.console.note("no replica is ready, so the gateway answers 503: `python ctl.py status`")


def _stop_and_start(control: Control, name: str) -> None:
    with control.console.step("stop", f"{name}: drained"):
        control.shell.run(compose.stop(lifecycle.project(control), (name,)))
    with control.console.step("start", name):
        control.shell.run(compose.start(lifecycle.project(control), (name,)))


@contextmanager
def _telling_what_is_stopped(control: Control, name: str) -> Iterator[None]:
    """After Ctrl-C and the like: what was stopped is not left so in silence."""
    try:
        yield
    except KeyboardInterrupt:
        state = None
        with suppress(FlashboxError):  # a daemon that does not answer: what we know is that we stopped it
            state = next((s for s in control.dockerd.states(phases=False) if s.service == name), None)
        if state is None or state.status != "running":
            control.console.note(f"\n{name} is stopped: `python ctl.py up` starts it")
        else:
            control.console.note(f"\n{name} runs, and may have been told to stop: `python ctl.py status` shows it")
        raise


def await_seen(control: Control, name: str, serving: Collection[str]) -> None:
    """Wait until the gateway itself counts the replica again, so that the next one may leave.

    It is to count as many as have a gate that says ready: one that was broken before is not waited for.
    """
    expected = len(_ready(control, {*serving, name}))
    end = time.monotonic() + SEEN_BY_GATEWAY_S
    while (seen := healthy_replicas(control)) is None or seen < expected:
        if time.monotonic() > end:
            counts = "cannot be asked" if seen is None else f"counts {seen} healthy of {expected} ready replicas"
            raise NotHealthyInTime(
                f"the gateway does not count {name} again",
                f"{name} is ready, yet after {SEEN_BY_GATEWAY_S:.0f} s the gateway {counts}; the next is left alone",
                "python ctl.py status; python ctl.py logs gateway",
            )
        time.sleep(LOOK_EVERY_S / 4)


def _ready(control: Control, names: Collection[str]) -> Collection[str]:
    return phases.ready(control.dockerd.gates(names)) if names else ()


def healthy_replicas(control: Control) -> int | None:
    """How many replicas the gateway holds for healthy; None if it cannot be asked."""
    page = control.dockerd.run_in(GATEWAY, ("python3", "-c", FETCH, METRICS))
    found = HEALTHY.search(page or "")
    return int(found[1]) if found else None
