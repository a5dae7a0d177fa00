"""What the container's environment says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class Config:
    """Settings of the service; each from BUDGET_<FIELD>."""

    folder: Path = Path("/etc/flashbox/budget")  # limits.json, rendered
    state: Path = Path("/var/lib/flashbox/budget")  # the volume: journal, usage/
    host_address: str = "0.0.0.0"
    port: int = 9400
    check_port: int = 9401
    metrics_port: int = 9490
    drain_s: float = 2.0  # calls in flight at SIGTERM; what comes later the gateway repeats
    ledger_file_mib: float = 64.0  # a file of lines is not continued above this size
    ledger_mib: float = 4096.0  # all files of lines together
    ledger_days: int = 400  # lines are kept for so long; sums of a day are not deleted

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Config:
        """The environment over the defaults."""
        given = {}
        for field in fields(cls):
            raw = environ.get(f"BUDGET_{field.name.upper()}")
            if raw:
                given[field.name] = type(field.default)(raw)
        return cls(**given)  # type: ignore[arg-type]
