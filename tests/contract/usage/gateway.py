"""Envoy with the response filter (gateway.yaml), and its clients."""

from __future__ import annotations

import http.client
import itertools
import json
import socket
import string
import subprocess
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policy.usage import plan

from control.adapters.envoy import packaged_binary
from tests.contract.stub.process import free_port
from tests.eventually import eventually

ROOT = Path(__file__).parents[3]
CONFIG = Path(__file__).with_name("gateway.yaml")
LUA = ROOT / "config/envoy/usage.lua"
SOON_S = 20.0
ESTIMATE = 7  # tokens of every prompt, before the engine says better


@dataclass(frozen=True)
class Used:
    """The metadata at the end of a request."""

    total: int
    prompt: int
    completion: int
    cached: int
    estimated: bool


@dataclass
class Answer:
    """One whole answer, and what it was said to cost."""

    status: int
    body: bytes
    _used: Callable[[], Used | None]

    @property
    def used(self) -> Used | None:
        """The metadata at the end; None if there was none."""
        return self._used()


class Gateway:
    """One Envoy process in front of an engine's port."""

    def __init__(self, folder: Path, engine: int) -> None:
        self.port, self._socket, self._log = free_port(), folder / "admin.sock", folder / "access.log"
        names = {"port": self.port, "engine": engine, "socket": self._socket, "log": self._log, "lua": LUA}
        config = folder / "gateway.yaml"
        config.write_text(string.Template(CONFIG.read_text()).substitute(names))
        words = [str(packaged_binary()), "-c", str(config), "--concurrency", "1", "--log-level", "warning"]
        words += ["--file-flush-interval-msec", "20", "--use-dynamic-base-id"]
        self.output = folder / "envoy.log"
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(words, stdout=out, stderr=out)
        self._ids = itertools.count(1)
        self._used: dict[str, dict[str, Any] | None] = {}
        self._read = 0
        eventually(lambda: self.stat("listener_manager.workers_started") == 1, SOON_S)

    def end(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stat(self, name: str) -> int:
        """One of Envoy's counters or gauges."""
        with closing(http.client.HTTPConnection("admin", timeout=10)) as connection:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(str(self._socket))
            connection.request("GET", f"/stats?filter=^{name.replace('.', '[.]')}$")
            return int(connection.getresponse().read().rpartition(b": ")[2])

    def headers(self, strip: str) -> dict[str, str]:
        """Of a new request."""
        return {"x-id": str(next(self._ids)), "x-strip": strip, "x-estimate": str(ESTIMATE)}

    def used(self, headers: Mapping[str, str]) -> Used | None:
        """What a request that has ended was said to cost; None if nothing was said."""
        found = eventually(lambda: self._logged(headers["x-id"]), SOON_S, 0.01)[0]
        if found is None:
            return None
        return Used(**{name: value if name == "estimated" else int(value) for name, value in found.items()})

    def _logged(self, name: str) -> tuple[dict[str, Any] | None] | None:
        with self._log.open() as log:
            log.seek(self._read)
            for line in iter(log.readline, ""):
                if not line.endswith("\n"):
                    break
                entry = json.loads(line)
                self._used[entry["id"]] = entry["usage"]
                self._read = log.tell()
        return (self._used[name],) if name in self._used else None

    def send(self, path: str, raw: bytes, headers: Mapping[str, str]) -> Answer:
        """One request as it is."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("POST", path, raw, {"content-type": "application/json", **headers})
            response = connection.getresponse()
            body = response.read()
        return Answer(response.status, body, lambda: self.used(headers))

    def ask(self, path: str, body: Mapping[str, Any]) -> Answer:
        """One request as it comes out of the policy service."""
        raw = json.dumps(body).encode()
        change = plan(path, raw, body)
        return self.send(path, change.changed(raw), self.headers(change.strip))
