"""The bodies and events of /v1/messages, field by field in the order of the recordings."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from typing import Any

from stub.job import Choice, Job
from stub.plan import CONTENT, MARKUP, REASONING, Plan
from stub.service import Service
from stub.shape_chat import call_id
from stub.wire import named_event

_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "abort": "end_turn"}
_DELTAS = {CONTENT: ("text_delta", "text"), REASONING: ("thinking_delta", "thinking")}


class Messages:
    """One answer of /v1/messages."""

    def __init__(self, job: Job, service: Service) -> None:
        self._job, self._service, self._release = job, service, service.release
        self._planner = service.planner
        self._block = -1
        self._kind: str | int | None = None

    def begin(self) -> Iterable[bytes]:
        """Nothing goes before the first token."""
        return ()

    def opening(self, choice: Choice) -> Iterable[bytes]:
        """The message as it is before its first token."""
        job = self._job
        start = {"id": job.id, "type": "message", "role": "assistant", "content": [], "model": job.model}
        usage = {"input_tokens": job.prompt_tokens, "output_tokens": 0}
        yield _event("message_start", message={**start, "stop_reason": None, "stop_sequence": None, "usage": usage})

    def token(self, choice: Choice, index: int) -> Iterable[bytes]:
        """The events of one token: a new block if a new part begins, and its text."""
        plan = choice.plan
        kind, text = plan.kind(index), self._planner.text(plan, index)
        if kind == MARKUP or not (text or isinstance(kind, int)):
            return
        if kind != self._kind:
            yield from self._stop()
            self._kind = kind
            self._block += 1
            yield _event("content_block_start", content_block=_empty(kind, plan), index=self._block)
        if text:
            what, name = ("input_json_delta", "partial_json") if isinstance(kind, int) else _DELTAS[kind]
            yield _event("content_block_delta", delta={"type": what, name: text}, index=self._block)

    def _stop(self) -> Iterable[bytes]:
        if self._kind is None:
            return
        if self._kind == REASONING:
            signature = {"type": "signature_delta", "signature": secrets.token_hex(16)}
            yield _event("content_block_delta", delta=signature, index=self._block)
        self._kind = None
        yield _event("content_block_stop", index=self._block)

    def aborted(self, choice: Choice) -> Iterable[bytes]:
        """What the server cut ends like anything else."""
        return ()

    def end(self) -> Iterable[bytes]:
        """The last block's end, why it ended, and the usage."""
        yield from self._stop()
        delta = {"stop_reason": self._reason()}
        if self._release.message_delta_sequence:
            delta["stop_sequence"] = None  # type: ignore[assignment]
        yield _event("message_delta", delta=delta, usage=self._usage())
        yield _event("message_stop")

    def lost(self, message: str) -> Iterable[bytes]:
        """How a stream ends whose engine died (not recorded)."""
        yield _event("error", error={"type": "internal_error", "message": message})

    def whole(self) -> dict[str, Any]:
        """The answer to a request that is no stream."""
        job = self._job
        start = {"id": job.id, "type": "message", "role": "assistant", "content": self._content()}
        return {**start, "model": job.model, "stop_reason": self._reason(), "usage": self._usage()}

    def _content(self) -> list[dict[str, Any]]:
        plan, found = self._job.choices[0].plan, []
        thought, said = self._planner.whole(plan, REASONING), self._planner.whole(plan, CONTENT)
        if thought:
            found.append({"type": "thinking", "thinking": thought, "signature": secrets.token_hex(16)})
        if said or not (thought or plan.calls):
            found.append({"type": "text", "text": said})
        for _, call in self._planner.calls(plan):
            given = _arguments(call.arguments)
            found.append({"type": "tool_use", "id": call_id(), "name": call.name, "input": given})
        return found

    def _reason(self) -> str:
        return _REASONS[self._job.choices[0].plan.finish_reason]

    def _usage(self) -> dict[str, Any]:
        found = {"input_tokens": self._job.prompt_tokens, "output_tokens": self._job.completion_tokens}
        if "--enable-prompt-tokens-details" in self._service.flags:
            found |= {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        return found


def _event(name: str, **fields: Any) -> bytes:
    return named_event(name, {"type": name, **fields})


def _empty(kind: str | int, plan: Plan) -> dict[str, Any]:
    if isinstance(kind, int):
        return {"type": "tool_use", "id": call_id(), "name": plan.calls[kind].name, "input": {}}
    return {"type": "thinking", "thinking": ""} if kind == REASONING else {"type": "text", "text": ""}


def _arguments(text: str) -> Any:
    """The arguments of a call; nothing if a limit cut them."""
    try:
        return json.loads(text)
    except ValueError:
        return {}
