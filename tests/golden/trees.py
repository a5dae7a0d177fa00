"""Golden trees: for each folder with a stack.yaml, what flashbox renders from it.

A folder holds the input beside the output, which has the paths that it has in a clone. Input: stack.yaml, for a
machine with GPUs `host` (the name of a file in tests/fixtures/hosts), and api-keys.json if there are keys. In a folder
that ends in -refused the output is refused.txt: what an operator is told instead.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from control.core import (
    checks,
    explain_docs,
    explain_policy,
    explain_refusals,
    facts,
    host_snapshot,
    images,
    key_file,
    layers,
    planning,
    policies,
    rendering,
    settings_docs,
)
from control.core.errors import FlashboxError
from control.core.model import Host, Plan, Rendering
from control.core.settings import Settings
from tests.sources import SOURCES

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
HOSTS = ROOT / "tests/fixtures/hosts"
INPUTS = ("stack.yaml", "host", "api-keys.json")
REFUSED = "-refused"


def names() -> list[str]:
    """Every golden tree that is rendered."""
    return [name for name in _folders() if not name.endswith(REFUSED)]


def refused() -> list[str]:
    """Every golden tree that is not."""
    return [name for name in _folders() if name.endswith(REFUSED)]


def _folders() -> list[str]:
    return sorted(path.parent.name for path in HERE.glob("*/stack.yaml"))


def settings(name: str) -> Settings:
    """The input of a tree, resolved."""
    text = (HERE / name / "stack.yaml").read_text(encoding="utf-8")
    return layers.resolve([layers.yaml_layer(text, "config/stack.yaml")]).settings


def plan(name: str) -> Plan:
    """What is planned for the tree's machine."""
    machine = HERE / name / "host"
    host = Host()
    if machine.exists():
        path = HOSTS / f"{machine.read_text(encoding='utf-8').strip()}.json"
        host = Host(inventory=host_snapshot.parse(path.read_text(encoding="utf-8"), path.name).inventory)
    return planning.plan_capacity(settings(name), host, known())


@lru_cache(maxsize=1)
def known() -> facts.Facts:
    """The shipped facts."""
    folder = ROOT / "config"
    paths = [*folder.glob("*.yaml"), *folder.glob("models/*.yaml")]
    return facts.load({path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths})


def render(name: str) -> Rendering:
    """What the code of today makes of the tree's input."""
    listed = HERE / name / "api-keys.json"
    return rendering.render(
        settings(name),
        plan(name),
        key_file.parse(listed.read_text(encoding="utf-8")) if listed.exists() else (),
        images.parse((ROOT / images.PATH).read_text(encoding="utf-8")),
        SOURCES,
    )


def refusal(name: str) -> Rendering:
    """What an operator is told instead of a rendering."""
    try:
        plan(name)
    except FlashboxError as error:
        text = f"error: {error.what}\n\nwhy:\n{error.why}\n\nfix: {error.fix}\n\nexit {error.exit_code}\n"
        return {"refused.txt": text}
    raise AssertionError(f"{name} is planned; rename the folder")


def on_disk(name: str) -> dict[str, str]:
    """What the tree holds, without its inputs."""
    folder = HERE / name
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    found = {path.relative_to(folder).as_posix(): path.read_bytes().decode("utf-8") for path in files}
    return {path: text for path, text in found.items() if path not in INPUTS}


def pages() -> dict[str, str]:
    """Generated pages of docs/."""
    return {
        "docs/settings.md": settings_docs.markdown(),
        "docs/settings.schema.json": settings_docs.json_schema_text(),
        "docs/checks.md": checks.markdown(),
        explain_docs.PATH: explain_docs.markdown(
            policies.every(SOURCES), explain_policy.ENTRIES, explain_refusals.ENTRIES
        ),
    }
