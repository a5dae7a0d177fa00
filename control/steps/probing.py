"""Try the gateway from outside, and judge what comes back."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator

from control.adapters.gateway_client import GatewayClient
from control.adapters.probe_client import ProbeClient
from control.context import Control
from control.core import keys as api_keys
from control.core import policies, probes
from control.core.probes import Probe, Result
from control.steps import access, ready, survey
from control.steps.undo import surely

OVER = "2020-01-01T00:00:00Z"
LOOK_EVERY_S = 0.1


def tried(control: Control, url: str | None) -> Iterator[Result]:
    """Every probe, one after the other. Without a URL the gateway of this clone, and what its containers publish."""
    if url is None:
        yield from probes.published(control.dockerd.published())
    base = (url or ready.require_gateway(control)).rstrip("/").removesuffix("/v1")
    ours = GatewayClient(base) if url else ready.client_of(control, base)
    with access.key_for(control, ours) as key:
        client = ProbeClient(base, key)
        for probe in _listed(control, client.tls):
            yield probes.judge(probe, client.send(probe.sent))
    if url is None:
        yield from _expired(control, base)


def _listed(control: Control, tls: bool) -> list[Probe]:
    settings = control.settings
    rules = policies.govern(settings, survey.planned(control), policies.chosen(settings, control.workspace.sources()))
    return probes.all_probes(rules.max_body_bytes, tls, foreign_origins="*" in settings.gateway.cors.origins)


def _expired(control: Control, base: str) -> Iterator[Result]:
    """A key whose time is over, known to the gateway for as long as this takes."""
    name, key = f"probe-{secrets.token_hex(4)}", api_keys.new_key(secrets.token_bytes(api_keys.RANDOM_BYTES))
    rights = api_keys.Rights(expires=OVER)
    try:
        access.change(control, lambda known: api_keys.add(known, name, access.SMOKE_OWNER, key, OVER, rights))
        client, end = ProbeClient(base, key), time.monotonic() + access.TAKEN_UP_S
        while (seen := client.send(probes.EXPIRED.sent)).code != "expired_api_key" and time.monotonic() < end:
            time.sleep(LOOK_EVERY_S)
        yield probes.judge(probes.EXPIRED, seen)
    finally:
        surely(lambda: access.change(control, lambda known: [key for key in known if key.name != name]))
