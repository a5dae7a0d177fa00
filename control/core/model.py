"""Types that core and adapters share. Frozen; `None` means "could not be learnt", never zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from control.core.gpus import Inventory

if TYPE_CHECKING:
    from control.core.capacity.result import GpuPlan

KEY_ID = 12  # digits of a digest that tell keys apart
Rendering = Mapping[str, str]  # path relative to the clone -> text


@dataclass(frozen=True)
class Replica:
    """One slot of the plan: a container with a fixed address."""

    slot: int
    address: str
    active: bool = True
    gpus: tuple[str, ...] = ()  # UUIDs

    @property
    def name(self) -> str:
        """Compose service and container role, `engine-0`."""
        return f"engine-{self.slot}"


@dataclass(frozen=True)
class Plan:
    """What will run on this host; computed, never typed in."""

    kind: str
    replicas: tuple[Replica, ...]
    gateway_address: str
    ip_range: str
    rootless: bool = False  # Docker runs as an unprivileged user, who may not raise limits
    policy_address: str = ""
    budget_address: str = ""
    gpu: GpuPlan | None = None  # kind gpu: the sum, the serve command, what was noticed

    @property
    def active(self) -> tuple[Replica, ...]:
        return tuple(r for r in self.replicas if r.active)

    @property
    def standby(self) -> tuple[Replica, ...]:
        return tuple(r for r in self.replicas if not r.active)


@dataclass(frozen=True)
class ImageRef:
    """One image of config/images.yaml."""

    name: str
    repository: str
    tag: str
    licence: str = ""
    build: Mapping[str, object] = field(default_factory=dict)
    upstream: str = ""  # registry and repository of its own project; empty: no registry has it

    @property
    def reference(self) -> str:
        return f"{self.repository}:{self.tag}"


@dataclass(frozen=True)
class FormerDigest:
    """Of a key that was rotated: the old one still counts until then."""

    digest: str
    expires: str

    @property
    def key_id(self) -> str:
        return self.digest[:KEY_ID]


@dataclass(frozen=True)
class ApiKey:
    """A client's key as the gateway knows it: a digest, never the key."""

    name: str
    owner: str
    digest: str  # SHA-256, hex
    created: str  # RFC 3339, UTC
    expires: str | None = None  # RFC 3339, UTC; None: never
    models: tuple[str, ...] = ()  # that it may ask for; none: all
    requests_per_second: int | None = None  # None: the policy's; 0: no limit
    requests_per_minute: int | None = None
    tpm: int | None = None  # tokens per minute
    streams: int | None = None  # requests at the same time
    former: tuple[FormerDigest, ...] = ()

    @property
    def key_id(self) -> str:
        """The first 48 bits of the digest: enough to tell keys apart in a log."""
        return self.digest[:KEY_ID]


@dataclass(frozen=True)
class PortUse:
    """A TCP port that somebody listens on. `holder` is None when it could not be learnt."""

    address: str
    port: int
    holder: str | None


@dataclass(frozen=True)
class ContainerState:
    """One container of the stack as Docker and its gate describe it."""

    service: str
    status: str  # created, running, exited, ...
    health: str | None = None
    exit_code: int | None = None
    phase: str | None = None  # the gate's word; replicas only
    phase_since_s: float | None = None  # seconds in that phase
    detail: str = ""


@dataclass(frozen=True)
class Host:
    """One snapshot of the machine. `None` = could not be learnt."""

    os: str | None = None
    cpus: int | None = None
    memory_bytes: int | None = None
    euid: int | None = None
    docker_error: str | None = None  # why the daemon did not answer; None when it did
    docker_version: str | None = None
    docker_root: str | None = None
    docker_rootless: bool | None = None
    cgroup_version: str | None = None
    compose_version: str | None = None
    buildx_version: str | None = None
    disk_free_bytes: Mapping[str, int | None] = field(default_factory=dict)
    ports: tuple[PortUse, ...] | None = None
    bindable: bool | None = None  # gateway.bind is an address that this host can listen on
    subnets: Mapping[str, str] | None = None  # subnet -> who uses it ("docker network x", "interface y")
    inventory: Inventory = field(default_factory=Inventory)  # its GPUs
    unwritable: tuple[str, ...] = ()  # folders of the clone that cannot be written
    images: Mapping[str, bool] | None = None  # image reference -> present
    running_kind: str | None = None  # kind of engine of a stack of this project that runs now
    running_project_dir: str | None = None  # the clone that it runs from
    clone_dir: str | None = None  # the clone that this command runs in
