"""Everything that Docker, Compose and ctl.py tell about a running stack, and a search for secrets in it."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from tests.integration.stack import Stack, docker

# What people paste into tickets.
COMMANDS = (
    ("status", "--json"), ("config", "show"), ("doctor",), ("keys", "list", "--json"), ("gateway", "status", "--json"),
    ("render", "--check"), ("logs", "--tail", "1000"), ("probe",),
)  # fmt: skip
PAGES = ("/config_dump?include_eds", "/stats", "/stats/prometheus", "/clusters", "/server_info", "/certs")


def told_by_us(stack: Stack) -> dict[str, str]:
    """Place -> what is read there: commands of ctl.py, pages of Envoy."""
    found = {f"ctl.py {' '.join(words)}": stack.ctl("-v", *words).text for words in COMMANDS}
    return found | {f"admin {path}": stack.admin(path) for path in PAGES}


def told_by_docker(stack: Stack) -> dict[str, str]:
    """Place -> what is read there: all containers, also those that ended, images, Compose, rendered files."""
    found = {"compose config": stack.compose("--profile", "*", "config")}
    found["compose config, JSON"] = stack.compose("--profile", "*", "config", "--format", "json")
    for path in [*(stack.root / "run").rglob("*"), stack.root / ".env"]:
        if path.is_file() and path.stat().st_size:
            found[f"file {path.relative_to(stack.root)}"] = path.read_bytes().decode(errors="replace")
    return found | _of_containers(stack)


def _of_containers(stack: Stack) -> dict[str, str]:
    label = f"label=com.docker.compose.project={stack.project}"
    facts = json.loads(docker("inspect", *docker("ps", "-aq", "--filter", label).split()))
    found = {"networks": docker("network", "inspect", *docker("network", "ls", "-q", "--filter", label).split())}
    for fact in facts:
        service = fact["Config"]["Labels"]["com.docker.compose.service"]
        found |= {f"{service} {part}": text for part, text in _of_container(fact).items()}
    for image in sorted({fact["Image"] for fact in facts}):
        found[f"{image} image"] = docker("image", "inspect", image)
        found[f"{image} history"] = docker("history", "--no-trunc", image)
    return found


def _of_container(fact: Mapping[str, Any]) -> dict[str, str]:
    """One container's settings by their kind, and whole, so that none is forgotten."""
    config = fact["Config"]
    logs = subprocess.run(["docker", "logs", fact["Id"]], capture_output=True, check=True, timeout=60)
    found = {
        "inspect": json.dumps(fact),
        "environment": json.dumps(config["Env"]),
        "command": json.dumps([config["Entrypoint"], config["Cmd"], fact["Path"], fact["Args"]]),
        "labels": json.dumps(config["Labels"]),
        "mounts": json.dumps(fact["Mounts"]),
        "health log": json.dumps(fact["State"].get("Health")),
        "log": (logs.stdout + logs.stderr).decode(errors="replace"),
    }
    if fact["State"]["Running"]:
        found["processes"] = docker("top", fact["Id"], "-eo", "pid,args")
    return found


def forms(secret: str) -> Iterator[str]:
    """A secret as it is, and as it looks inside JSON, a URL, hexadecimal digits or base64."""
    raw = secret.encode()
    yield from (secret, json.dumps(secret)[1:-1], quote(secret, safe=""), raw.hex())
    # What stands before it shifts base64 by a place: of each shift the digits that hang on the secret alone.
    for shift in range(3):
        digits = base64.b64encode(b"x" * shift + raw).decode().rstrip("=")
        yield digits[4 if shift else 0 : -4]


def leaks(places: Mapping[str, str], secrets: Mapping[str, str]) -> set[tuple[str, str]]:
    """(place, name of the secret), for every secret that a place holds in any form."""
    return {
        (place, name)
        for name, secret in secrets.items()
        for form in forms(secret)
        for place, text in places.items()
        if form in text
    }
