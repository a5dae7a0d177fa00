"""The shipped facts, the described hosts and short ways to plan on them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from control.core.capacity.plan import plan_gpus
from control.core.capacity.result import GpuPlan
from control.core.facts import Facts, load
from control.core.gpus import Inventory
from control.core.host_snapshot import parse
from control.core.settings import Settings

ROOT = Path(__file__).parents[3]
HOSTS = ROOT / "tests/fixtures/hosts"
ANSWERS = ROOT / "tests/fixtures/nvidia-smi"


def fact_files() -> dict[str, str]:
    """Path -> text, as a command reads them."""
    paths = [
        *sorted((ROOT / "config/models").glob("*.yaml")),
        ROOT / "config/hardware.yaml",
        ROOT / "config/engines.yaml",
    ]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


@lru_cache(maxsize=1)
def facts() -> Facts:
    return load(fact_files())


def host(name: str) -> Inventory:
    path = HOSTS / f"{name}.json"
    return parse(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))).inventory


def host_names() -> list[str]:
    return sorted(path.stem for path in HOSTS.glob("*.json"))


def settings(**engine: object) -> Settings:
    """Settings of kind gpu with these values of `engine`; `model` is weights.model."""
    model = engine.pop("model", None)
    values: dict[str, object] = {"engine": engine}
    if model is not None:
        values["weights"] = {"model": model}
    return Settings.model_validate(values, strict=True)


def plan(name: str, **engine: object) -> GpuPlan:
    return plan_gpus(settings(**engine), facts(), host(name))


def answer(name: str) -> str:
    """What nvidia-smi printed once."""
    return (ANSWERS / name).read_text(encoding="utf-8")
