"""What `gateway apply` would change, by the way each part is taken up: live, by a hot restart, or by new containers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from control.core import envfile
from control.core.endpoints import EDS_PATH
from control.core.envoy_files import BOOTSTRAP_PATH
from control.core.envoy_versions import DYNAMIC, ENTRY_PATH
from control.core.model import Rendering
from control.core.rendering import ENV_PATH, diff, sha256

START_PATHS = (ENTRY_PATH, BOOTSTRAP_PATH)  # read when Envoy starts
POLICY, BUDGET = "run/policy/", "run/budget/"
# What a container of the gateway is made with -> the setting behind it.
CONTAINER: Mapping[str, str] = {
    "COMPOSE_PROJECT_NAME": "project",
    "FB_GATEWAY_BIND": "gateway.bind",
    "FB_GATEWAY_PORT": "gateway.port",
    "FB_GATEWAY_IMAGE": "the gateway's image",
    "FB_GATEWAY_DRAIN_S": "gateway.drain_s",
    "FB_GATEWAY_MEMORY": "gateway.memory_mib",
    "FB_ENGINE_SUBNET": "network.engine_subnet",
    "FB_SERVICE_USER": "service.uid, service.gid",
    "FB_LOG_MAX_SIZE": "logs.max_size_mib",
    "FB_LOG_MAX_FILES": "logs.max_files",
}
# Services beside the gateway -> what their containers are made with. They hold no stream, so they may be made anew.
BESIDE: Mapping[str, re.Pattern[str]] = {
    "policy": re.compile(r"FB_POLICY_[A-Z_]+"),
    "budget": re.compile(r"FB_POLICY_IMAGE|FB_BUDGET_[A-Z_]+"),
}
_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
_PRIVATE = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Changes:
    """Files to publish (path -> new text), and what publishing them does not do."""

    live: Mapping[str, str]  # Envoy or a service beside it takes it up by itself
    start: Mapping[str, str]  # taken up by a hot restart
    container: tuple[str, ...]  # `gateway.port: 8000 -> 9000`: needs a new container of the gateway
    beside: tuple[str, ...]  # services that need a new container, and hold no stream
    others: tuple[str, ...]  # changed files that are not the gateway's
    diff: str

    @property
    def files(self) -> dict[str, str]:
        return {**self.live, **self.start}


def changes(rendered: Rendering, on_disk: Mapping[str, str | None]) -> Changes:
    """Compare. The endpoints are left alone: they belong to what starts and stops replicas."""
    differing = {path: text for path, text in rendered.items() if on_disk.get(path) != text and path != EDS_PATH}
    start = {path: text for path, text in differing.items() if path in START_PATHS}
    live = {path: text for path, text in differing.items() if path.startswith((DYNAMIC, POLICY, BUDGET))}
    before, after = envfile.parse(on_disk.get(ENV_PATH) or ""), envfile.parse(rendered[ENV_PATH])
    altered = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    ours = {**live, **start}
    return Changes(
        live=live,
        start=start,
        container=tuple(f"{CONTAINER[n]}: {before.get(n)} -> {after.get(n)}" for n in altered if n in CONTAINER),
        beside=tuple(service for service, made_with in BESIDE.items() if any(map(made_with.fullmatch, altered))),
        others=tuple(sorted(path for path in differing if path not in ours and path != ENV_PATH)),
        diff=without_secrets(diff(ours, {path: on_disk.get(path) for path in ours})),
    )


def without_secrets(text: str) -> str:
    """For eyes and logs: digests of keys as their ids, no private key."""
    return _DIGEST.sub(r"\1...", _PRIVATE.sub("(a private key)", text))


def started_with(state: Mapping[str, object], rendered: Rendering) -> bool:
    """Whether the Envoy that serves was started with these files; PID 1 of the gateway reports their digests."""
    names = {"entry": ENTRY_PATH, "bootstrap": BOOTSTRAP_PATH}
    return all(state.get(name) == sha256(rendered[path]) for name, path in names.items())


def version_of(text: str) -> str:
    """The version that run/policy/rules.json and run/budget/limits.json carry."""
    return str(json.loads(text)["version"])
