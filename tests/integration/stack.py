"""A copy of the tree with a project, a subnet and a port of its own, driven as an operator would: by ctl.py.

Nothing here touches a stack that the operator runs from the original tree.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.eventually import eventually
from tests.load import Target

ROOT = Path(__file__).resolve().parents[2]
LISTED = '{{.ID}} {{.Label "com.docker.compose.project"}}'


def docker(*args: str, check: bool = True) -> str:
    """Run the docker client and return what it printed."""
    done = subprocess.run(["docker", *args], capture_output=True, text=True, check=False, timeout=300)
    if check and done.returncode:
        raise AssertionError(f"docker {' '.join(args)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def remove_stale_stacks() -> None:
    """Take away what test runs that were killed have left: projects whose process is gone."""
    for kind, remove in (("container", ("rm", "-f")), ("network", ("network", "rm"))):
        listing = docker(kind, "ls", *(["-a"] if kind == "container" else []), "--format", LISTED)
        for line in filter(None, listing.splitlines()):
            identity, _, project = line.partition(" ")
            owner = re.fullmatch(r"flashbox-test-[a-z]+-(\d+)", project)
            if owner and not Path(f"/proc/{owner[1]}").exists():
                docker(*remove, identity)


def free_subnet() -> str:
    """A /24 that no Docker network on this machine uses."""
    ids = docker("network", "ls", "-q").split()
    used = []
    for network in json.loads(docker("network", "inspect", *ids)) if ids else []:
        used += [ipaddress.ip_network(c["Subnet"]) for c in network["IPAM"]["Config"] or [] if "Subnet" in c]
    for third in range(100, 200):
        candidate = ipaddress.ip_network(f"172.29.{third}.0/24")
        if not any(candidate.overlaps(net) for net in used if net.version == 4):
            return str(candidate)
    raise AssertionError("no free subnet between 172.29.100.0 and 172.29.199.0")


@dataclass
class Ran:
    """One finished command."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@dataclass
