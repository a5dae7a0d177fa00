"""The bodies and events of /v1/chat/completions, field by field in the order of the recordings."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

from stub import shapes
from stub.job import Choice, Job
from stub.plan import CONTENT, REASONING, Plan
from stub.service import Service
from stub.wire import DONE, event

_CHUNK = "chat.completion.chunk"
_TYPE = "chat_completions"  # what the metrics call it


class Chat:
    """One chat answer."""

    def __init__(self, job: Job, service: Service) -> None:
        self._job, self._service = job, service
        self._planner, self._tokenizer = service.planner, service.tokenizer
        self._parsed = service.settings.v4  # with parsers, tokens without text make no events, and the end is apart
        self._newest = service.release.weight_versions

    def begin(self) -> Iterable[bytes]:
        """Nothing goes before the first token."""
        return ()

    def opening(self, choice: Choice) -> Iterable[bytes]:
        """The first event: a role and no content; then what a request wants repeated."""
        job = self._job
        inside = {"index": choice.index, "delta": {"role": job.role, "content": ""}, "logprobs": None}
        first = self._chunk({**inside, "finish_reason": None}, 0, choice)
        prompt = list(choice.prompt) if job.token_ids else None
        yield event({**first, "prompt_token_ids": prompt, "prompt_text": None})
        if job.echo and job.echoed:
            inside = {"index": choice.index, "delta": {"content": job.echoed}, "logprobs": None}
            yield event(self._chunk({**inside, "finish_reason": None}, 0, choice))

    def _chunk(self, inside: dict[str, Any], made: int, choice: Choice, last: bool = False) -> dict[str, Any]:
        event = shapes.chunk(self._job, _CHUNK, inside, made, choice, last)
        if self._job.continuous_usage and self._service.release.completion_details:
            event["usage"]["completion_tokens_details"] = self._details(choice.plan, made)
        return event

    def _details(self, plan: Plan, made: int) -> dict[str, int] | None:
        """Reasoning among the tokens made, where a parser can tell and the release counts."""
        if not self._parsed:
            return None
        return {"reasoning_tokens": sum(plan.kind(index) == REASONING for index in range(made))}

    def token(self, choice: Choice, index: int) -> Iterable[bytes]:
        """The events of one token."""
        plan = choice.plan
        last = index == plan.length - 1
        if not self._parsed:
            return (self._event(choice, {"content": self._planner.text(plan, index)}, index, last),)
        deltas = list(self._deltas(choice, index))
        if self._job.tools:
            self._service.metrics.parsed("streaming", any("tool_calls" in delta for delta in deltas), _TYPE)
        found = [self._event(choice, delta, index, False, logprobs=not last) for delta in deltas]
        if last:
            found.append(self._event(choice, {}, index, True))
        return found

    def _deltas(self, choice: Choice, index: int) -> Iterable[dict[str, Any]]:
        plan, text = choice.plan, self._planner.text(choice.plan, index)
        kind = plan.kind(index)
        if isinstance(kind, int):
            if plan.begins(index):
                function = {"name": plan.calls[kind].name, "arguments": ""}
                call = {"id": call_id(), "type": "function", "index": kind, "function": function}
                yield {"tool_calls": [call]}
            yield {"tool_calls": [{"index": kind, "function": {"arguments": text}}]}
        elif text:
            yield {"reasoning": text} if kind == REASONING else {"content": text}

    def _event(self, choice: Choice, delta: dict[str, Any], index: int, last: bool, logprobs: bool = True) -> bytes:
        plan = choice.plan
        inside: dict[str, Any] = {
            "index": choice.index,
            "delta": delta,
            "logprobs": self._logprobs(choice, range(index, index + 1)) if logprobs else None,
            "finish_reason": plan.finish_reason if last else None,
        }
        if last:
            inside["stop_reason"] = plan.stop_reason
        inside["token_ids"] = [plan.token(index)] if self._job.token_ids else None
        if self._newest and last:
            inside["weight_versions"] = None
        made = self._chunk(inside, index + 1, choice, last)
        return event({**made, "kv_transfer_params": None} if self._newest else made)

    def aborted(self, choice: Choice) -> Iterable[bytes]:
        """The last event of an answer that the server cut."""
        return (self._event(choice, {"content": ""}, max(0, choice.plan.length - 1), True, logprobs=False),)

    def end(self) -> Iterable[bytes]:
        """The usage, if it was asked for, and the end."""
        if self._job.include_usage:
            details = {"cached_tokens": 0, "created_cache_tokens": 0}
            yield event(shapes.usage_chunk(self._service, self._job, _CHUNK, details, self._thought()))
        yield DONE

    def _thought(self) -> int:
        """Tokens of reasoning; a batch does not count them."""
        if self._job.batch:
            return 0
        plans = [choice.plan for choice in self._job.choices if len(choice.plan.spans.starts) > 1]
        return sum(plan.kind(index) == REASONING for plan in plans for index in range(plan.length))

    def lost(self, message: str) -> Iterable[bytes]:
        """How a stream ends whose engine died."""
        return shapes.lost(message)

    def whole(self) -> dict[str, Any]:
        """The answer to a request that is no stream."""
        job, service = self._job, self._service
        return {
            **shapes.head(job, "chat.completion"),
            "choices": [self._choice(choice) for choice in job.choices],
            "service_tier": None,
            "system_fingerprint": job.fingerprint,
            "usage": shapes.whole_usage(service, job, shapes.cache_details(), self._thought()),
            "prompt_logprobs": shapes.prompt_logprobs(service, job.prompts[0], job.prompt_logprobs),
            "prompt_token_ids": job.prompts[0] if job.token_ids else None,
            "prompt_text": None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": shapes.metrics_of(service, job),
        }

    def _choice(self, choice: Choice) -> dict[str, Any]:
        plan = choice.plan
        found = {
            "index": choice.index,
            "message": self._message(choice),
            "logprobs": self._logprobs(choice, range(plan.length)),
            "finish_reason": plan.finish_reason,
            "stop_reason": plan.stop_reason,
            "token_ids": shapes.ids(choice) if self._job.token_ids else None,
            "routed_experts": None,
        }
        return {**found, "weight_versions": None} if self._newest else found

    def _message(self, choice: Choice) -> dict[str, Any]:
        plan, job = choice.plan, self._job
        reasoning = self._planner.whole(plan, REASONING) or None
        calls = [
            {"id": call_id(), "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for _, call in self._planner.calls(plan)
        ]
        if job.tools:
            self._service.metrics.parsed("non_streaming", bool(calls), _TYPE)
        content: str | None = (job.echoed if job.echo else "") + self._planner.whole(plan, CONTENT)
        if not content and (reasoning or calls):
            content = None
        message = {"role": job.role, "content": content, "refusal": None, "annotations": None, "audio": None}
        message["function_call"] = None
        if calls:
            message["tool_calls"] = calls  # type: ignore[assignment]
        return {**message, "reasoning": reasoning}

    def _logprobs(self, choice: Choice, places: range) -> dict[str, Any] | None:
        count = self._job.logprobs
        if count is None:
            return None
        content = []
        for index in places:
            token = choice.plan.token(index)
            near = [self._logprob(other) for other in shapes.alternatives(token, count, self._tokenizer.size)]
            content.append({**self._logprob(token), "top_logprobs": near})
        return {"content": content}

    def _logprob(self, token: int) -> dict[str, Any]:
        raw = self._tokenizer.token_bytes(token)
        return {"token": raw.decode("utf-8", "replace"), "logprob": shapes.LOGPROB, "bytes": list(raw)}


def call_id() -> str:
    """The id of a call."""
    return f"chatcmpl-tool-{secrets.token_hex(8)}"
