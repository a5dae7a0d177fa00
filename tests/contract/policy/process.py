"""The policy service as a real process, for tests: started on free ports, stopped by its own pid."""

from __future__ import annotations

import copy
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.contract.policy.envoy_side import Caller
from tests.contract.stub.process import free_port
from tests.eventually import eventually

ROOT = Path(__file__).parents[3]
MIB = 1 << 20
CHAT, COMPLETIONS, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
SHAPE: Mapping[str, Any] = {
    "type": "object",
    "required": ["model"],
    "properties": {"model": {"type": "string"}, "max_tokens": {"type": ["number", "null"], "minimum": 1}},
}


def rules(**changed: Any) -> dict[str, Any]:
    """Rules as the control program renders them, in small."""
    shape = copy.deepcopy(dict(SHAPE))
    shape["properties"]["max_tokens"]["maximum"] = changed.pop("max_tokens", 8192)
    found: dict[str, Any] = {
        "version": "test",
        "policy": "standard",
        "mode": "enforce",
        "max_body_bytes": 32 * MIB,
        "max_depth": 128,
        "context": 1024,
        "truncate": False,
        "served_model": "tiny",
        "tokenize_url": "http://127.0.0.1:9/tokenize",
        "routes": {
            CHAT: {"form": "openai", "schema": shape},
            COMPLETIONS: {"form": "openai", "schema": shape},
            MESSAGES: {"form": "anthropic", "schema": shape},
        },
    }
    return {**found, **changed}


class Policy:
    """One running service."""

    def __init__(self, folder: Path, given: Mapping[str, Any], **environment: object) -> None:
        self.folder = folder / "rules"
        self.folder.mkdir(parents=True)
        self.ports = (free_port(), free_port())
        self.metrics_port = free_port()
        self.log = folder / "policy.log"
        self.write(given)
        own = {
            "POLICY_FOLDER": self.folder,
            "POLICY_STATE": folder / "state",
            "POLICY_HOST_ADDRESS": "127.0.0.1",
            "POLICY_PORTS": ",".join(map(str, self.ports)),
            "POLICY_METRICS_PORT": self.metrics_port,
            "POLICY_NOTICE_S": 0.2,
            **environment,
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("POLICY_")}
        path = os.pathsep.join(filter(None, (str(ROOT / "images/policy"), os.environ.get("PYTHONPATH"))))
        self.environment = {**kept, "PYTHONPATH": path, **{name: str(value) for name, value in own.items()}}
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "policy"], env=self.environment, stdout=out, stderr=subprocess.STDOUT
            )
        self._callers: list[Caller] = []

    def write(self, given: Mapping[str, Any] | bytes) -> None:
        """Publish rules by rename, as the control program does."""
        made = self.folder / "rules.json.new"
        made.write_bytes(given if isinstance(given, bytes) else json.dumps(given).encode())
        made.replace(self.folder / "rules.json")

    def caller(self, worker: int = 0) -> Caller:
        """Envoy's side of a connection to one worker."""
        made = Caller(self.ports[worker])
        self._callers.append(made)
        return made

    def wait_ready(self) -> Policy:
        """Until both workers serve."""
        callers = [self.caller(0), self.caller(1)]
        eventually(lambda: all(caller.serving() for caller in callers) and self.get("/ready")[0] == 200, 30)
        return self

    def get(self, path: str) -> tuple[int, str]:
        """One GET of the supervisor's page."""
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def samples(self, name: str, **labels: str) -> list[Any]:
        """Samples of a metric that carry these labels."""
        page = self.get("/metrics")[1]
        return [
            sample
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def metric(self, name: str, **labels: str) -> float:
        """Their sum."""
        return float(sum(sample.value for sample in self.samples(name, **labels)))

    def workers(self) -> dict[int, int]:
        """Port -> pid of the workers that run now."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            if parent == self.process.pid and b"worker" in words:
                found[int(words[words.index(b"worker") + 1])] = int(entry.name)
        return found

    def kill(self, worker: int, number: signal.Signals = signal.SIGKILL) -> None:
        """A signal for one worker."""
        os.kill(self.workers()[self.ports[worker]], number)

    def close(self) -> None:
        """End it, whatever state it is in; its workers end with it."""
        for caller in self._callers:
            caller.close()
        pids = list(self.workers().values())
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
