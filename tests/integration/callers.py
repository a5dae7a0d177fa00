"""Keys of a running stack, and what they are said to have used."""

from __future__ import annotations

import json

import requests

from tests.eventually import eventually
from tests.integration.stack import Stack
from tests.load import Target


def caller(stack: Stack, name: str, *limits: str) -> Target:
    """A new key of this name, once the gateway knows it."""
    target = Target(stack.url, stack.add_key(name, *limits))
    eventually(lambda: requests.get(f"{target.url}/models", headers=target.headers, timeout=5).ok, 10)
    return target


def used(stack: Stack, name: str) -> dict[str, int]:
    """What `ctl.py usage` knows of a key."""
    total: dict[str, int] = json.loads(stack.must("usage", "--key", name, "--json").out)["total"]
    return total
