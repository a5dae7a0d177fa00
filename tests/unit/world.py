"""A machine made of memory: the sentences said to the shell change containers, which the fake daemon then reports."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from control.adapters.shell import CommandFailed, Completed
from control.cli import cli
from control.context import Control
from control.core import registry_faults
from control.core.gpus import Inventory
from control.core.image_sources import LocalImage
from control.core.model import ContainerState, Host
from control.core.phases import GateState
from control.core.pull_progress import Progress
from control.core.registry_faults import PullFailed

ROOT = Path(__file__).resolve().parents[2]
GIB = 1024**3
GOOD_HOST = Host(
    os="Debian",
    cpus=8,
    memory_bytes=64 * GIB,
    euid=0,
    docker_version="28.0",
    docker_root="/var/lib/docker",
    cgroup_version="2",
    compose_version="2.40.3",
    buildx_version="0.20",
    disk_free_bytes={"/": 500 * GIB},
    ports=(),
    bindable=True,
    subnets={},
    inventory=Inventory(gpus=()),
    images={},
)
SERVICES = ("policy", "budget")  # beside the gateway
PHASES_TO_READY = ("starting", "loading", "warming", "ready")


@dataclass
class World:
    """Containers by service: status, and for replicas the index of the phase they are in."""

    status: dict[str, str] = field(default_factory=dict)
    phase: dict[str, int] = field(default_factory=dict)
    said: list[tuple[str, ...]] = field(default_factory=list)
    stuck: set[str] = field(default_factory=set)  # replicas that stay in loading
    dying: set[str] = field(default_factory=set)  # replicas whose container ends
    fail: dict[str, str] = field(default_factory=dict)  # compose verb -> complaint
    interrupt: set[str] = field(default_factory=set)  # compose verb -> Ctrl-C
    events: list[str] = field(default_factory=list)
    project: str = "flashbox"
    address: tuple[str, int] | None = None
    control: Control | None = None
    kept_volumes: bool = True
    old_mount: str | None = None  # what the gateway's container says of its files instead of the published ones
    started_from: list[str] = field(default_factory=list)  # clones whose containers run
    sick: set[str] = field(default_factory=set)  # services whose health check fails
    unstoppable: set[str] = field(default_factory=set)
    draining: dict[str, int] = field(default_factory=dict)  # replica -> how many looks until it ends
    ending: list[str] = field(default_factory=list)  # containers that end with exit code 0 at the next look
    ended_well: set[str] = field(default_factory=set)
    images: dict[str, LocalImage] = field(default_factory=dict)  # reference -> what Docker has
    registries: dict[str, str | PullFailed] = field(default_factory=dict)  # reference -> digest, or why it is not had
    pulled: list[str] = field(default_factory=list)
    budget: dict[str, Any] | None = field(default_factory=dict)  # what its state has beside the usual; None: no answer
    ledger: str | None = ""  # what the budget service prints of it; None: it cannot

    # ---- the shell's side

    def run(self, args: Sequence[str], **_: object) -> Completed:
        self.said.append(tuple(args))
        verb, names = _verb(args)
        if verb in self.interrupt:
            raise KeyboardInterrupt
        if verb in self.fail:
            raise CommandFailed(Completed(tuple(args), 1, err=self.fail[verb]))
        getattr(self, f"_{verb}")(names)
        self.events.append(" ".join((verb, *names)))
        return Completed(tuple(args), 0)

    def probe(self, args: Sequence[str], **_: object) -> Completed:
        return Completed(tuple(args), None, err="not here")

    def attach(self, args: Sequence[str]) -> int:
        self.said.append(tuple(args))
        return 0

    def _up(self, names: Sequence[str]) -> None:
        assert self.control is not None
        services = __import__("yaml").safe_load((self.control.root / "run/engines.yaml").read_text())["services"]
        active = [name for name, service in services.items() if "profiles" not in service]
        self._start(names or ["gateway", *SERVICES, *active])

    def _create(self, names: Sequence[str]) -> None:
        for name in names:
            self.status.setdefault(name, "created")

    def _start(self, names: Sequence[str]) -> None:
        for name in names:
            if self.status.get(name) != "running":
                self.status[name], self.phase[name] = "running", 0

    def _stop(self, names: Sequence[str]) -> None:
        for name in names or list(self.status):
            if self.status.get(name) == "running" and name not in self.unstoppable:
                self.status[name] = "exited"

    def _down(self, names: Sequence[str]) -> None:
        self.status.clear()

    # ---- images: the daemon's, and the registries that it reaches

    def image(self, reference: str) -> LocalImage | None:
        return self.images.get(reference)

    def name_image(self, reference: str, name: str) -> None:
        self.images[name] = self.images[reference]

    def registry(self, auth_file: Path | None, silence_s: float) -> World:
        return self

    def digest(self, reference: str, name: str) -> str:
        found = self.registries.get(reference, registry_faults.explain("connection refused", reference, name))
        if isinstance(found, PullFailed):
            raise found
        return found

    def pull(self, reference: str, name: str, limit_s: float, say: Callable[[Progress], None]) -> None:
        repository, _, digest = reference.partition("@")
        there = [found for tag, found in self.registries.items() if tag.rpartition(":")[0] == repository]
        if digest not in there:
            raise registry_faults.explain("manifest unknown" if there else "connection refused", reference, name)
        say(Progress())
        self.pulled.append(reference)
        self.images[reference] = LocalImage("sha256:1", (digest,))

    # ---- the daemon's side

    def states(self, phases: bool = True) -> list[ContainerState]:
        for service in SERVICES:
            self._leave(service)
        seen = [
            ContainerState(n, s, self._health(n), exit_code=self._code(n), phase=self._phase(n))
            for n, s in self.status.items()
        ]
        for name in list(self.draining) if phases else ():
            self.draining[name] -= 1
            if not self.draining[name]:
                del self.draining[name]
                self.status[name] = "exited"
                self.events.append(f"{name} ended")
        return sorted(seen, key=lambda state: state.service)

    def _health(self, name: str) -> str | None:
        if name not in SERVICES or self.status[name] != "running":
            return None
        return "unhealthy" if name in self.sick else "healthy"

    def _leave(self, name: str) -> None:
        if name in self.ending and self.status.get(name) == "running":
            self.ending.remove(name)
            self.status[name] = "exited"
            self.ended_well.add(name)

    def _code(self, name: str) -> int | None:
        return (0 if name in self.ended_well else 1) if self.status[name] == "exited" else None

    def gates(self, names: Sequence[str]) -> dict[str, GateState | None]:
        found: dict[str, GateState | None] = {}
        for name in names:
            self._leave(name)
            if name in self.dying:
                self.status[name] = "exited"
            if self.status.get(name) != "running":
                found[name] = GateState(
                    f"container {self.status.get(name, 'missing')}",
                    last_error=f"exit code {0 if name in self.ended_well else 1}",
                )
                continue
            found[name] = GateState(self._phase(name) or "starting", 1.0)
            limit = 1 if name in self.stuck else 3
            self.phase[name] = min(limit, self.phase.get(name, 0) + 1)
        return found

    def _phase(self, name: str) -> str | None:
        if not name.startswith("engine-") or self.status.get(name) != "running":
            return None
        if name in self.draining:
            return "draining"
        return PHASES_TO_READY[self.phase.get(name, 0)]

    def restarts(self) -> dict[str, int]:
        return dict.fromkeys(self.status, 0)

    def last_lines(self, service: str, lines: int = 15) -> str:
        return f"{service}: CUDA out of memory"

    def run_in(self, service: str, args: Sequence[str]) -> str | None:
        if "budget" in args:
            return self._budget(args[args.index("budget") + 1 :]) if self.status.get(service) == "running" else None
        if args[-1].endswith("/dynamic/ecds_auth.yaml"):
            return self._digest_inside() if self.status.get(service) == "running" else None
        running = sum(self.status.get(n) == "running" for n in self.status if n.startswith("engine-"))
        return f'envoy_cluster_membership_healthy{{envoy_cluster_name="vllm"}} {running}\n'

    def _budget(self, words: Sequence[str]) -> str | None:
        """What `python -m budget` prints; a state without a word on limits goes by the published ones."""
        if words[0] == "usage":
            self.events.append(" ".join(("budget", *words)))
            return self.ledger
        assert self.control is not None and words == ("state",)
        path = self.control.root / "run/budget/limits.json"
        version = json.loads(path.read_text())["version"] if path.exists() else ""
        said = {"serving": True, "limits": {"version": version, "error": None}, "keys": [], **(self.budget or {})}
        return None if self.budget is None else json.dumps(said)

    def _digest_inside(self) -> str:
        """The keys' file as the gateway's mount shows it."""
        assert self.control is not None
        if self.old_mount is not None:
            return self.old_mount
        text = (self.control.root / "run/envoy/dynamic/ecds_auth.yaml").read_bytes()
        return hashlib.sha256(text).hexdigest() + "\n"

    def gateway_address(self) -> tuple[str, int] | None:
        self._leave("gateway")
        return self.address if self.status.get("gateway") == "running" else None

    def folders(self) -> list[str]:
        return self.started_from

    def kind(self) -> str | None:
        return "stub" if any(n.startswith("engine-") for n in self.status) else None

    def remove_by_labels(self, volumes: bool = False) -> list[str]:
        self.kept_volumes = not volumes
        gone = list(self.status)
        self.status.clear()
        return gone

    def stop_by_labels(self) -> list[str]:
        self.events.append("stop by labels")
        self._stop(())
        return []


def _verb(args: Sequence[str]) -> tuple[str, list[str]]:
    """What Compose is told to do, and to which services."""
    verbs = ("create", "up", "stop", "start", "down", "logs")
    at = next(i for i, word in enumerate(args) if word in verbs)
    return args[at], [word for word in args[at + 1 :] if not word.startswith("-")]


def control_for(
    tmp_path: Path, world: World, host: Host = GOOD_HOST, environ: Mapping[str, str] | None = None
) -> Control:
    """A clone in a temporary folder, and the machine of `world` below it."""
    for name in ("config", "compose", "images"):
        if not (tmp_path / name).exists():
            shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    control = Control(tmp_path, environ or {})
    control.shell = world  # type: ignore[assignment]
    control.dockerd = world  # type: ignore[assignment]
    control.dockerd_for = lambda project: world  # type: ignore[assignment,method-assign,return-value]
    control.host = host
    world.control = control
    return control


@dataclass
class Operator:
    """Types commands at a clone of the world; each command gets a fresh context, as in real life."""

    folder: Path
    world: World
    host: Host = GOOD_HOST
    environ: dict[str, str] = field(default_factory=dict)

    def types(self, *words: str, answer: str | None = None) -> Result:
        control = control_for(self.folder, self.world, self.host, self.environ)
        result = CliRunner().invoke(cli, list(words), obj=control, input=answer)
        assert "Traceback" not in result.output, result.output
        return result

    def stack_yaml(self, text: str) -> None:
        control_for(self.folder, self.world)
        (self.folder / "config/stack.yaml").write_text(text, encoding="utf-8")

    def text(self, path: str) -> str:
        return (self.folder / path).read_text(encoding="utf-8")


class _Gateway(BaseHTTPRequestHandler):
    """A gateway that knows three paths and the keys it is told."""

    answer: list[bytes]
    status: int
    asked: list[dict[str, Any]]
    models: tuple[int, bytes] = (200, b"{}")  # to a key
    health: int = 200

    def do_GET(self) -> None:
        if self.path == "/v1/models" and self.headers.get("Authorization"):
            self._send(*self.models)
            return
        if self.path == "/health":
            self._send(self.health, b"{}")
            return
        self._send(200 if self.headers.get("Authorization") else 401, b"{}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append({"body": body, "headers": dict(self.headers)})
        self._send(self.status, b"".join(self.answer))

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("x-request-id", "req-1")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


def event(text: str, **more: object) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}], **more}).encode() + b"\n\n"


STREAM = [event("Hello"), event(" there"), event("", usage={"completion_tokens": 7}), b"data: [DONE]\n\n"]


@contextmanager
def gateway(
    answer: Sequence[bytes] = STREAM, status: int = 200, **more: object
) -> Iterator[tuple[tuple[str, int], list[dict[str, Any]]]]:
    """A listening gateway: its address, and what it was asked."""
    asked: list[dict[str, Any]] = []
    handler = type("Handler", (_Gateway,), {"answer": list(answer), "status": status, "asked": asked, **more})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield ("127.0.0.1", server.server_address[1]), asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
