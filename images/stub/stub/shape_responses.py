"""The bodies and events of /v1/responses, field by field in the order of the recordings."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from stub.job import Choice, Job
from stub.plan import CONTENT, MARKUP, REASONING, Plan
from stub.response_items import Item, call, message, part, reasoning
from stub.service import Service
from stub.wire import named_event

_EFFORT = {"context": None, "effort": None, "generate_summary": None, "mode": None, "summary": None}
_ASYNC = {"async": None}
_TOOL = {"defer_loading": None, "description": None, "output_schema": None}
_CACHE = {"prompt_cache_options": None, "prompt_cache_key": None, "prompt_cache_retention": None}


class Responses:
    """One answer of /v1/responses."""

    def __init__(self, job: Job, service: Service) -> None:
        self._job, self._service, self._release = job, service, service.release
        self._planner = service.planner
        self._number = -1
        self._item: Item | None = None
        self._output_index = -1
        self._items: list[dict[str, Any]] = []  # of a stream, as they ended

    def begin(self) -> Iterable[bytes]:
        """The answer as it is before its first token goes out at once."""
        for name in ("response.created", "response.in_progress"):
            yield self._event(name, response=self._response("in_progress", [], None))

    def opening(self, choice: Choice) -> Iterable[bytes]:
        """Items begin with their first text."""
        return ()

    def token(self, choice: Choice, index: int) -> Iterable[bytes]:
        """The events of one token: a new item if a new part begins, and its text."""
        plan = choice.plan
        kind, text = plan.kind(index), self._planner.text(plan, index)
        if self._job.tools:
            self._service.metrics.parsed("streaming", isinstance(kind, int), "responses")
        if kind == MARKUP or not (text or isinstance(kind, int)):
            return
        if self._item is None or self._item.kind != kind:
            yield from self._close("completed")
            yield from self._open(kind, plan)
        assert self._item is not None
        self._item.text += text
        if text:
            yield self._event(self._item.delta, self._item.place(self._output_index), delta=text, **self._item.extra)

    def _open(self, kind: str | int, plan: Plan) -> Iterable[bytes]:
        name = plan.calls[kind].name if isinstance(kind, int) else ""
        self._item = Item(kind, name, self._release)
        self._output_index += 1
        item = self._item.shown("in_progress", empty=True)
        yield self._event("response.output_item.added", item=item, output_index=self._output_index)
        if not isinstance(kind, int):
            place = self._item.place(self._output_index)
            yield self._event(f"response.{self._item.part_name}.added", place, part=part(kind, "", []))

    def _close(self, status: str) -> Iterable[bytes]:
        item = self._item
        if item is None:
            return
        self._item = None
        place = item.place(self._output_index)
        yield self._event(item.done, place, **item.done_fields())
        if not isinstance(item.kind, int):
            yield self._event(f"response.{item.part_name}.done", place, part=part(item.kind, item.text, None))
        shown = item.shown(status)
        self._items.append(shown)
        yield self._event("response.output_item.done", item=shown, output_index=self._output_index)

    def aborted(self, choice: Choice) -> Iterable[bytes]:
        """What the server cut ends like what a limit cut."""
        return ()

    def end(self) -> Iterable[bytes]:
        """The last item's end, and the whole answer."""
        yield from self._close(self._status())
        whole = self.whole()
        name = self._release.responses_end if whole["status"] == "incomplete" else "response.completed"
        yield self._event(name, response=whole)

    def lost(self, message: str) -> Iterable[bytes]:
        """How a stream ends whose engine died (not recorded)."""
        yield self._event("error", code="server_error", message=message, param=None)

    def _event(self, name: str, place: Mapping[str, Any] | None = None, /, **fields: Any) -> bytes:
        """One event; all but the kind are in alphabetical order, as in the recordings."""
        self._number += 1
        found = {**(place or {}), **fields, "sequence_number": self._number}
        return named_event(name, {**{key: found[key] for key in sorted(found)}, "type": name})

    def whole(self) -> dict[str, Any]:
        """The whole answer."""
        choice = self._job.choices[0]
        cut = self._cut()
        reason = {"reason": "max_output_tokens"} if cut else None
        return self._response("incomplete" if cut else "completed", self._output(choice), reason)

    def _cut(self) -> bool:
        return self._job.choices[0].plan.finish_reason in ("length", "abort")

    def _status(self) -> str:
        """Of the last item: 0.33.0 says when a limit cut it."""
        return "incomplete" if self._cut() and self._release.weight_versions else "completed"

    def _output(self, choice: Choice) -> list[dict[str, Any]]:
        if self._job.stream and self._release.stream_items_stay:
            return self._items
        plan, found = choice.plan, []
        if self._job.tools and not self._job.stream:
            self._service.metrics.parsed("non_streaming", bool(plan.calls), "responses")
        thought, said = self._planner.whole(plan, REASONING), self._planner.whole(plan, CONTENT)
        if thought:
            found.append(reasoning(f"rs_{secrets.token_hex(8)}", thought, None))
        if said or not (thought or plan.calls):
            found.append(message(f"msg_{secrets.token_hex(8)}", said, self._status()))
        calls = self._planner.calls(plan)
        return [*found, *(call(f"fc_{secrets.token_hex(8)}", one.name, one.arguments, "completed") for _, one in calls)]

    def _response(self, status: str, output: list[dict[str, Any]], reason: Any) -> dict[str, Any]:
        job, asked = self._job, self._job.asked
        newest = self._release.weight_versions
        return {
            **{"id": job.id, "created_at": job.created, "incomplete_details": reason},
            **_of(asked, "instructions", "metadata"),
            **{"model": job.model, "object": "response", "output": output},
            **_of(asked, "parallel_tool_calls", "temperature", "tool_choice"),
            "tools": [self._tool(tool) for tool in asked["tools"]],
            **_of(asked, "top_p", "background", "max_output_tokens", "max_tool_calls"),
            **{"previous_response_id": None, "prompt": None},
            **(_CACHE if newest else {}),
            "reasoning": {**_EFFORT, **asked["reasoning"]} if asked["reasoning"] else None,
            **({"safety_identifier": None} if newest else {}),
            "service_tier": asked["service_tier"],
            "status": status,
            **_of(asked, "text", "top_logprobs", "truncation"),
            "usage": None if status == "in_progress" else self._usage(),
            **_of(asked, "user", "presence_penalty", "frequency_penalty"),
            **dict.fromkeys(("kv_transfer_params", "ec_transfer_params", "input_messages", "output_messages")),
        }

    def _tool(self, tool: Mapping[str, Any]) -> dict[str, Any]:
        first = {"name": tool.get("name"), "parameters": tool.get("parameters"), "strict": None, "type": "function"}
        newer = _ASYNC if self._release.async_tools else {}
        return {**first, "allowed_callers": None, **newer, **_TOOL, **tool}

    def _usage(self) -> dict[str, Any]:
        job = self._job
        turns: dict[str, Any] = {"input_tokens_per_turn": [], "cached_tokens_per_turn": []}
        written = {"cache_write_tokens": 0} if self._release.cache_write_tokens else {}
        plan = job.choices[0].plan
        # 0.26.0 counts no reasoning tokens.
        thought = sum(plan.kind(i) == REASONING for i in range(plan.length)) if self._release.completion_details else 0
        details = {"reasoning_tokens": thought, "tool_output_tokens": 0, "output_tokens_per_turn": []}
        return {
            "input_tokens": job.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, **written, **turns},
            "output_tokens": job.completion_tokens,
            "output_tokens_details": {**details, "tool_output_tokens_per_turn": []},
            "total_tokens": job.prompt_tokens + job.completion_tokens,
        }


def _of(asked: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: asked[name] for name in names}
