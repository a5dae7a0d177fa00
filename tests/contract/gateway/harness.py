"""A whole gateway on loopback: the product's own rendering, entry.py and Envoy, in front of fake replicas."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from control.adapters.envoy import packaged_binary
from control.core import endpoints, envoy_files, images, keys, rendering, wiring
from control.core.model import ApiKey, Plan
from control.core.model import Replica as Slot
from control.core.settings import Settings
from tests.contract.budget.process import Budget
from tests.contract.gateway import counting, policy_pair
from tests.contract.policy.process import Policy
from tests.eventually import eventually
from tests.ports import free_port
from tests.sources import SOURCES

ROOT = Path(__file__).parents[3]
ENTRY = ROOT / "images" / "gateway" / "entry.py"
FAKE = Path(__file__).with_name("fake_replica.py")
IMAGES = images.parse((ROOT / "config" / "images.yaml").read_text())
KEY = "fb-test-key-of-alice"
UPSTREAM_KEY = "the-upstream-key"
SOON_S = 20.0  # for what takes well under a second on an idle machine
CHAT = "/v1/chat/completions"
MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"


def api_key(key: str, name: str = "alice") -> ApiKey:
    """The gateway's side of a client's key."""
    return ApiKey(name, "tests", keys.digest(key), "2026-01-01T00:00:00Z")


@dataclass
class Answer:
    """One whole HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error object, after the checks that hold for every error that the gateway makes."""
        content = self.json
        assert list(content) == ["error"], content
        error: dict[str, Any] = content["error"]
        assert set(error) == {"message", "type", "param", "code", "request_id"}, error
        assert error["message"] and error["param"] is None, error
        assert self.headers["content-type"] == "application/json"
        assert self.headers["x-request-id"] == error["request_id"] != "", (self.headers, error)
        return error

    @property
    def messages_error(self) -> dict[str, str]:
        """The error object in Anthropic's form, after the same checks."""
        content = self.json
        assert set(content) == {"type", "error", "request_id"} and content["type"] == "error", content
        error: dict[str, str] = content["error"]
        assert set(error) == {"type", "message"} and error["message"], content
        assert self.headers["request-id"] == self.headers["x-request-id"]
        assert self.headers["content-type"] == "application/json"
        assert self.headers["x-request-id"] == content["request_id"] != "", (self.headers, content)
        return error


