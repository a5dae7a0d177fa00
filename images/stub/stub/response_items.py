"""The items of an answer of /v1/responses: reasoning, a message, calls of functions."""

from __future__ import annotations

import secrets
from typing import Any

from stub.plan import REASONING
from stub.release import Release


def message(item_id: str, text: str, status: str) -> dict[str, Any]:
    """A message."""
    content = [part("content", text, None)] if text else []
    return {"id": item_id, "content": content, **_speaker(status)}


def reasoning(item_id: str, text: str, status: str | None) -> dict[str, Any]:
    """What was thought before."""
    content = [part(REASONING, text, None)] if text else None
    found = {"id": item_id, "summary": [], "type": "reasoning", "content": content}
    return {**found, "encrypted_content": None, "status": status}


def call(item_id: str, name: str, arguments: str, status: str) -> dict[str, Any]:
    """A call of a function."""
    call_id = f"call_{secrets.token_hex(8)}"
    found = {"arguments": arguments, "call_id": call_id, "name": name, "type": "function_call"}
    return {**found, "id": item_id, "status": status}


def part(kind: str | int, text: str, logprobs: list[Any] | None) -> dict[str, Any]:
    """The text inside of an item."""
    if kind == REASONING:
        return {"text": text, "type": "reasoning_text"}
    return {"annotations": [], "text": text, "type": "output_text", "logprobs": logprobs}


def _speaker(status: str) -> dict[str, Any]:
    return {"role": "assistant", "status": status, "type": "message", "phase": None}


class Item:
    """An item that a stream is in the middle of."""

    def __init__(self, kind: str | int, name: str, release: Release) -> None:
        self.kind, self.text = kind, ""
        self._name, self._release = name, release
        prefix = {REASONING: "rs_", "content": "msg_"}.get(str(kind), "fc_") if release.stream_items_stay else ""
        self.id = prefix + secrets.token_hex(8)
        self._call_id = f"call_{secrets.token_hex(8)}"
        self.part_name = release.reasoning_part if kind == REASONING else "content_part"
        what = "function_call_arguments" if isinstance(kind, int) else f"{_text_name(kind)}_text"
        self.delta, self.done = f"response.{what}.delta", f"response.{what}.done"
        self.extra: dict[str, Any] = {"logprobs": []} if kind == "content" else {}

    def place(self, output_index: int) -> dict[str, Any]:
        """Where an event of this item belongs."""
        inside = {} if isinstance(self.kind, int) else {"content_index": 0}
        return {**inside, "item_id": self.id, "output_index": output_index}

    def done_fields(self) -> dict[str, Any]:
        """What the end of the text says."""
        if isinstance(self.kind, int):
            return {"arguments": self.text, "name": self._name}
        return {"text": self.text, **self.extra}

    def shown(self, status: str, empty: bool = False) -> dict[str, Any]:
        """The item itself."""
        text = "" if empty else self.text
        if isinstance(self.kind, int):
            return {**call(self.id, self._name, text, status), "call_id": self._call_id}
        if self.kind == REASONING:
            return reasoning(self.id, text, status)
        summary: dict[str, Any] = {"summary": []} if self._release.item_summary and not empty else {}
        return {**message(self.id, text, status), **summary}


def _text_name(kind: str | int) -> str:
    return "reasoning" if kind == REASONING else "output"
