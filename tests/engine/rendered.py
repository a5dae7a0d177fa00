"""Every `vllm serve` that is rendered: of the golden trees and the golden plans, for each release that is asked."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from control.core import engine_cpu, images
from control.core.capacity.plan import plan_gpus
from control.core.errors import FlashboxError
from control.core.settings import Settings
from tests.golden import gpu_plans, trees
from tests.unit.capacity.world import facts, host, settings

RECORDS = Path(__file__).parents[1] / "fixtures/parser"
RELEASES = ("0.26.0", "0.32.0", "0.33.0")
# What a parser must refuse; without these a parser that takes everything would pass.
CONTROLS: tuple[tuple[str, ...], ...] = (
    ("vllm", "serve", "/models/m", "--enforce-eager", "false"),
    ("vllm", "serve", "/models/m", "--swap-space", "4"),
    ("vllm", "serve", "/models/m", "--max-model-len", "many"),
    ("vllm", "serve", "/models/m", "--no-such-option"),
)


@dataclass
class Command:
    """One command line with the variables that it is started with, and what it is rendered from."""

    argv: tuple[str, ...]
    environment: tuple[str, ...]  # names of vLLM's own variables
    sources: list[str] = field(default_factory=list)


def commands(release: str) -> list[Command]:
    """Every command rendered for a release, each once. What a release cannot serve is planned by nobody."""
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], Command] = {}

    def add(source: str, argv: list[str], environment: Any) -> None:
        names = tuple(sorted(name for name in environment if name.startswith("VLLM_")))
        found.setdefault((tuple(argv), names), Command(tuple(argv), names)).sources.append(source)

    for source, wanted, machine in _gpu_cases():
        asked = wanted.model_copy(update={"engine": wanted.engine.model_copy(update={"release": release})})
        try:
            made = plan_gpus(asked, facts(), host(machine))
        except FlashboxError:
            continue
        add(source, list(made.serve.args), made.serve.environment)
    if release == cpu_release():
        for name in trees.names():
            wanted = trees.settings(name)
            if wanted.engine.kind == "cpu":
                add(f"tree {name}", engine_cpu.command(wanted), engine_cpu.environment(wanted))
    return list(found.values())


def cpu_release() -> str:
    """The release inside the image of kind cpu."""
    refs = images.parse((trees.ROOT / images.PATH).read_text(encoding="utf-8"))
    return images.arguments(refs[engine_cpu.IMAGE])["VLLM"]


def _gpu_cases() -> list[tuple[str, Settings, str]]:
    """(what it is called, settings, host): golden plans, then golden trees."""
    cases = [(f"plan {name}", settings(**dict(engine)), machine) for name, (machine, engine) in gpu_plans.CASES.items()]
    for name in trees.names():
        machine = trees.HERE / name / "host"
        if machine.exists():
            cases.append((f"tree {name}", trees.settings(name), machine.read_text(encoding="utf-8").strip()))
    return cases


def record_path(release: str) -> Path:
    """Where the parser's answers of a release are kept."""
    return RECORDS / f"{release}.json"


def recorded(release: str) -> dict[str, Any]:
    """The parser's answers of a release, as they were recorded."""
    found: dict[str, Any] = json.loads(record_path(release).read_text(encoding="utf-8"))
    return found