def ask(
    port: int, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None, key: str = KEY
) -> Answer:
    """One request on a connection of its own; `key` "" sends none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        given = {**({"authorization": f"Bearer {key}"} if key else {}), **(headers or {})}
        data = json.dumps(body) if isinstance(body, dict) else body
        connection.request(method, path, data, given)
        return answer_of(connection.getresponse())
    finally:
        connection.close()


def answer_of(response: http.client.HTTPResponse) -> Answer:
    """The whole of it."""
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, response.read())


class Replica:
    """A fake replica in a process of its own."""

    def __init__(self, slot: Slot, engine_port: int, gate_port: int) -> None:
        self.slot, self.gate_port = slot, gate_port
        command = [sys.executable, str(FAKE), slot.name, slot.address, str(engine_port), str(gate_port)]
        self._process = subprocess.Popen(command)
        eventually(lambda: self._control("GET", "/requests"), SOON_S)

    def _control(self, method: str, path: str) -> str:
        connection = http.client.HTTPConnection(self.slot.address, self.gate_port, timeout=10)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.read().decode() or "done"
        finally:
            connection.close()

    def set_ready(self, ready: bool) -> None:
        """What its gate says from now on."""
        self._control("POST", "/ready" if ready else "/unready")

    def step(self) -> None:
        """Let a stream with act=step send one more event."""
        self._control("POST", "/step")

    def answer_plainly(self) -> None:
        """From now on every body gets one short answer, whatever it says."""
        self._control("POST", "/plain")

    @property
    def requests(self) -> list[dict[str, Any]]:
        """What it was asked, oldest first."""
        asked: list[dict[str, Any]] = json.loads(self._control("GET", "/requests"))
        return asked

    def kill(self) -> None:
        """SIGKILL: the server and its gate are gone in the middle of whatever they did."""
        self._process.kill()
        self._process.wait()


def gateway_settings(monitoring: bool = False, **gateway: object) -> Settings:
    """A stub stack with these settings of the gateway; unlike a real one it has no limits, where none are given."""
    given = {"limits": dict.fromkeys(("requests_per_second", "requests_per_minute", "streams"), 0), **gateway}
    return Settings.model_validate(
        {"engine": {"kind": "stub"}, "gateway": given, "monitoring": {"enabled": monitoring}}
    )


@dataclass
class Gateway:
    """Rendered files, replicas, and entry.py with Envoy."""

    folder: Path
    settings: Settings = field(default_factory=gateway_settings)
    count: int = 2
    api_keys: Sequence[ApiKey] = (api_key(KEY),)
    drain_s: float = 60.0
    replicas: list[Replica] = field(default_factory=list)
    policy: Policy | None = None  # None: the shared one, which lets everything pass
    budget: Budget | None = None  # None: the shared one, which counts and limits nobody
    collector_port: int = 0

    def __post_init__(self) -> None:
        self.port, self.internal_port = free_port(), free_port()
        self._engine_port, self._gate_port = free_port(), free_port()
        subnet = f"127.{random.randint(16, 250)}.{random.randint(1, 250)}"
        self.slots = tuple(Slot(n, f"{subnet}.{10 + n}") for n in range(self.count))
        self.dynamic = self.folder / "envoy" / "dynamic"
        self.socket = self.folder / "admin.sock"
        self.secret = self.folder / "upstream_key"
        self.log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    # ---- files

    @contextmanager
    def _wired(self) -> Iterator[None]:
        """The product's wiring with this test's ports and folders."""
        ours = SimpleNamespace(**{name: value for name, value in vars(wiring).items() if name.isupper()})
        ours.GATEWAY_PUBLIC_PORT, ours.GATEWAY_INTERNAL_PORT = self.port, self.internal_port
        ours.GATEWAY_ADMIN_SOCKET, ours.SECRETS_MOUNT = str(self.socket), str(self.folder)
        ours.ENVOY_DIR, ours.ENVOY_DYNAMIC_DIR = str(self.dynamic.parent), str(self.dynamic)
        ours.ENGINE_PORT, ours.GATE_PORT = self._engine_port, self._gate_port
        ours.POLICY_PORTS = (self.policy or policy_pair.shared()).ports
        budget = self.budget or counting.shared()
        ours.BUDGET_PORT, ours.BUDGET_CHECK_PORT = budget.port, budget.checks
        ours.TLS_DIR = str(self.folder / "tls")
        ours.COLLECTOR_HOST, ours.COLLECTOR_PORT = "localhost", self.collector_port or 9
        with mock.patch.object(envoy_files, "wiring", ours), mock.patch.object(endpoints, "wiring", ours):
            yield

    def rendered(self) -> dict[str, str]:
        """Envoy's files: name -> text."""
        with self._wired():
            files = self._render(self.slots, "127.0.0.1", "127.0.0.1")
        return {name: text.replace("address: 0.0.0.0", "address: 127.0.0.1") for name, text in files.items()}

    def product(self) -> dict[str, str]:
        """The same with the product's own ports, paths and addresses."""
        return self._render(tuple(Slot(n, f"172.31.78.{10 + n}") for n in range(self.count)))

    def _render(
        self, slots: tuple[Slot, ...], policy: str = "172.31.78.3", budget: str = "172.31.78.4"
    ) -> dict[str, str]:
        files = rendering.render(self.settings, self._plan(slots, policy, budget), self.api_keys, IMAGES, SOURCES)
        return {path.rpartition("/")[2]: text for path, text in files.items() if path.startswith("run/envoy/")}

    def policy_rules(self) -> dict[str, Any]:
        """The rules of the policy service, as the product renders them from the settings."""
        rules: dict[str, Any] = json.loads(self._services()["run/policy/rules.json"])
        return {**rules, "tokenize_url": f"http://127.0.0.1:{self.internal_port}/tokenize"}

    def limits(self) -> str:
        """The limits of the budget service, as the product renders them from settings and keys."""
        return self._services()["run/budget/limits.json"]

    def _services(self) -> Mapping[str, str]:
        plan = self._plan(self.slots, "127.0.0.1", "127.0.0.1")
        return rendering.render(self.settings, plan, self.api_keys, IMAGES, SOURCES)

    @staticmethod
    def _plan(slots: tuple[Slot, ...], policy: str, budget: str) -> Plan:
        return Plan("stub", slots, "172.31.78.2", "172.31.78.128/25", policy_address=policy, budget_address=budget)

    def write(self, **changes: tuple[str, str]) -> None:
        """The tree as it is before the start; `changes`: file stem -> (old text, new text)."""
        self.dynamic.mkdir(parents=True, exist_ok=True)
        self.secret.write_text(UPSTREAM_KEY)
        for name, text in self.rendered().items():
            old, new = changes.get(name.removesuffix(".yaml"), ("", ""))
            assert old in text, f"{name} has no {old!r}"
            folder = self.dynamic.parent if name in ("bootstrap.yaml", "entry.json") else self.dynamic
            (folder / name).write_text(text.replace(old, new) if old else text)

    def publish(self, name: str, text: str) -> None:
        """As the control program does: written aside, then renamed into the watched folder."""
        aside = self.dynamic.parent / f".{name}"
        aside.write_text(text)
        aside.rename(self.dynamic / name)

    def publish_keys(self, *api_keys: ApiKey) -> None:
        """Replace the keys."""
        self.api_keys = api_keys
        self.publish("ecds_auth.yaml", self.rendered()["ecds_auth.yaml"])

    def publish_replicas(self, slots: Sequence[int], draining: Collection[int] = ()) -> None:
        """Replace the replicas."""
        with self._wired():
            text = endpoints.eds([self.slots[n] for n in slots], [self.slots[n].name for n in draining])
        self.publish("eds.yaml", text)

    # ---- processes

    def start_replicas(self, ready: bool = True) -> None:
        """One fake replica per slot."""
        self.replicas = [Replica(slot, self._engine_port, self._gate_port) for slot in self.slots]
        for replica in self.replicas:
            replica.set_ready(ready)

    def revive(self, number: int) -> None:
        """Start a killed replica again, ready."""
        self.replicas[number] = Replica(self.slots[number], self._engine_port, self._gate_port)
        self.replicas[number].set_ready(True)

    def launch(self) -> subprocess.Popen[bytes]:
        """Start entry.py and return at once."""
        environment = {
            **os.environ,
            "GATEWAY_ENVOY": str(packaged_binary()),
            "GATEWAY_FOLDER": str(self.dynamic.parent),
            "GATEWAY_ADMIN_SOCKET": str(self.socket),
            "GATEWAY_SECRET": str(self.secret),
            "GATEWAY_DRAIN_S": str(self.drain_s),
            "GATEWAY_BASE_ID": str(self.port),
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-u", str(ENTRY)], env=environment, stdout=log, stderr=log
            )
        return self._process

    def start(self, healthy: int | None = None) -> None:
        """Start entry.py and wait until it serves and `healthy` replicas (all, by default) are in use."""
        process = self.launch()
        eventually(lambda: process.poll() is None and self.said("serving"), SOON_S)
        eventually(lambda: self.stat("cluster.policy.membership_healthy") == 2, SOON_S)
        eventually(lambda: self.stat("cluster.budget.membership_healthy") == 1, SOON_S)
        wanted = self.count if healthy is None else healthy
        eventually(lambda: len(self.healthy()) == wanted, SOON_S)

    @contextmanager
    def serving(self) -> Iterator[Gateway]:
        """With ready replicas for as long as the block; whatever was started is ended, its own services too."""
        self.write()
        try:
            self.start_replicas()
            self.start()
            yield self
        finally:
            self.end()
            if self.policy is not None:
                self.policy.close()
            if self.budget is not None:
                self.budget.end()

    def signal(self, signum: signal.Signals) -> None:
        """Send a signal to entry.py."""
        assert self._process is not None
        self._process.send_signal(signum)

    def wait(self, within_s: float = 60) -> int:
        """The exit code of entry.py."""
        assert self._process is not None
        return self._process.wait(within_s)

    def end(self) -> None:
        """Kill what this gateway started: replicas, entry.py, and Envoy, which may outlive its parent."""
        for replica in self.replicas:
            replica.kill()
        self.kill()
        Path(f"/dev/shm/envoy_shared_memory_{self.port * 10}").unlink(missing_ok=True)

    def kill(self) -> None:
        """SIGKILL entry.py and its Envoys; the replicas stay."""
        if self._process is None:
            return
        running = self._process.poll() is None
        self._process.kill()
        self._process.wait()
        born = [line["envoy_pid"] for line in self.lines("entry") if line["phase"] in ("starting", "restarting")]
        gone = {line["envoy_pid"] for line in self.lines("entry") if line["phase"] == "released"}
        for pid in born if running else ():
            if pid not in gone:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # ---- what it says

    def ask(self, method: str, path: str, body: object = None, **more: Any) -> Answer:
        """One request to the public port."""
        return ask(self.port, method, path, body, **more)

    def complete(self, **more: Any) -> Answer:
        """One short completion."""
        return self.ask("POST", CHAT, {"model": "m", "max_tokens": 1}, **more)

    def admin(self, method: str, path: str) -> tuple[int, str]:
        """Status and text of Envoy's admin interface."""
        connection = http.client.HTTPConnection("admin", timeout=10)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self.socket))
        try:
            connection.request(method, path)
            answer = answer_of(connection.getresponse())
        finally:
            connection.close()
        return answer.status, answer.body.decode()

    def stat(self, name: str) -> int:
        """One of Envoy's counters or gauges."""
        text = self.admin("GET", f"/stats?filter=^{name}$")[1]
        return int(text.partition(": ")[2] or 0)

    def entry(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run entry.py beside the one that runs, as `docker exec` does."""
        environment = {**os.environ, "GATEWAY_ADMIN_SOCKET": str(self.socket)}
        command = [sys.executable, str(ENTRY), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def state(self) -> dict[str, Any]:
        """What `entry.py state` prints."""
        done = self.entry("state")
        assert done.returncode == 0, done.stderr
        state: dict[str, Any] = json.loads(done.stdout)
        return state

    def healthy(self) -> set[str]:
        """Names of the replicas that Envoy would choose."""
        clusters = json.loads(self.admin("GET", "/clusters?format=json")[1])["cluster_statuses"]
        hosts = [
            host
            for cluster in clusters
            if cluster["name"] == wiring.ENGINE_CLUSTER
            for host in cluster.get("host_statuses", [])
        ]
        good = [host for host in hosts if host["health_status"] == {"eds_health_status": "HEALTHY"}]
        return {host["hostname"] for host in good}

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """The log's lines of one kind: entry, envoy or access."""
        parsed = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in parsed if line.get("log") == kind]

    def said(self, phase: str) -> dict[str, Any] | None:
        """The first line of entry.py for a phase."""
        return next((line for line in self.lines("entry") if line["phase"] == phase), None)
