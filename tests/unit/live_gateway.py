"""A gateway made of memory that takes up what is published: versions, hot restarts, refusals."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from control.core import envoy_versions, wiring
from control.core import gateway_status as status
from tests.unit.world import World

PREFIXES = {
    "lds.yaml": "listener_manager.lds",
    "cds.yaml": "cluster_manager.cds",
    "rds.yaml": "http.ingress_http.rds.public",
    "sds.yaml": "sds.upstream_key",
    "ecds_auth.yaml": "extension_config_discovery.http_filter.flashbox.auth",
}


@dataclass
class LiveWorld(World):
    """What PID 1, Envoy and the policy service say; a test says what they refuse."""

    epoch: int = 0
    holds: int = 0  # streams of the Envoy before
    lets_go: bool = False  # one of them ends at each look
    refusals: int = 0
    refuses_restart: bool = False
    deaf: set[str] = field(default_factory=set)  # files that Envoy never takes up
    refuses: set[str] = field(default_factory=set)  # files of which Envoy refuses each new text
    rules: str | None = None  # version of the policy service, when it does not follow
    started: dict[str, str] = field(default_factory=dict)
    in_force: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    clusters: str = ""
    stats: list[list[str]] = field(default_factory=lambda: [[]])  # further counters, one list a look; the last stays

    def _up(self, names: Sequence[str]) -> None:
        super()._up(names)
        if not names:
            self._boot()
            self.in_force = {name: self._published(name) for name in PREFIXES}

    def _boot(self) -> None:
        assert self.control is not None
        folder = self.control.root / "run/envoy"
        paths = {"entry": folder / "entry.json", "bootstrap": folder / "bootstrap.yaml"}
        self.started = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items()}

    def _published(self, name: str) -> str:
        assert self.control is not None
        return envoy_versions.version((self.control.root / "run/envoy/dynamic" / name).read_text()) or ""

    def signal(self, service: str, name: str) -> bool:
        assert (service, name) == ("gateway", "SIGHUP")
        self.events.append("SIGHUP")
        if self.refuses_restart or self.holds:
            self.refusals += 1
        else:
            self.epoch += 1
            self._boot()
        return True

    def published(self) -> list[tuple[str, str]]:
        return [("gateway", "127.0.0.1:8000->8000/tcp"), ("engine-0", "")]

    def last_lines(self, service: str, lines: int = 15) -> str:
        complaint = {"log": "envoy", "level": "warning", "part": "config", "message": "no such\nfilter"}
        return f"noise\n{json.dumps(complaint)}\nmore noise"

    def run_in(self, service: str, args: Sequence[str]) -> str | None:
        if self.status.get(service) != "running":
            return None
        if wiring.GATEWAY_ENTRY in args:
            asked = args[args.index(wiring.GATEWAY_ENTRY) + 1 :]
            return self._state() if asked[0] == "state" else self._ask(asked[1])
        if str(wiring.POLICY_METRICS_PORT) in args[-1]:
            return self._policy()
        return super().run_in(service, args)

    def _state(self) -> str:
        self.holds -= 1 if self.lets_go and self.holds else 0
        previous = {"epoch": self.epoch - 1, "pid": 7, "requests": self.holds} if self.holds else None
        told = {"phase": "serving", "epoch": self.epoch, "pid": 9, "since": 1.0, **self.started, "previous": previous}
        return json.dumps({**told, "refusals": self.refusals, "refusal": {"reason": "it did not start"}})

    def _ask(self, path: str) -> str:
        if path == status.CLUSTERS_PATH:
            return self.clusters
        if path != envoy_versions.STATS_PATH and "version_text" not in path:
            return ""
        lines = list(self.stats.pop(0) if len(self.stats) > 1 else self.stats[0]) if path == status.STATS_PATH else []
        for name, prefix in PREFIXES.items():
            version = self._published(name)
            if name in self.refuses and version not in (self.in_force[name], self.refused.get(name)):
                self.counts[name] = self.counts.get(name, 0) + 1
                self.refused[name] = version
            elif name not in self.deaf and version != self.refused.get(name):
                self.in_force[name] = version
            lines.append(f'{prefix}.version_text: "{self.in_force[name]}"')
            lines.append(f"{prefix}.update_rejected: {self.counts.get(name, 0)}")
        return "\n".join(lines) + "\n"

    def _policy(self) -> str:
        assert self.control is not None
        path = self.control.root / "run/policy/rules.json"
        version = self.rules or (json.loads(path.read_text())["version"][:12] if path.exists() else "")
        return f'policy_rules_loaded{{version="old"}} 0.0\npolicy_rules_loaded{{version="{version}"}} 2.0\n'
