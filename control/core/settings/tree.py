"""The whole tree, and the groups that are one or two settings."""

from __future__ import annotations

import ipaddress

from pydantic import Field, field_validator

from control.core import wiring
from control.core.settings.base import Section
from control.core.settings.engine import Engine, Stub, Weights
from control.core.settings.gateway import Gateway
from control.core.settings.images import Images


class Service(Section):
    """The unprivileged user that every container runs as."""

    uid: int = Field(1001, ge=1, le=2**31 - 1, description="User id of every container process; also owns secrets/.")
    gid: int = Field(1001, ge=1, le=2**31 - 1, description="Group id of every container process.")


class Network(Section):
    """The internal network between gateway and replicas."""

    engine_subnet: str = Field(
        "172.31.78.0/24", description="Internal network of gateway and replicas; must be free on the host."
    )

    @field_validator("engine_subnet")
    @classmethod
    def _is_a_private_subnet(cls, value: str) -> str:
        net = ipaddress.IPv4Network(value)
        if not net.is_private or not 16 <= net.prefixlen <= 24:
            raise ValueError("expected a private IPv4 network between /16 and /24, such as 172.31.78.0/24")
        return str(net)


class Monitoring(Section):
    """Metrics, dashboards and logs (profile monitoring)."""

    enabled: bool = Field(False, description="Start the services of profile monitoring.")


class Autoscaler(Section):
    """Replicas that start and stop with the load (profile autoscale)."""

    enabled: bool = Field(False, description="Start min_replicas; create the others as standby.")
    min_replicas: int = Field(1, ge=1, le=wiring.MAX_REPLICAS, description="Replicas that are always active.")


class Logs(Section):
    """Rotation of container logs."""

    max_size_mib: int = Field(50, ge=1, le=10_240, description="A container's log file is rotated at this size.")
    max_files: int = Field(5, ge=1, le=100, description="Rotated files kept per container.")


class Settings(Section):
    """The whole tree."""

    project: str = Field(
        "flashbox",
        pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$",
        description="Compose project name; prefix of containers, networks and volumes.",
    )
    service: Service = Service()
    engine: Engine = Engine()
    weights: Weights = Weights()
    stub: Stub = Stub()
    gateway: Gateway = Gateway()
    network: Network = Network()
    monitoring: Monitoring = Monitoring()
    autoscaler: Autoscaler = Autoscaler()
    logs: Logs = Logs()
    images: Images = Images()
