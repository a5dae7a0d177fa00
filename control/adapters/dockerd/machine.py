"""What only the daemon knows about the machine: published ports, networks, images, its own folder."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable, Mapping

import docker
from docker.errors import NotFound

from control.core.model import Host, PortUse

PROJECT = "com.docker.compose.project"


def complete(client: docker.DockerClient, host: Host, images: Iterable[str]) -> Host:
    """Add the daemon's part to a snapshot."""
    info = client.info()
    root = info.get("DockerRootDir")
    return dataclasses.replace(
        host,
        docker_version=info.get("ServerVersion"),
        docker_root=root,
        docker_rootless="name=rootless" in (info.get("SecurityOptions") or ()),
        cgroup_version=info.get("CgroupVersion") or host.cgroup_version,
        disk_free_bytes={**host.disk_free_bytes, **_free(root)},
        ports=_with_published(host.ports, _published(client)),
        subnets={**(host.subnets or {}), **_networks(client)},
        images={reference: has_image(client, reference) for reference in images},
    )


def has_image(client: docker.DockerClient, reference: str) -> bool:
    try:
        client.images.get(reference)
    except NotFound:
        return False
    return True


def _free(root: str | None) -> Mapping[str, int | None]:
    """Room in Docker's folder; a remote daemon's cannot be seen from here."""
    if root is None:
        return {}
    try:
        return {root: shutil.disk_usage(root).free}
    except OSError:
        return {root: None}


def _networks(client: docker.DockerClient) -> dict[str, str]:
    found: dict[str, str] = {}
    for network in client.networks.list():
        for config in (network.attrs.get("IPAM") or {}).get("Config") or ():
            found[config.get("Subnet", "")] = f"docker network {network.name}"
    return {subnet: user for subnet, user in found.items() if subnet and ":" not in subnet}


def _published(client: docker.DockerClient) -> list[PortUse]:
    found = []
    for container in client.containers.list(ignore_removed=True):
        whose = f" of project {container.labels[PROJECT]}" if PROJECT in container.labels else ""
        for bindings in (container.attrs["NetworkSettings"].get("Ports") or {}).values():
            for binding in bindings or ():
                address = binding["HostIp"] or "0.0.0.0"
                found.append(PortUse(address, int(binding["HostPort"]), f"container {container.name}{whose}"))
    return found


def _with_published(ports: tuple[PortUse, ...] | None, published: list[PortUse]) -> tuple[PortUse, ...] | None:
    """A published port is held by its container, whatever process forwards it (or none: then only Docker knows)."""
    if ports is None:
        return tuple(published) or None
    named = {(use.address, use.port) for use in published}
    return (*published, *(use for use in ports if (use.address, use.port) not in named))
