"""A stack never fails as a whole because an optional image is missing: its service is set aside, and that is said.

Compose starts every service whose profile is on, so a service without an image gets the profile that nobody switches
on; its name stays, so that `ps` and `config` still know it. A required one stops everything before anything is touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from control.core import wiring
from control.core.errors import PreflightRefused

Have = Literal["present", "obtainable", "missing"]


@dataclass(frozen=True)
class Service:
    """A Compose service, and the image that it runs."""

    name: str
    image: str  # as Docker knows it
    profile: str = ""  # that switches it on; none: it always runs
    required: bool = True


@dataclass(frozen=True)
class Placement:
    """The profile of each service, and what was set aside with the way to mend it."""

    profiles: Mapping[str, str]
    unavailable: tuple[Service, ...] = ()

    def environment(self) -> dict[str, str]:
        """Variables of the Compose files: `profiles: ["${FB_PROMETHEUS_PROFILE}"]`."""
        return {f"FB_{name.upper().replace('-', '_')}_PROFILE": profile for name, profile in self.profiles.items()}

    def notes(self) -> tuple[str, ...]:
        """One line for each service that will not run."""
        return tuple(
            f"{service.name} is left out: no image {service.image}, and none to be had. {how_to_load(service.image)}"
            for service in self.unavailable
        )


def place(services: Sequence[Service], have: Mapping[str, Have | None]) -> Placement:
    """Which profile each service is rendered with. What could not be learnt (None, or not named) is not missing.

    Raises PreflightRefused that names every required image that is missing.
    """
    missing = [service for service in services if have.get(service.image) == "missing"]
    required = [service for service in missing if service.required]
    if required:
        raise refusal({service.name: service.image for service in required})
    aside = {service.name for service in missing}
    profiles = {s.name: wiring.UNAVAILABLE_PROFILE if s.name in aside else s.profile for s in services}
    return Placement(profiles, tuple(missing))


def refusal(images: Mapping[str, str], why: str = "") -> PreflightRefused:
    """What is said of images that must be there: name -> reference."""
    what = "\n".join(f"{name}: no image {reference}, and it could not be had" for name, reference in images.items())
    ways = "\n".join(how_to_load(reference) for reference in dict.fromkeys(images.values()))
    return PreflightRefused(what, why, f"{ways}\nThen run this again.")


def how_to_load(reference: str) -> str:
    """The way that needs no registry."""
    return (
        f"Where it can be had: docker pull, docker tag ... {reference}, docker save -o image.tar {reference}; "
        "here: docker load -i image.tar"
    )
