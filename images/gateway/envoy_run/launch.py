"""What Envoy is started with: the container's environment, the rendered folder, and the command line."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

RENDERED = "entry.json"  # in the rendered folder: what a hot restart takes up, without a new container
LIVE_SETTINGS = ("concurrency", "max_stream_s")


def say(phase: str, **facts: object) -> None:
    """One line of the gateway's log."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
    print(json.dumps({"time": stamp, "log": "entry", "phase": phase, **facts}), flush=True)


@dataclass(frozen=True)
class Config:
    """What the container's environment says, then what is rendered; the defaults are the paths of the image."""

    drain_s: float = 300.0
    concurrency: int = 2
    max_stream_s: float = 14_400.0
    log_level: str = "warning"
    envoy: str = "/opt/flashbox/gateway/envoy"
    folder: str = "/etc/flashbox/envoy"
    admin_socket: str = "/run/flashbox/admin.sock"
    secret: str = "/run/secrets/upstream_key"
    base_id: int = 0  # names shared memory and sockets of a hot restart; a container has its own of both
    dynamic: tuple[str, ...] = ()  # files of the watched folder that have to be there

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Config:
        """Every field from GATEWAY_<FIELD>, as a value of the type of its default."""
        given: dict[str, object] = {}
        for name, default in vars(cls()).items():
            raw = environ.get(f"GATEWAY_{name.upper()}", "")
            if raw and name != "dynamic":
                given[name] = type(default)(raw)
        return cls(**given)  # type: ignore[arg-type]

    def rendered(self) -> Config:
        """The same with what the rendered folder says now; ValueError if that cannot be read."""
        path = Path(self.folder) / RENDERED
        if not path.exists():
            return self
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError(f"{RENDERED}: expected an object")
        try:
            live = {name: type(getattr(self, name))(found[name]) for name in LIVE_SETTINGS}
            return replace(self, **live, dynamic=tuple(map(str, found["dynamic"])))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{RENDERED}: {error!r}") from error

    @property
    def bootstrap(self) -> str:
        return f"{self.folder}/bootstrap.yaml"

    @property
    def state_file(self) -> Path:
        return Path(self.admin_socket).with_name("entry-state.json")

    def missing(self) -> list[str]:
        """Files that Envoy needs and that this user cannot read."""
        names = ("bootstrap.yaml", RENDERED, *(f"dynamic/{name}" for name in self.dynamic))
        files = [f"{self.folder}/{name}" for name in names]
        lacking = [path for path in (*files, self.secret) if not (Path(path).is_file() and os.access(path, os.R_OK))]
        return lacking + ([] if os.access(self.envoy, os.X_OK) else [self.envoy])

    def digests(self) -> dict[str, str]:
        """SHA-256 of what only a start reads: tells whether a running Envoy has it."""
        paths = {"bootstrap": Path(self.bootstrap), "entry": Path(self.folder) / RENDERED}
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items() if path.is_file()}

    def judge(self) -> tuple[str, ...]:
        """Let Envoy look at its bootstrap without serving it."""
        return (self.envoy, "--mode", "validate", "--config-path", self.bootstrap, "--log-level", "critical")

    def command(self, epoch: int = 0, oldest_stream_s: float = 0.0) -> tuple[str, ...]:
        """Envoy's own arguments. `oldest_stream_s`: how long streams of the Envoy before may be."""
        drain_s = int(max(self.max_stream_s, oldest_stream_s)) + 1
        return (
            self.envoy,
            *("--config-path", self.bootstrap),
            *("--concurrency", str(self.concurrency)),
            *("--base-id", str(self.base_id)),
            *("--restart-epoch", str(epoch)),
            # Each process counts its own: what the one before still holds is asked of itself.
            "--skip-hot-restart-parent-stats",
            "--reject-unknown-dynamic-fields",  # a misspelt field is refused instead of ignored
            # A push of lds.yaml closes older connections after their next answer, and cuts what still runs after
            # this time: no stream may be older. The same for the Envoy before, which is ended earlier once it is idle.
            *("--drain-time-s", str(drain_s)),
            *("--parent-shutdown-time-s", str(drain_s + 5)),
            *("--drain-strategy", "immediate"),
            *("--file-flush-interval-msec", "1000"),  # the access log; the default is 10 s
            *("--log-level", self.log_level),
        )
