"""Containers have no more rights than they need, and the network shows one port only."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from tests.integration.stack import Stack, docker

SERVICES = ("gateway", "policy", "budget", "engine-0", "engine-1")
# Services that hold no stream: notice and drain of workers; calls in flight.
LONGEST_S = {"policy": 15, "budget": 2}


@pytest.fixture(params=SERVICES)
def inspected(stack: Stack, request: pytest.FixtureRequest) -> Any:
    return json.loads(docker("inspect", stack.container(request.param)))[0]


def test_a_container_is_unprivileged(inspected: Any) -> None:
    host = inspected["HostConfig"]
    assert inspected["Config"]["User"] == "1001:1001"
    assert host["ReadonlyRootfs"] is True
    assert host["CapDrop"] == ["ALL"] and not host["CapAdd"] and not host["Privileged"]
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert host["Memory"] > 0 and host["PidsLimit"] > 0
    assert host["RestartPolicy"]["Name"] == "unless-stopped"


def test_no_container_sees_the_docker_socket(inspected: Any) -> None:
    assert not [m for m in inspected["Mounts"] if "docker.sock" in m["Source"]]


def test_logs_rotate_and_carry_labels(inspected: Any) -> None:
    config = inspected["HostConfig"]["LogConfig"]
    assert config["Type"] == "json-file"
    assert config["Config"]["max-size"] == "50m" and config["Config"]["max-file"] == "5"
    assert "flashbox.replica" in config["Config"]["labels"]


def test_docker_waits_longer_than_the_drain(inspected: Any) -> None:
    service = inspected["Config"]["Labels"]["com.docker.compose.service"]
    assert inspected["Config"]["StopTimeout"] > LONGEST_S.get(service, 60)


def test_only_the_gateways_public_port_is_published_and_on_loopback(stack: Stack) -> None:
    published = {}
    for service in SERVICES:
        ports = json.loads(docker("inspect", "--format", "{{json .NetworkSettings.Ports}}", stack.container(service)))
        published[service] = {port: binding for port, binding in ports.items() if binding}
    assert [service for service, ports in published.items() if ports] == ["gateway"]
    assert list(published["gateway"]) == ["8000/tcp"]
    assert [b["HostIp"] for b in published["gateway"]["8000/tcp"]] == ["127.0.0.1"]


def test_replicas_have_no_way_out(stack: Stack) -> None:
    assert docker("network", "inspect", "--format", "{{.Internal}}", f"{stack.project}_engine") == "true"
    script = "import socket; s=socket.socket(); s.settimeout(2); print(s.connect_ex(('192.0.2.1', 80)))"
    assert docker("exec", stack.container("engine-0"), "python3", "-c", script) != "0"


def test_admin_and_internal_listener_are_not_reachable_from_the_published_port(stack: Stack) -> None:
    port = int(stack.url.rsplit(":", 1)[1].split("/")[0])
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"GET /stats HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(200).split()[1] in (b"401", b"404")


def test_secrets_are_readable_by_their_owner_only(stack: Stack) -> None:
    for path in (stack.root / "secrets").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
    assert not [p for p in (stack.root / "run").rglob("*") if p.is_file() and "fb-" in p.read_text(errors="ignore")]
    upstream = (stack.root / "secrets/upstream_key").read_text().strip()
    for path in (stack.root / "run").rglob("*"):
        assert not path.is_file() or upstream not in path.read_text(errors="ignore"), path


def test_servers_may_open_as_many_sockets_as_the_host_allows(stack: Stack) -> None:
    for service in SERVICES:
        limits = docker("exec", stack.container(service), "grep", "Max open files", "/proc/1/limits").split()
        assert limits[3] == limits[4], f"{service}: soft limit {limits[3]}, hard limit {limits[4]}"
