"""One real vLLM in a container of its own, started as the recorded servers were; no gate, no gateway."""

from __future__ import annotations

import http.client
import json
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.contract.stub.process import total
from tests.eventually import eventually

ROOT = Path(__file__).parents[2]
JSON = {"content-type": "application/json"}
START_S = 240
# The recorded servers by their letters, as tests/contract/stub/conftest.py has the stand-ins for them.
TINY = (
    "--served-model-name tiny --load-format dummy --enforce-eager --kv-cache-memory-bytes 64M "
    "--host 0.0.0.0 --port 8000 "
)
PLAIN = f"{TINY} --max-model-len 1024 --max-num-seqs 2"
OPEN_V4 = (
    f"{TINY} --max-model-len 2048 --max-num-seqs 4 "
    "--tokenizer-mode deepseek_v4 --tool-call-parser deepseek_v4 --reasoning-parser deepseek_v4 "
    "--enable-auto-tool-choice --enable-request-id-headers --enable-prompt-tokens-details --enable-server-load-tracking"
)
V4 = f"{OPEN_V4} --api-key k-one k-two"
SERVERS = {"C": PLAIN, "D": V4}
# PID 1 that passes nothing on: a signal meets vLLM as an ordinary process, and its status is the container's.
_SHELL = 'vllm serve /opt/flashbox/tiny-model "$@" & echo $! >/tmp/server.pid; wait $!; exit $?'


def docker(*words: str, check: bool = True) -> str:
    """Run the docker client and return what it printed."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False, timeout=300)
    assert not check or done.returncode == 0, f"docker {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def image() -> str:
    """The reference of the image of kind cpu."""
    ref = yaml.safe_load((ROOT / "config/images.yaml").read_text(encoding="utf-8"))["engine-cpu"]
    return f"{ref['repository']}:{ref['tag']}"


def environment() -> dict[str, str]:
    """The variables of kind cpu, as they are rendered."""
    from control.core import engine_cpu
    from control.core.settings import Settings

    return dict(engine_cpu.environment(Settings()))


class Real:
    """One running server. The same questions can be put to it as to the stand-in (tests.contract.stub.process)."""

    def __init__(self, flags: str, wait: bool = True) -> None:
        self.name = f"flashbox-test-real-{uuid.uuid4().hex[:8]}"
        variables = [word for name, value in environment().items() for word in ("-e", f"{name}={value}")]
        docker(
            "run", "-d", "--name", self.name, "-p", "127.0.0.1::8000", "--read-only", "--tmpfs", "/tmp:exec",
            "--shm-size", "512m", "--memory", "3g", "--cap-drop", "ALL", *variables, "--entrypoint", "sh",
            image(), "-c", _SHELL, "vllm", *flags.split(),
        )  # fmt: skip
        self.port = int(docker("port", self.name, "8000/tcp").splitlines()[0].rpartition(":")[2])
        if wait:
            self.wait()

    def wait(self) -> None:
        """Until it answers; its last words if it does not."""
        try:
            eventually(lambda: self.request("GET", "/health")[0] == 200, START_S, every_s=0.5)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()[-3000:]}") from None

    def connection(self, timeout_s: float = 120) -> http.client.HTTPConnection:
        """A connection of one's own."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)

    def request(
        self, method: str, path: str, body: bytes | str | None = None, headers: Mapping[str, str] = JSON
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """One request on a connection of its own: status, headers, body."""
        connection = self.connection()
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def stream(self, **fields: Any) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """A chat stream that has begun (status and headers are there)."""
        connection = self.connection()
        body = {"messages": [{"role": "user", "content": "Hello"}], "stream": True, **fields}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), JSON)
        return connection, connection.getresponse()

    def refuses_connections(self) -> bool:
        """Nobody listens inside. From outside Docker's own proxy would take the connection and close it."""
        try:
            return self.request("GET", "/health")[0] == 0
        except (TimeoutError, ConnectionError, http.client.HTTPException):
            return True

    def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """A JSON request and its JSON answer."""
        status, _, answer = self.request("POST", path, json.dumps(body))
        return status, json.loads(answer)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry these labels."""
        return total(self.request("GET", "/metrics")[2].decode(), name, labels)

    def signal(self, name: str, process: str = "") -> None:
        """A signal to the server, or to its child with that title (EngineCore, Worker)."""
        docker("exec", self.name, "python3", "-c", _KILL, name, process)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.signal("TERM")

    def exit_code(self) -> int | None:
        """The status of the server; None while it runs."""
        running, code = docker("inspect", "-f", "{{.State.Running}} {{.State.ExitCode}}", self.name).split()
        return None if running == "true" else int(code)

    def log(self) -> str:
        """What it wrote."""
        done = subprocess.run(["docker", "logs", self.name], capture_output=True, text=True, check=False, timeout=60)
        return done.stdout + done.stderr

    def close(self) -> None:
        """Take it away, whatever state it is in."""
        docker("rm", "-f", self.name, check=False)


# The base image has no pgrep; kill is a word of the shell only.
_KILL = """
import os, pathlib, signal, sys
name, title = sys.argv[1:]
pids = [pathlib.Path("/tmp/server.pid").read_text()]
if title:
    entries = pathlib.Path("/proc").glob("[0-9]*/cmdline")
    pids = [e.parent.name for e in entries if title in e.read_text(errors="replace").split(chr(0))[0]]
assert len(pids) == 1, pids
os.kill(int(pids[0]), getattr(signal, "SIG" + name))
"""
