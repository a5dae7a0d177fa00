"""The policy service behind the gateways of these tests: one pair of workers for all that do not ask for their own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from control.core.policy_memory import memory_mib
from tests.contract.policy.process import Policy

ROUTES = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize", "/detokenize"),
    *("/v1/messages", "/v1/messages/count_tokens"),
)
# Bodies of most tests are orders for the fake replica, which no rules would let through: these observe only.
EVERYTHING_PASSES: dict[str, Any] = {
    "version": "everything-passes",
    "policy": "off",
    "mode": "observe",
    "max_body_bytes": 250 << 20,
    "max_depth": 128,
    "context": 1024,
    "truncate": False,
    "served_model": "m",
    "tokenize_url": "http://127.0.0.1:9/tokenize",
    "routes": {
        path: {"form": "anthropic" if "messages" in path else "openai", "schema": {"type": "object"}} for path in ROUTES
    },
}
_shared: list[tuple[Policy, tempfile.TemporaryDirectory[str]]] = []


def shared() -> Policy:
    """The pair that lets everything pass, started when first asked for."""
    if not _shared:
        folder = tempfile.TemporaryDirectory(prefix="flashbox-policy-")
        # Room for the largest body that a policy allows.
        _shared.append(
            (Policy(Path(folder.name), EVERYTHING_PASSES, POLICY_MEMORY_MIB=memory_mib(250 << 20, 2)), folder)
        )
    return _shared[0][0]


def end_shared() -> None:
    """End it, if it was started."""
    while _shared:
        service, folder = _shared.pop()
        service.close()
        folder.cleanup()
