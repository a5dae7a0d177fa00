"""A service whose image cannot be had keeps its name and never starts: Compose itself is asked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from control.core.availability import Have, Service, place

GRAFANA = Service("grafana", "flashbox-test/never-there:1", "monitoring", required=False)
SERVICES = (Service("gateway", "flashbox-test/gateway:1"), GRAFANA)
FILE = {
    "services": {
        "gateway": {"image": SERVICES[0].image},
        "grafana": {"image": GRAFANA.image, "profiles": ["${FB_GRAFANA_PROFILE:?run python ctl.py init first}"]},
    }
}


def compose(folder: Path, have: Have, *args: str) -> list[str]:
    (folder / "compose.yaml").write_text(yaml.safe_dump(FILE))
    variables = place(SERVICES, {GRAFANA.image: have}).environment()
    lines = [f"{name}={value}" for name, value in variables.items() if value]
    (folder / ".env").write_text("\n".join(lines) + "\n")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("COMPOSE_", "FB_"))}
    done = subprocess.run(
        ["docker", "compose", *args], cwd=folder, env=clean, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.split())


@pytest.mark.parametrize(("have", "started"), [("present", ["gateway", "grafana"]), ("missing", ["gateway"])])
def test_a_profile_that_is_switched_on_starts_what_has_an_image_and_leaves_out_the_rest(
    tmp_path: Path, have: Have, started: list[str]
) -> None:
    assert compose(tmp_path, have, "--profile", "monitoring", "config", "--services") == started
    assert compose(tmp_path, have, "--profile", "*", "config", "--services") == ["gateway", "grafana"]
