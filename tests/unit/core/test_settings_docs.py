from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from control.core import layers, schema, settings_docs
from control.core.settings import Settings


def test_a_fresh_stack_yaml_overrides_nothing() -> None:
    layer = layers.yaml_layer(settings_docs.stack_yaml(), "config/stack.yaml")
    assert (layer.values, layer.complaints) == ({}, ())


def test_a_stack_yaml_with_every_hash_removed_sets_every_setting_to_its_default() -> None:
    text = re.sub(
        r"^#(?=[a-z]|  [^ ]|  +[a-z#])", "", settings_docs.stack_yaml().split("\n\n", 1)[1], flags=re.MULTILINE
    )
    resolved = layers.resolve([layers.yaml_layer(text, "config/stack.yaml")])
    assert resolved.settings == Settings()
    assert set(resolved.origins.values()) == {"config/stack.yaml"}


def test_both_pages_name_every_setting_with_its_help() -> None:
    page, stack = settings_docs.markdown(), settings_docs.stack_yaml()
    for path, leaf in schema.leaves().items():
        assert f"| `{path}` |" in page
        assert leaf.help and leaf.help in stack
        assert f"{leaf.name}: " in stack


def test_every_row_of_the_page_has_four_cells() -> None:
    rows = [line for line in settings_docs.markdown().splitlines() if line.startswith("|")]
    assert rows
    assert all(len(re.split(r"(?<!\\)\|", row)) == 6 for row in rows)


def test_the_json_schema_knows_every_setting_and_no_other() -> None:
    found = json.loads(settings_docs.json_schema_text())

    def paths(section: dict[str, Any], inside: str) -> Iterator[str]:
        assert section["additionalProperties"] is False
        for name, shape in section["properties"].items():
            if "$ref" in shape:
                yield from paths(found["$defs"][shape["$ref"].rpartition("/")[2]], f"{inside}{name}.")
            else:
                yield f"{inside}{name}"

    assert set(paths(found, "")) == set(schema.leaves())


def test_defaults_are_written_as_yaml_reads_them_back() -> None:
    for leaf in schema.leaves().values():
        assert yaml.safe_load(settings_docs._yaml(leaf.default)) == leaf.default
