"""What is done to a judged body before it goes on to the engine, and what the gateway is told of it.

All of it follows from the document that was judged anyway: no body is read twice. What is added goes before the last
brace, the rest stays as the client wrote it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from policy import affinity, usage

CHAT = "/v1/chat/completions"
GENERATING = (CHAT, "/v1/completions", "/v1/responses", "/v1/messages")


@dataclass(frozen=True)
class Wishes:
    """What the gateway wants to know and to change."""

    usage: bool = False
    affinity: str = "none"
    session: str | None = None  # what the client calls its session


@dataclass(frozen=True)
class Onward:
    """Bytes for the body, and facts; None where the gateway does not ask."""

    at: int = 0  # where `added` belongs in the body that was judged
    added: str = ""  # ASCII
    strip: str | None = None
    prompt_estimate: int | None = None
    affinity: str | None = None

    def place(self, raw: bytes) -> int:
        """Where `added` belongs in a body that was rewritten since."""
        return raw.rindex(b"}") if self.added else 0

    def facts(self, context: int) -> dict[str, Any]:
        """For the metadata of the request. No prompt that is answered is longer than the context."""
        if self.strip is None or self.prompt_estimate is None:
            return {}
        return usage.UsagePlan(self.strip, min(self.prompt_estimate, context)).facts()


AS_IT_IS = Onward()


def plan(wishes: Wishes, path: str, raw: bytes, document: Any) -> Onward:
    """For a body that may pass; `document` is what is in it, None if it could not be read."""
    if path not in GENERATING:
        return AS_IT_IS
    if not isinstance(document, dict):  # only where shape is observed: the engine says what is wrong with it
        unread = len(raw) // usage.BYTES_PER_TOKEN
        return Onward(strip="", prompt_estimate=unread) if wishes.usage else AS_IT_IS
    asked = usage.plan(path, raw, document) if wishes.usage else None
    added = (asked.added.decode() if asked else "") + _without_tools(path, document)
    return Onward(
        at=raw.rindex(b"}") if added else 0,
        added=added,
        strip=asked.strip if asked else None,
        prompt_estimate=asked.prompt_estimate if asked else None,
        affinity=affinity.name_of(wishes.affinity, document, wishes.session),
    )


def _without_tools(path: str, document: dict[str, Any]) -> str:
    """The engine refuses an empty list of tools, and a choice of tools without them; clients send both.

    Null is the same as nothing, and of two members with one name the last one counts. Who insists on a tool and offers
    none is left to the engine.
    """
    choice = document.get("tool_choice")
    if path != CHAT or document.get("tools") != [] or choice not in (None, "none", "auto"):
        return ""
    return ',"tools":null' + (',"tool_choice":null' if choice == "auto" else "")
