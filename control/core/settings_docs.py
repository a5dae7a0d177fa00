"""The settings for people and editors: a commented stack.yaml, docs/settings.md and a JSON Schema."""

from __future__ import annotations

import json
from typing import Any

import yaml

from control.core import schema
from control.core.settings import Settings

_STACK_YAML_HEAD = """\
# yaml-language-server: $schema=../docs/settings.schema.json
# The settings of this deployment. What is not set here keeps the default that is shown.
# To change a setting, remove the # in front of it and of its section, for example:
#
#     gateway:
#       port: 9000
#
# Stronger than this file: FLASHBOX__GATEWAY__PORT=9000 in the environment, and --set gateway.port=9000.
# `python ctl.py config show --origin` prints every value and where it comes from.
"""

_MARKDOWN_HEAD = """\
# Settings

Generated from `control/core/settings/` by `make docs`: edit that, not this.

Order of strength: default, `config/stack.yaml`, what the last `up --profile` remembered, the environment
(`FLASHBOX__GATEWAY__PORT=9000`: the path in capitals, two underscores for each dot), `--set gateway.port=9000`.
`python ctl.py config show --origin` prints every value and where it comes from. Unknown names are errors.

Durations end in `_s` (seconds), sizes in `_mib`.
"""


def stack_yaml() -> str:
    """A stack.yaml in which every setting is there, explained and commented out: it overrides nothing."""
    blocks = [_STACK_YAML_HEAD]
    for group in schema.groups().values():
        lines = []
        indent = "  " * group.path.count(".") + ("  " if group.path else "")
        if group.path:
            lines += [f"# {group.help}", f"#{indent[2:]}{group.path.rpartition('.')[2]}:"]
        for leaf in group.leaves:
            lines += [f"#{indent}# {leaf.help}" if indent else f"# {leaf.help}"]
            lines += [f"#{indent}# ({leaf.expects})" if indent else f"# ({leaf.expects})"]
            lines += [f"#{indent}{leaf.name}: {_yaml(leaf.default)}"]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def _yaml(value: object) -> str:
    """A default on one line, as people write it: 300, not 300.0."""
    plain = int(value) if isinstance(value, float) and value.is_integer() else value
    return yaml.safe_dump(plain, default_flow_style=True, width=10_000).removesuffix("\n").removesuffix("\n...")


def markdown() -> str:
    """docs/settings.md: a table for each section."""
    parts = [_MARKDOWN_HEAD]
    for group in schema.groups().values():
        parts.append(f"\n## {group.path or 'Top level'}\n\n{group.help}\n\n")
        parts.append("| setting | default | accepts | meaning |\n| --- | --- | --- | --- |\n")
        for leaf in group.leaves:
            cells = (f"`{leaf.path}`", f"`{_yaml(leaf.default)}`", _accepts(leaf), leaf.help)
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return "".join(parts)


def _accepts(leaf: schema.Leaf) -> str:
    return leaf.expects.replace(leaf.pattern, f"`{leaf.pattern}`") if leaf.pattern else leaf.expects


def json_schema() -> dict[str, Any]:
    """JSON Schema of stack.yaml, so that editors complete and check it."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Generated from control/core/settings/.",
        **Settings.model_json_schema(),
        "title": "flashbox: config/stack.yaml",
    }


def json_schema_text() -> str:
    """docs/settings.schema.json."""
    return json.dumps(json_schema(), indent=2) + "\n"
