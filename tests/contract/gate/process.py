"""A gate as a real process on loopback, with the fake server as its child."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.eventually import eventually
from tests.ports import free_port

GATE = Path(__file__).parents[3] / "images" / "gate" / "gate.py"
FAKE_SERVER = Path(__file__).with_name("fake_server.py")
PYTHON = os.environ.get("GATE_TEST_PYTHON", sys.executable)  # the gate runs inside images with other Pythons
KEY = "upstream-secret-key"
OWN_LINE = re.compile(rb'\{"time": [\d.]+, "source": "gate", [^\n]*\}\n')
LONG_S = 30.0  # for things that take well under a second; only a hang takes this long


def process_state(pid: int) -> str:
    """Return the letter of /proc (R, S, Z ...), or an empty string for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def dead(pid: int) -> bool:
    """Say whether a process runs no more; a zombie waits for whoever inherited it from the gate."""
    return process_state(pid) in ("", "Z", "X")


def command_line(pid: int) -> str:
    """Return a process's arguments; empty for one that runs no more."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


class GateProcess:
    """One replica without its container."""

    def __init__(self, folder: Path, name: str = "engine-0") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.name = folder, name
        self.port, self.server_port = free_port(), free_port()
        key_file = folder / "upstream_key"
        key_file.write_text(KEY + "\n")
        self.environment = {
            "GATE_PORT": str(self.port),
            "GATE_UPSTREAM": f"http://127.0.0.1:{self.server_port}",
            "GATE_MODEL": "tiny",
            "GATE_API_KEY_FILE": str(key_file),
            "GATE_NOTICE_S": "0.2",
            "GATE_DRAIN_S": "60",
            "GATE_START_TIMEOUT_S": "60",
            "GATE_HANG_S": "300",
            "GATE_PROBE_S": "60",
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(
        self, *flags: str, command: Sequence[str] = (), output: int | None = None, **environment: str
    ) -> GateProcess:
        """Run the gate over the fake server with these flags, or over another command; `output` takes both outputs."""
        fake = [sys.executable, "-u", str(FAKE_SERVER), str(self.folder), str(self.server_port), self.name, *flags]
        self.environment.update(environment)
        with open(self.folder / "stdout", "wb") as out, open(self.folder / "stderr", "wb") as err:
            self.process = subprocess.Popen(
                [PYTHON, "-u", str(GATE), "run", "--", *(command or fake)],
                env={**self._plain_environment(), **self.environment},
                stdout=out if output is None else output,
                stderr=err if output is None else output,
            )
        return self

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another subcommand of the gate to its end."""
        env = {**self._plain_environment(), **self.environment}
        command = [PYTHON, str(GATE), *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=LONG_S, check=False)

    def set(self, name: str, text: str = "") -> None:
        """Write one of the files that steer the fake server, by rename so that it never reads half."""
        (self.folder / f"{name}.new").write_text(text)
        (self.folder / f"{name}.new").rename(self.folder / name)

    def unset(self, name: str) -> None:
        """Remove such a file."""
        (self.folder / name).unlink()

    def number(self, name: str) -> int:
        """Return the pid that the server wrote to a file, once it is there."""
        return eventually(lambda: int((self.folder / name).read_text()), LONG_S)

    @property
    def pid(self) -> int:
        """The gate's own pid."""
        assert self.process is not None
        return self.process.pid

    def signal(self, number: int) -> None:
        """Send a signal to the gate."""
        os.kill(self.pid, number)

    def exit_code(self, within_s: float = LONG_S) -> int:
        """Return the gate's exit code once it has ended."""
        assert self.process is not None
        return self.process.wait(within_s)

    def get(self, path: str, method: str = "GET") -> tuple[int, Mapping[str, str], bytes]:
        """Ask the gate's port."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        finally:
            connection.close()

    def state(self) -> dict[str, Any]:
        """Return the answer of /state."""
        answer: dict[str, Any] = json.loads(self.get("/state")[2])
        return answer

    def in_phase(self, phase: str) -> dict[str, Any]:
        """Return the state once the gate is in this phase."""
        return eventually(lambda: (state := self.state())["phase"] == phase and state, LONG_S)

    def log(self) -> list[dict[str, Any]]:
        """Return the gate's own log lines."""
        return [json.loads(line) for line in OWN_LINE.findall((self.folder / "stderr").read_bytes())]

    def output_of_server(self) -> bytes:
        """Return stderr without the gate's own lines; one may stand in the middle of a line of the server's."""
        return OWN_LINE.sub(b"", (self.folder / "stderr").read_bytes())

    def phases(self) -> list[str]:
        """Return the phases that the gate went through, in order."""
        return [line["phase"] for line in self.log() if line["event"] == "phase"]

    def journal(self) -> list[dict[str, Any]]:
        """Return what clients sent to the server."""
        path = self.folder / "journal"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def end(self) -> None:
        """Clean up, whatever the test left: the gate, and the processes that name this folder in their arguments."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for name in ("started", "sleeper", "orphan"):
            path = self.folder / name
            if path.exists() and str(self.folder) in command_line(pid := int(path.read_text())):
                os.kill(pid, signal.SIGKILL)

    @staticmethod
    def _plain_environment() -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith(("GATE_", "VLLM_"))}


def start_stub(gate: GateProcess, **environment: str) -> int:
    """Start a gate over the stand-in engine; return the port of its faults."""
    control_port = free_port()
    stub = {
        "STUB_HOST": "127.0.0.1",
        "STUB_PORT": str(gate.server_port),
        "STUB_CONTROL_PORT": str(control_port),
        "STUB_MODEL": "tiny",
        "PYTHONPATH": str(GATE.parents[1] / "stub"),
    }
    gate.start(command=[sys.executable, "-m", "stub"], **{**stub, **environment})
    return control_port


def set_faults(control_port: int, **faults: object) -> None:
    """Make something go wrong in the stand-in engine."""
    connection = http.client.HTTPConnection("127.0.0.1", control_port, timeout=10)
    try:
        connection.request("POST", "/faults", json.dumps(faults))
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
    finally:
        connection.close()


class Stream(threading.Thread):
    """A client that reads one streamed completion to its end."""

    def __init__(self, port: int, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(daemon=True)
        self.port, self.headers = port, dict(headers or {})
        self.replica = ""
        self.lines: list[str] = []
        self.start()

    def run(self) -> None:
        """Read until the server ends it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        body = json.dumps({"model": "tiny", "prompt": "stream", "stream": True})
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json", **self.headers})
        response = connection.getresponse()
        self.replica = response.getheader("x-replica") or f"status {response.status}"
        for line in response:
            if line.strip():
                self.lines.append(line.decode().strip())
        connection.close()

    def begun(self) -> bool:
        """Say whether the first chunk is here."""
        return bool(self.lines)

    def whole(self) -> bool:
        """Wait for the end and say whether nothing is missing."""
        self.join(60)
        return self.lines == [f"data: {number}" for number in range(20)] + ["data: [DONE]"]