class Stack:
    """One copy of the tree and the stack that runs from it."""

    root: Path
    project: str
    key: str = ""
    extra_env: dict[str, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("FLASHBOX", "COMPOSE_", "FB_"))}
        return {**clean, **self.extra_env}

    def ctl(self, *args: str, timeout_s: float = 280, env: Mapping[str, str] | None = None) -> Ran:
        done = subprocess.run(
            [sys.executable, "ctl.py", *args], cwd=self.root, env={**self.env, **(env or {})},
            capture_output=True, text=True, check=False, timeout=timeout_s, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    def must(self, *args: str, **kwargs: Any) -> Ran:
        ran = self.ctl(*args, **kwargs)
        assert ran.code == 0, f"ctl.py {' '.join(args)}: exit {ran.code}\n{ran.text}"
        return ran

    def start(self, *args: str, timeout_s: float = 280) -> subprocess.Popen[str]:
        """Start ctl.py and return at once."""
        return subprocess.Popen(
            [sys.executable, "ctl.py", *args], cwd=self.root, env=self.env, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def compose(self, *args: str, check: bool = True) -> str:
        """Bare docker compose at the root, as people type it."""
        done = subprocess.run(
            ["docker", "compose", *args],
            cwd=self.root,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def settings(self, **values: Any) -> None:
        """Write config/stack.yaml: the test's own project, subnet and port, and `section__name=value`."""
        tree: dict[str, Any] = yaml.safe_load((self.root / ".test-base.yaml").read_text())
        for path, value in values.items():
            section, name = path.split("__")
            tree.setdefault(section, {})[name] = value
        (self.root / "config/stack.yaml").write_text(yaml.safe_dump(tree))

    def up(self, *args: str) -> Ran:
        return self.must("up", "--profile", "stub", *args)

    def down(self) -> Ran:
        return self.must("down", "--volumes", "--yes")

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.must("status", "--json").out)
        return found

    @property
    def url(self) -> str:
        return str(self.status()["url"])

    def add_key(self, name: str, *limits: str) -> str:
        ran = self.must("keys", "add", name, "--owner", "tests", *limits)
        return next(word for word in ran.out.split() if word.startswith("fb-"))

    def target(self) -> Target:
        self.key = self.key or self.add_key("tests")
        return Target(self.url, self.key)

    def container(self, service: str) -> str:
        """The id of a service's container."""
        ids = docker(
            "ps", "-aq", "--filter", f"label=com.docker.compose.project={self.project}",
            "--filter", f"label=com.docker.compose.service={service}",
        ).split()  # fmt: skip
        assert len(ids) == 1, f"{service}: {ids}"
        return ids[0]

    def gate(self, service: str) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(
            docker("exec", self.container(service), "python3", "/opt/flashbox/gate/gate.py", "state")
        )
        return state

    def admin(self, path: str) -> str:
        """What Envoy itself says, by its admin socket inside the container."""
        script = (
            "import http.client,socket,sys\n"
            "c=http.client.HTTPConnection('admin');s=socket.socket(socket.AF_UNIX);s.connect('/run/flashbox/admin.sock')\n"
            "c.sock=s;c.request('GET',sys.argv[1]);print(c.getresponse().read().decode())"
        )
        return docker("exec", self.container("gateway"), "python3", "-c", script, path)

    def healthy_endpoints(self) -> set[str]:
        """Addresses to which Envoy sends requests now."""
        found = set()
        for host in json.loads(self.admin("/clusters?format=json"))["cluster_statuses"]:
            if host["name"] != "vllm":
                continue
            for endpoint in host.get("host_statuses", []):
                health = endpoint["health_status"]
                bad = [k for k in health if k.startswith("failed_")] or health.get("eds_health_status") != "HEALTHY"
                if not bad:
                    found.add(endpoint["address"]["socket_address"]["address"])
        return found

    def wait_ready(self, replicas: int, within_s: float = 60) -> None:
        eventually(lambda: len(self.healthy_endpoints()) == replicas, within_s)

    def leftovers(self) -> str:
        """Containers and networks of the project that still exist."""
        label = f"label=com.docker.compose.project={self.project}"
        return docker("ps", "-aq", "--filter", label) + docker("network", "ls", "-q", "--filter", label)

    def evidence(self, into: Path) -> None:
        """Rendered files, container states, logs and Envoy's view, for a failed test."""
        into.mkdir(parents=True, exist_ok=True)
        shutil.copytree(self.root / "run", into / "run", dirs_exist_ok=True, ignore_dangling_symlinks=True)
        (into / "ps.txt").write_text(self.compose("--profile", "*", "ps", "-a", check=False))
        (into / "logs.txt").write_text(
            self.compose("--profile", "*", "logs", "--no-color", "--timestamps", check=False)
        )


def copy_tree(into: Path) -> None:
    """Copy what a clone would hold: files that git knows, or would take."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    for name in filter(None, listing.split("\0")):
        source = ROOT / name
        if source.is_file() and not name.startswith("tests/"):
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, into / name)


@contextmanager
def new_stack(name: str) -> Iterator[Stack]:
    """A copy of the tree under a project of its own; whatever runs from it is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=f"flashbox-{name}-"))
    copy_tree(folder)
    stack = Stack(folder, f"flashbox-test-{name}-{os.getpid()}")
    # Tests send more with one key than a client may.
    unlimited = {"requests_per_second": 0, "requests_per_minute": 0, "streams": 0}
    gateway = {"port": 0, "limits": unlimited}
    base = {"project": stack.project, "gateway": gateway, "network": {"engine_subnet": free_subnet()}}
    (folder / ".test-base.yaml").write_text(yaml.safe_dump(base))
    stack.settings()
    try:
        yield stack
    finally:
        stack.ctl("down", "--volumes", "--yes")
        left = stack.leftovers()
        shutil.rmtree(folder, ignore_errors=True)
        assert not left, f"containers or networks left of {stack.project}: {left}"
