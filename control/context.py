"""What every command works with: clone, settings, shell, daemon, terminal. Each is made when first used."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from control.adapters.console import Console
from control.core.errors import PreflightRefused, UsageError

if TYPE_CHECKING:  # heavy: only commands that need them pay for them
    from control.adapters.dockerd import Dockerd
    from control.adapters.shell import Shell
    from control.adapters.workspace import Choices, Workspace
    from control.core.facts import Facts
    from control.core.layers import Layer, Resolved
    from control.core.model import Host, ImageRef
    from control.core.settings import Settings

KINDS = ("stub", "cpu", "gpu")
# What `--profile` sets: a kind of engine, or a part of the stack that is off by default.
PROFILE_SETTINGS: Mapping[str, str] = {
    **{kind: f"engine.kind={kind}" for kind in KINDS},
    "monitoring": "monitoring.enabled=true",
    "autoscale": "autoscaler.enabled=true",
}


class Control:
    """The context of one command."""

    def __init__(self, root: Path, environ: Mapping[str, str], verbose: bool = False) -> None:
        self.root = root
        self.environ = environ
        self.console = Console(verbose)
        self.assignments: tuple[str, ...] = ()  # --set of this command
        self._chosen: Choices | None = None  # by this command; else what is remembered counts

    # ---- settings

    @cached_property
    def workspace(self) -> Workspace:
        from control.adapters.workspace import Workspace

        return Workspace(self.root)

    @property
    def choices(self) -> Choices:
        return self._chosen if self._chosen is not None else self.workspace.choices()

    def choose(self, command: str, profiles: Sequence[str]) -> None:
        """This command's --profile and --set replace what is remembered (written once the plan holds)."""
        from control.adapters.workspace import Choices

        kinds = [name for name in profiles if name in KINDS]
        if len(set(kinds)) > 1:
            raise UsageError(f"--profile {' and '.join(kinds)}: a stack has one kind of engine", "", "name one of them")
        self._chosen = Choices(command, tuple(dict.fromkeys(profiles)), self.assignments)

    def with_own_assignments(self) -> Choices:
        """What is remembered, and this command's --set beside it or, for a path that is remembered, in its place."""
        from control.adapters.workspace import Choices

        known = self.workspace.choices()
        by_path = {text.partition("=")[0].strip(): text for text in (*known.assignments, *self.assignments)}
        return Choices(known.command, known.profiles, tuple(by_path.values()))

    @cached_property
    def resolved(self) -> Resolved:
        """Defaults < stack.yaml < remembered choices < FLASHBOX__ variables < this command's --profile and --set."""
        from control.adapters.workspace import STACK_YAML
        from control.core import layers

        stack = layers.yaml_layer(self.workspace.text(STACK_YAML) or "", STACK_YAML)
        told = self._told()
        weak, strong = ([], told) if self._chosen is not None else (told, [])
        own = [layers.assignment_layer(list(self.assignments))] if self.assignments else []
        return layers.resolve([stack, *weak, layers.environment_layer(self.environ), *strong, *own])

    def _told(self) -> list[Layer]:
        """Remembered or chosen words as layers that say where they come from."""
        from control.core import layers

        choices, how = self.choices, "" if self._chosen is not None else "remembered "
        told = [(f"--profile {name}", PROFILE_SETTINGS[name]) for name in choices.profiles if name in PROFILE_SETTINGS]
        if self._chosen is None:
            told += [(f"--set {text}", text) for text in choices.assignments]
        return [_from(layers.assignment_layer([text]), f"{how}({choices.command} {option})") for option, text in told]

    @property
    def settings(self) -> Settings:
        return self.resolved.settings

    @cached_property
    def image_refs(self) -> Mapping[str, ImageRef]:
        from control.adapters.workspace import IMAGES_YAML
        from control.core import images

        return images.parse(self.workspace.text(IMAGES_YAML) or "")

    @cached_property
    def facts(self) -> Facts | None:
        """What the kind gpu is planned from; the other kinds need none."""
        if self.settings.engine.kind != "gpu":
            return None
        from control.core import facts

        return facts.load(self.workspace.facts())

    # ---- the world

    @cached_property
    def shell(self) -> Shell:
        from control.adapters import compose
        from control.adapters.shell import Shell

        return Shell(self.root, compose.environment(self.environ), self.console.detail)

    @cached_property
    def dockerd(self) -> Dockerd:
        """The daemon and this project, or the reason why it does not answer."""
        return self.dockerd_for(self.settings.project)

    def dockerd_for(self, project: str) -> Dockerd:
        from control.adapters.dockerd import Dockerd

        return Dockerd.connect(self.environ, project)

    def _built(self) -> list[str]:
        """The images of this kind of engine that are built here."""
        from control.core import images

        used = images.for_kind(self.image_refs, self.settings.engine.kind)
        return [self.image_refs[name].reference for name in used if self.image_refs[name].build]

    @cached_property
    def host(self) -> Host:
        """One snapshot of the machine, with the daemon's part if it answers."""
        from control.adapters import host

        settings = self.settings
        seen = host.probe(self.root, self.shell, ask_gpus=settings.engine.kind == "gpu", bind=settings.gateway.bind)
        try:
            return self.dockerd.complete(seen, self._built())
        except PreflightRefused as refused:
            return dataclasses.replace(seen, docker_error=f"{refused.what}: {refused.why}")


def _from(layer: Layer, origin: str) -> Layer:
    """The same values, said to come from `origin`."""
    return dataclasses.replace(layer, origin=origin, origins=dict.fromkeys(layer.origins, origin))
