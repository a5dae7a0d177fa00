"""What the container's environment says, and how its memory is divided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
AT_ONCE = 32 << 10  # below: judged where it is; what costs more would hold up others
SMALL_BODY = MIB  # below: never waits for a larger one
# Shares of the container's memory. What Python, gRPC and the validators take at rest, all processes together:
AT_REST_MIB = 448  # the judges of medium bodies at work included
MEDIUM_BYTES = 96 * MIB  # what one of these may take
SMALL_MIB = 64  # bodies below SMALL_BODY, of each worker
JUDGE_FACTOR = 7  # memory that judging may take, in bodies; text with emoji takes six


@dataclass(frozen=True)
class Config:
    """Settings of the service; each from POLICY_<FIELD>."""

    folder: Path = Path("/etc/flashbox/policy")
    state: Path = Path("/tmp/policy")
    host: str = "0.0.0.0"
    ports: tuple[int, ...] = (9300, 9301)
    metrics_port: int = 9390
    memory_mib: int = 1152
    notice_s: float = 3.0  # between "not serving" and the end of new calls, so that Envoy has seen it
    drain_s: float = 12.0  # for calls in flight after that
    upload_wait_s: float = 60.0  # longest wait of a large body for its place

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Config:
        """The environment over the defaults."""
        one, given = environ.get, dict[str, object]()
        default = cls()
        given["folder"] = Path(one("POLICY_FOLDER", str(default.folder)))
        given["state"] = Path(one("POLICY_STATE", str(default.state)))
        given["host"] = one("POLICY_HOST_ADDRESS", default.host)
        given["ports"] = tuple(int(port) for port in one("POLICY_PORTS", "").split(",") if port) or default.ports
        for name in ("metrics_port", "memory_mib", "notice_s", "drain_s", "upload_wait_s"):
            raw = one(f"POLICY_{name.upper()}")
            given[name] = type(getattr(default, name))(raw) if raw else getattr(default, name)
        return cls(**given)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Budget:
    """Bytes that one worker may hold, and those that one judgement may take."""

    small: int
    large: int  # bodies of SMALL_BODY and more, together; none may be larger than this
    judging: int  # one judgement at a time in the whole container

    @classmethod
    def of(cls, config: Config) -> Budget:
        """Divide the container's memory. A body of the size it was made for fits once into each worker."""
        workers = len(config.ports)
        rest = (config.memory_mib - AT_REST_MIB - workers * SMALL_MIB) * MIB
        unit = max(SMALL_BODY, rest // (workers + JUDGE_FACTOR))
        return cls(SMALL_MIB * MIB, unit, JUDGE_FACTOR * unit)
