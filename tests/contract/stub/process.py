"""The stand-in as a real process, for tests: started on free ports, stopped by its own pid."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.eventually import eventually

ROOT = Path(__file__).parents[3]
JSON = {"content-type": "application/json"}


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def total(page: str, name: str, labels: Mapping[str, str]) -> float:
    """The sum of a metric's samples that carry these labels."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


class Stub:
    """One running stand-in."""

    def __init__(
        self, log: Path, environment: Mapping[str, str], wait: bool = True, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.host, self.port, self.control_port = host, port or free_port(), free_port()
        own = {"STUB_HOST": host, "STUB_PORT": str(self.port), "STUB_CONTROL_PORT": str(self.control_port)}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("STUB_", "VLLM_"))}
        self.log = log
        with log.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stub"],
                env={**kept, "PYTHONPATH": str(ROOT / "images/stub"), **own, **environment},
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        if wait:
            eventually(lambda: self.request("GET", "/health")[0] == 200, 20)

    def connection(self, timeout_s: float = 60) -> http.client.HTTPConnection:
        """A connection of one's own."""
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)

    def request(
        self, method: str, path: str, body: bytes | str | None = None, headers: Mapping[str, str] = JSON, port: int = 0
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """One request on a connection of its own: status, headers, body."""
        connection = http.client.HTTPConnection(self.host, port or self.port, timeout=60)
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """A JSON request and its JSON answer."""
        status, _, answer = self.request("POST", path, json.dumps(body))
        return status, json.loads(answer)

    def stream(self, **fields: Any) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """A chat stream that has begun (status and headers are there)."""
        connection = self.connection()
        body = {"messages": [{"role": "user", "content": "Hello"}], "stream": True, **fields}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), JSON)
        return connection, connection.getresponse()

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry these labels."""
        return total(self.request("GET", "/metrics")[2].decode(), name, labels)

    def fault(self, fault: Mapping[str, Any]) -> int:
        """Ask the control port for a fault."""
        return self.request("POST", "/faults", json.dumps(fault), port=self.control_port)[0]

    def refuses_connections(self) -> bool:
        """Nobody listens on the public port."""
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self.port)) != 0

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """End the process, whatever state it is in."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
