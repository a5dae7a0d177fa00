"""The clone as a workspace: which file means what. Reads and publishes; decides nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from control.adapters import files
from control.core import envfile, header, wiring
from control.core.envoy_files import FILTERS
from control.core.errors import UsageError
from control.core.rendering import SOURCES

STACK_YAML = "config/stack.yaml"
IMAGES_YAML = "config/images.yaml"
CHOICES = "run/choices.json"
STAMP = "run/stamp.json"
ENV = ".env"
ENVOY = "run/envoy/"
AUTH = "run/envoy/dynamic/ecds_auth.yaml"
LISTENERS = "run/envoy/dynamic/lds.yaml"
CERTIFICATE = f"{wiring.TLS_FOLDER}/{wiring.TLS_CURRENT}/{wiring.TLS_CERTIFICATE}"
UPSTREAM_KEY = f"secrets/{wiring.UPSTREAM_KEY}"
# Envoy loads what a file refers to before the file: clusters, their members, secrets, filters, routes, listeners.
ENVOY_ORDER = (
    *("cds.yaml", "eds.yaml", "sds.yaml", "sds_tls.yaml"),
    *(f"ecds_{name}.yaml" for name in FILTERS),
    *("rds.yaml", "lds.yaml", "bootstrap.yaml"),
)


@dataclass(frozen=True)
class Choices:
    """What the last `up` or `init` was told on its command line; remembered until the next one."""

    command: str = "up"
    profiles: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()


class Workspace:
    """One clone of flashbox."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def text(self, path: str) -> str | None:
        return files.read(self.root / path)

    def sources(self) -> dict[str, str]:
        """What is rendered into other files, by path: Envoy's templates with their parts, policies, schemas."""
        return {f"{top}/{path}": text for top in SOURCES for path, text in files.tree(self.root / top).items()}

    def facts(self) -> dict[str, str]:
        """Files of config/ by path, among them what is known of models, GPUs and releases."""
        return {f"config/{path}": text for path, text in files.tree(self.root / "config", "*.yaml").items()}

    def on_disk(self, paths: Sequence[str]) -> dict[str, str | None]:
        return {path: self.text(path) for path in paths}

    def envoy_files(self) -> dict[str, str]:
        """What the gateway reads now."""
        folder = self.root / ENVOY
        return {ENVOY + path: text for path, text in files.tree(folder, "*.yaml").items()} if folder.is_dir() else {}

    def certificate(self) -> str | None:
        """The certificate that the gateway shows, with its chain; None while it speaks plain HTTP."""
        return self.text(CERTIFICATE) if wiring.TLS_SECRET in (self.text(LISTENERS) or "") else None

    def rendered(self) -> dict[str, str]:
        """Files below run/ that say of themselves that they were rendered; the stamp is about them, none of them."""
        folder = self.root / "run"
        found = {**files.tree(folder, "*.yaml"), **files.tree(folder, "*.json")} if folder.is_dir() else {}
        named = {f"run/{path}": text for path, text in found.items()}
        return {path: text for path, text in named.items() if path != STAMP and header.is_rendered(text)}

    def version(self) -> str:
        found = re.search(r'^version = "(.+)"$', self.text("pyproject.toml") or "", re.MULTILINE)
        return found[1] if found else "unknown"

    def rendered_project(self) -> str | None:
        """The Compose project of what was rendered last, which is what runs if anything does."""
        return envfile.parse(self.text(ENV) or "").get("COMPOSE_PROJECT_NAME")

    # ---- writing

    def publish(self, rendering: Mapping[str, str]) -> list[str]:
        """Replace what differs, Envoy's files last and in its order; the paths that changed."""
        return [path for path in in_order(rendering) if files.publish_if_changed(self.root / path, rendering[path])]

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            (self.root / path).unlink(missing_ok=True)

    def write(self, path: str, text: str) -> bool:
        return files.publish_if_changed(self.root / path, text)

    def replace(self, path: str, text: str) -> None:
        """Publish it whether it differs or not: who watches reads it again."""
        files.publish(self.root / path, text)

    def create(self, path: str, text: str) -> bool:
        """Write a file that a person will own from then on; one that is there is never touched."""
        if (self.root / path).exists():
            return False
        files.publish(self.root / path, text)
        return True

    def make_secret(self, path: str, text: str, owner: files.Owner) -> bool:
        """Write a secret once, mode 0600, for the containers' user; one that is there is only given to that user."""
        if (self.root / path).exists():
            files.restrict(self.root / path, 0o600, owner)
            return False
        self.write_secret(path, text, owner)
        return True

    def write_secret(self, path: str, text: str, owner: files.Owner | None = None) -> None:
        files.make_folder((self.root / path).parent, 0o700, owner)
        files.publish(self.root / path, text, 0o600, owner)

    # ---- remembered choices

    def choices(self) -> Choices:
        """What was remembered; a file that makes no sense counts as nothing (run/ may be deleted at any time)."""
        try:
            found = json.loads(self.text(CHOICES) or "{}")
            return Choices(
                str(found.get("command", "up")),
                tuple(map(str, found["profiles"])),
                tuple(map(str, found["assignments"])),
            )
        except (UsageError, ValueError, LookupError, TypeError, AttributeError):
            return Choices()

    def remember(self, choices: Choices) -> None:
        told = {"command": choices.command, "profiles": choices.profiles, "assignments": choices.assignments}
        self.write(CHOICES, json.dumps(told, indent=2) + "\n")

    # ---- locks: one for what runs, held for long; one for what is published, held for moments

    @contextmanager
    def changing_stack(self, who: str) -> Iterator[None]:
        with files.lock(self.root / "run/.stack.lock", who, wait_s=2.0):
            yield

    @contextmanager
    def publishing(self, who: str) -> Iterator[None]:
        with files.lock(self.root / "run/.publish.lock", who):
            yield


def in_order(paths: Iterable[str]) -> list[str]:
    """Envoy's files last and in its order."""
    return sorted(paths, key=_position)


def _position(path: str) -> tuple[int, str]:
    name = path.rpartition("/")[2]
    return (ENVOY_ORDER.index(name) + 1 if path.startswith(ENVOY) and name in ENVOY_ORDER else 0, path)
