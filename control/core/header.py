"""What every rendered file says first: where to edit instead."""

from __future__ import annotations

import json
from collections.abc import Mapping

HEADER = "# Rendered from config/stack.yaml by python ctl.py render: edit that, not this.\n"
NOTE = HEADER.removeprefix("# ").strip()  # the same in JSON, which has no comments
_JSON_START = json.dumps({"note": NOTE}, indent=2).removesuffix("\n}")


def with_header(text: str) -> str:
    """Put the line on top, once."""
    return text if text.startswith(HEADER) else HEADER + text


def json_with_note(content: Mapping[str, object]) -> str:
    """A rendered file in JSON."""
    return json.dumps({"note": NOTE, **content}, indent=2, ensure_ascii=False) + "\n"


def is_rendered(text: str) -> bool:
    """Whether a file says of itself that it was rendered."""
    return text.startswith((HEADER, _JSON_START))
