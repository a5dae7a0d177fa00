"""The sentences said to Docker Compose, as argument tuples; `Shell` runs them in the clone's root.

`.env` there names the files; the project is passed as a flag too, so that a mangled `.env` cannot lead to the
containers of another one. Every profile is passed as a flag, because a flag replaces
COMPOSE_PROFILES, and variables of the operator's own shell must not decide what runs (see `environment`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

BASE = ("docker", "compose", "--ansi", "never", "--progress", "plain")
EVERY_PROFILE = ("*",)


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The operator's environment without what would overrule `.env`, and without our own secrets."""
    ours = ("COMPOSE_", "FB_", "FLASHBOX_")
    return {name: value for name, value in environ.items() if not name.startswith(ours)}


def _compose(project: str, profiles: Sequence[str], *rest: str) -> tuple[str, ...]:
    flags = tuple(word for profile in profiles for word in ("--profile", profile))
    return (*BASE, "-p", project, *flags, *rest)


def create(project: str, profiles: Sequence[str], services: Sequence[str]) -> tuple[str, ...]:
    """Make containers without starting them (standby replicas)."""
    return _compose(project, profiles, "create", "--no-build", *services)


def up(project: str, profiles: Sequence[str], services: Sequence[str] = (), alone: bool = False) -> tuple[str, ...]:
    """Start what the profiles say; containers of services that are gone are removed. `alone`: nothing beside these."""
    beside = ("--no-deps",) if alone else ("--remove-orphans",)
    return _compose(project, profiles, "up", "--detach", "--no-build", *beside, *services)


def stop(project: str, services: Sequence[str] = ()) -> tuple[str, ...]:
    """Stop gracefully; each service has its own grace period in the Compose files."""
    return _compose(project, EVERY_PROFILE, "stop", *services)


def start(project: str, services: Sequence[str]) -> tuple[str, ...]:
    return _compose(project, EVERY_PROFILE, "start", *services)


def down(project: str, volumes: bool = False) -> tuple[str, ...]:
    """Remove containers and networks of every profile; volumes only when told."""
    return _compose(project, EVERY_PROFILE, "down", "--remove-orphans", *(("--volumes",) if volumes else ()))


def logs(project: str, services: Sequence[str], follow: bool, tail: str) -> tuple[str, ...]:
    following = ("--follow",) if follow else ()
    return _compose(project, EVERY_PROFILE, "logs", *following, "--tail", tail, *services)


def config_quiet(project: str, profiles: Sequence[str]) -> tuple[str, ...]:
    """Let Compose judge its files."""
    return _compose(project, profiles, "config", "--quiet")
