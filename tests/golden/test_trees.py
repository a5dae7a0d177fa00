"""Rendered files are what the golden trees say, byte for byte."""

from __future__ import annotations

import pytest

from control.adapters import envoy
from control.core import endpoints, rendering
from control.core.errors import FlashboxError
from control.core.header import NOTE, is_rendered
from tests.golden import trees


def test_the_trees_that_the_design_asks_for_are_there() -> None:
    assert {"stub", "stub-four-replicas", "standby", "dgx-h100", "hgx-h200"} <= set(trees.names())
    assert trees.refused() == ["one-gpu-refused"]


@pytest.mark.parametrize("name", trees.refused())
def test_a_refusal_says_what_its_golden_tree_says(name: str) -> None:
    assert trees.refusal(name) == trees.on_disk(name), "`make golden` rewrites the tree; look at the change"


@pytest.mark.parametrize("name", trees.names())
def test_a_rendering_equals_its_golden_tree_byte_for_byte(name: str) -> None:
    difference = rendering.diff(trees.render(name), trees.on_disk(name))
    assert not difference, f"`make golden` rewrites the tree; look at the change:\n{difference}"


@pytest.mark.parametrize("name", trees.names())
def test_every_rendered_file_opens_with_the_line_that_says_what_to_edit(name: str) -> None:
    for path, text in trees.render(name).items():
        assert is_rendered(text), path
        assert text.count(NOTE) == 1, path


@pytest.mark.parametrize("name", trees.names())
def test_the_real_envoy_accepts_each_golden_tree(name: str) -> None:
    envoy.validate({path: text for path, text in trees.on_disk(name).items() if path.startswith("run/envoy/")})


def test_the_real_envoy_refuses_a_golden_tree_that_was_damaged() -> None:
    files = {path: text for path, text in trees.on_disk("stub").items() if path.startswith("run/envoy/")}
    files[endpoints.EDS_PATH] = files[endpoints.EDS_PATH].replace("port_value: 8000", "port_value: 80000")
    with pytest.raises(FlashboxError, match=r"eds\.yaml"):
        envoy.validate(files)


@pytest.mark.parametrize("path", trees.pages())
def test_a_generated_page_is_up_to_date(path: str) -> None:
    file = trees.ROOT / path
    assert file.exists(), f"{path} is missing: make docs"
    assert file.read_text(encoding="utf-8") == trees.pages()[path], f"{path} is stale: make docs"
