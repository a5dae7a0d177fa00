"""A document with the same faults and a fraction of its size: the validator copies what it complains about, often."""

from __future__ import annotations

from typing import Any

# Longer than any limit of a schema, so that what was too long still is.
MOST_CHARACTERS = 1024
MOST_ITEMS = 500  # each wrong item costs a complaint with its words: 5,000 took seconds


def outline(value: Any) -> Any:
    """Texts cut to their beginning, lists to their first items; the nesting has been bounded before."""
    if isinstance(value, str):
        return value[:MOST_CHARACTERS]
    if isinstance(value, list):
        return [outline(item) for item in value[:MOST_ITEMS]]
    if isinstance(value, dict):
        return {name: outline(item) for name, item in value.items()}
    return value
