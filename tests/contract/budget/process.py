"""The service as a process on loopback, and what the gateway would say to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from control.core import usage
from tests.eventually import eventually
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
SOON_S = 20.0
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
OVER = rls_pb2.RateLimitResponse.OVER_LIMIT


@dataclass
class Told:
    """The answer to a check."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Budget:
    """One owner of a folder's counts."""

    folder: Path
    port: int = field(default_factory=free_port)
    page: int = field(default_factory=free_port)
    checks: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def state_folder(self) -> Path:
        return self.folder / "state"

    @property
    def log(self) -> Path:
        return self.folder / f"log-{self.page}"

    # ---- files

    def limit(
        self,
        longest_s: float = 600,
        default: Mapping[str, int] | None = None,
        observe: bool = False,
        **keys: Mapping[str, int],
    ) -> None:
        """Publish limits as the control program does."""
        everybody = default or {"tpm": 0, "streams": 0}
        doc = {"version": "v", "max_stream_s": longest_s, "observe": observe, "default": everybody, "keys": keys}
        self.publish(json.dumps(doc))

    def observe(self, **keys: Mapping[str, int]) -> None:
        """Publish limits that are only observed, and wait until they are."""
        self.limit(observe=True, **keys)
        eventually(lambda: self.state["limits"]["observe"], SOON_S)

    def publish(self, text: str) -> None:
        """Any text as limits.json."""
        folder = self.folder / "limits"
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        aside = folder / ".new"
        aside.write_text(text)
        aside.chmod(0o644)
        aside.rename(folder / "limits.json")

    # ---- process

    @property
    def environment(self) -> dict[str, str]:
        ours = {
            "BUDGET_FOLDER": str(self.folder / "limits"),
            "BUDGET_STATE": str(self.state_folder),
            "BUDGET_HOST_ADDRESS": "127.0.0.1",
            "BUDGET_PORT": str(self.port),
            "BUDGET_METRICS_PORT": str(self.page),
            "BUDGET_CHECK_PORT": str(self.checks),
            "PYTHONPATH": str(ROOT / "images" / "policy"),
        }
        return {**os.environ, **ours}

    def launch(self, **more: Any) -> subprocess.Popen[bytes]:
        """Start it and return at once."""
        with self.log.open("ab") as log:
            words = [sys.executable, "-m", "budget"]
            self.process = subprocess.Popen(words, env=self.environment, stdout=log, stderr=log, **more)
        return self.process

    def start(self, **more: Any) -> None:
        """Start it and wait until it serves."""
        process = self.launch(**more)
        eventually(lambda: process.poll() is not None or self.get("/ready") == "ready\n", SOON_S)
        assert process.poll() is None, self.log.read_text()

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End it; its exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(number)
        code = self.process.wait(30)
        self.process = None
        return code

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`python -m budget WORD`, as in the container."""
        command = [sys.executable, "-m", "budget", *words]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=30, check=False)

    # ---- what it shows

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.page}{path}", timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    @property
    def state(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.get("/state"))
        return said

    def key(self, name: str) -> dict[str, Any]:
        """One key's state; zeros for one that is at rest."""
        rows = {row["key"]: row for row in self.state["keys"]}
        return rows.get(name, {"leases": 0, "balance": None})

    def used(self, name: str) -> usage.Amount:
        """One key's usage, as the control program reads it."""
        read = usage.read_sums(self.get("/usage"))
        assert read.broken == 0
        return usage.total(usage.rows(read.entries, "key", key=name))

    def metric(self, name: str, **labels: str) -> float:
        """One sample; 0 for one that is not there."""
        for family in text_string_to_metric_families(self.get("/metrics")):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return float(sample.value)
        return 0.0

    def said(self, event: str) -> list[dict[str, Any]]:
        """Lines of its log for one event."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"].startswith(event)]

    @property
    def ledger(self) -> list[dict[str, Any]]:
        """All lines of the ledger."""
        files = sorted((self.state_folder / "usage").glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    # ---- what the gateway says

    def call(self, *descriptors: Mapping[str, str]) -> Any:
        """One call with these descriptors."""
        made = [
            ratelimit_pb2.RateLimitDescriptor(
                entries=[ratelimit_pb2.RateLimitDescriptor.Entry(key=key, value=value) for key, value in one.items()]
            )
            for one in descriptors
        ]
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            service = rls_pb2_grpc.RateLimitServiceStub(channel)
            return service.ShouldRateLimit(rls_pb2.RateLimitRequest(domain="flashbox", descriptors=made), timeout=10)

    def check(self, client: str, request: str, path: str = CHAT, boot: str = "g:1") -> Told:
        """The question that goes before a request."""
        return self.ask_port("POST", f"/check{path}", {"x-client": client, "x-request-id": request, "x-boot": boot})

    def ask_port(self, method: str, target: str, headers: Mapping[str, str] | None = None) -> Told:
        """Any request to the port of checks."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.checks, timeout=10)) as connection:
            connection.request(method, target, headers={"content-length": "0", **(headers or {})})
            answer = connection.getresponse()
            return Told(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())

    def admits(self, client: str, request: str) -> bool:
        return self.check(client, request).status == 200

    def finish(self, client: str, request: str, total: int = 31, **more: str) -> Any:
        """Release and charge, as at the end of a request."""
        who = {"client": client, "id": request}
        told = {"status": "200", "model": "m", "path": CHAT, "total": str(total), "prompt": "11"}
        return self.call({"op": "release", **who}, {"op": "charge", **who, **told, "completion": "20", **more})

    def health(self) -> Any:
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            return health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10).status
