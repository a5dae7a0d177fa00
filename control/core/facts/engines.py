"""vLLM by release: config/engines.yaml."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from control.core.facts.base import Group, Sourced, Version, Word, version_key

Gib = Annotated[float, Field(ge=0, le=1000)]
Cuda = Annotated[str, Field(pattern=r"^\d+\.\d+$")]
Driver = Annotated[int, Field(ge=300, le=2000)]  # the branch: 580 of 580.159.04
Batches = Annotated[int, Field(ge=1, le=8)]


class Build(Group):
    """One image of a release."""

    cuda: Cuda
    min_driver: Driver


class Release(Sourced):
    """One vLLM release."""

    version: Version
    torch: Version | None
    builds: list[Build] = Field(min_length=1)
    batches_in_flight: Batches | None
    extra_memory_gib: Gib | None


class Compatibility(Sourced):
    """Drivers older than a build's own, on which it is documented to run."""

    driver_branches: list[Driver]
    variable: str


class Memory(Sourced):
    """What a GPU needs besides weights and KV cache."""

    activation_gib: Gib
    graphs_gib: Gib
    non_torch_gib: Gib
    nccl_allowance_gib: Gib
    context_gib: Gib
    batches_in_flight_allowance: Batches
    extra_allowance_gib: Gib
    extra_allowance_since: Version
    measured_release: Version
    measured_batched_tokens: int = Field(ge=1, le=1_000_000)

    def extra_gib(self, release: Release) -> tuple[float, bool]:
        """What the release needs beyond the measured one, and whether that is an allowance."""
        if release.extra_memory_gib is not None:
            return release.extra_memory_gib, False
        later = version_key(release.version) >= version_key(self.extra_allowance_since)
        return (self.extra_allowance_gib if later else 0.0), True


class Preset(Group):
    """Values that engine.preset stands for."""

    max_num_batched_tokens: int = Field(ge=256, le=1_000_000)
    max_num_seqs: int = Field(ge=1, le=100_000)


class Presets(Sourced):
    """The three choices of engine.preset."""

    latency: Preset
    balanced: Preset
    throughput: Preset


class Report(Sourced):
    """Somebody ran it and said how that went."""

    gpu: Word
    gpus: int | None = Field(ge=1, le=1024)
    tensor_parallel: int | None = Field(ge=1, le=1024)
    release: Version | None
    works: bool
    note: str


class Fault(Sourced):
    """A known fault, and when it applies."""

    id: Word
    releases: list[Version]
    gpus: list[Word]
    tensor_parallel: list[int]
    min_context: int | None = Field(ge=1, le=100_000_000)
    effect: Literal["refuse", "warn"]
    what: str
    workaround: str

    def applies(self, release: str, gpu: str | None, tensor_parallel: int, context: int) -> bool:
        """An unknown product is touched by faults that name no product only."""
        return (
            (not self.releases or release in self.releases)
            and (not self.gpus or gpu in self.gpus)
            and (not self.tensor_parallel or tensor_parallel in self.tensor_parallel)
            and (self.min_context is None or context >= self.min_context)
        )


class Names(Sourced):
    """Options or variables that came and went together."""

    since: Version
    until: Version | None
    names: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]] = Field(min_length=1)

    def covers(self, release: str) -> bool:
        """Known to be there in that release."""
        key = version_key(release)
        return version_key(self.since) <= key and (self.until is None or key <= version_key(self.until))


class Flags:
    """Options (or variables) seen from one release."""

    def __init__(self, groups: Iterable[Names], release: str) -> None:
        self._groups = {name: group for group in groups for name in group.names}
        self._release = release

    @property
    def known(self) -> frozenset[str]:
        """Every name of any release."""
        return frozenset(self._groups)

    def why_not(self, name: str) -> str | None:
        """None when the release has it, else the reason why it is not rendered."""
        group = self._groups.get(name)
        if group is None:
            return "not known in any release"
        if group.covers(self._release):
            return None
        if version_key(self._release) < version_key(group.since):
            return f"not known in {self._release}, first seen in {group.since}"
        return f"not known in {self._release}, last seen in {group.until}"


class EngineFacts(Group):
    """All releases and what is known of them."""

    default_release: Version
    releases: list[Release] = Field(min_length=1)
    compatibility: Compatibility
    memory: Memory
    presets: Presets
    reports: list[Report]
    faults: list[Fault]
    flags: list[Names]
    environment: list[Names]

    def find(self, version: str) -> Release | None:
        return next((release for release in self.releases if release.version == version), None)

    def flags_of(self, version: str) -> Flags:
        return Flags(self.flags, version)

    def variables_of(self, version: str) -> Flags:
        return Flags(self.environment, version)
