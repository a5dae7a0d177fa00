"""The bodies and events of /v1/completions, field by field in the order of the recordings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stub import shapes
from stub.job import Choice, Job
from stub.service import Service
from stub.wire import DONE, event

_KIND = "text_completion"


class Text:
    """One answer of /v1/completions."""

    def __init__(self, job: Job, service: Service) -> None:
        self._job, self._service = job, service
        self._planner, self._tokenizer = service.planner, service.tokenizer
        self._newest = service.release.weight_versions

    def begin(self) -> Iterable[bytes]:
        """Nothing goes before the first token."""
        return ()

    def opening(self, choice: Choice) -> Iterable[bytes]:
        """There is no event before the first token."""
        return ()

    def token(self, choice: Choice, index: int) -> Iterable[bytes]:
        """The event of one token."""
        echoed = self._tokenizer.decode(choice.prompt) if self._job.echo and index == 0 else ""
        return (self._event(choice, echoed + self._planner.text(choice.plan, index), index),)

    def _event(self, choice: Choice, text: str, index: int) -> bytes:
        plan, token_ids = choice.plan, self._job.token_ids
        last = index >= plan.length - 1
        inside = {
            "index": choice.index,
            "text": text,
            "logprobs": self._logprobs(choice, range(index, index + 1)),
            "finish_reason": plan.finish_reason if last else None,
            "stop_reason": plan.stop_reason if last else None,
            "prompt_token_ids": list(choice.prompt) if token_ids and index == 0 else None,
            "token_ids": [plan.token(index)] if token_ids else None,
        }
        if self._newest:
            inside["weight_versions"] = None
        made = shapes.chunk(self._job, _KIND, inside, index + 1, choice, last)
        return event({**made, "kv_transfer_params": None} if self._newest else made)

    def aborted(self, choice: Choice) -> Iterable[bytes]:
        """The last event of an answer that the server cut."""
        return (self._event(choice, "", max(0, choice.plan.length - 1)),)

    def end(self) -> Iterable[bytes]:
        """The usage, if it was asked for, and the end."""
        if self._job.include_usage:
            yield event(shapes.usage_chunk(self._service, self._job, _KIND, {"cached_tokens": 0}))
        yield DONE

    def lost(self, message: str) -> Iterable[bytes]:
        """How a stream ends whose engine died."""
        return shapes.lost(message)

    def whole(self) -> dict[str, Any]:
        """The answer to a request that is no stream."""
        job, service = self._job, self._service
        return {
            **shapes.head(job, _KIND),
            "choices": [self._choice(choice) for choice in job.choices],
            "service_tier": None,
            "system_fingerprint": job.fingerprint,
            "usage": shapes.whole_usage(service, job, shapes.cache_details(None)),
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": shapes.metrics_of(service, job),
        }

    def _choice(self, choice: Choice) -> dict[str, Any]:
        plan, token_ids = choice.plan, self._job.token_ids
        echoed = self._tokenizer.decode(choice.prompt) if self._job.echo else ""
        newer = {"weight_versions": None} if self._newest else {}
        return {
            "index": choice.index,
            "text": echoed + self._planner.whole(plan),
            "logprobs": self._logprobs(choice, range(plan.length)),
            "finish_reason": plan.finish_reason,
            "stop_reason": plan.stop_reason,
            "token_ids": shapes.ids(choice) if token_ids else None,
            "prompt_logprobs": shapes.prompt_logprobs(self._service, choice.prompt, self._job.prompt_logprobs),
            "prompt_token_ids": list(choice.prompt) if token_ids else None,
            "routed_experts": None,
            **newer,
        }

    def _logprobs(self, choice: Choice, places: range) -> dict[str, Any] | None:
        """Of the tokens at these places, and of the prompt before the first one if it is repeated."""
        count = self._job.logprobs
        if count is None:
            return None
        read, size, plan = self._tokenizer.decode, self._tokenizer.size, choice.plan
        prompt = list(choice.prompt) if self._job.echo else []
        texts = [read([token]) for token in prompt]
        texts += [self._planner.text(plan, index) for index in range(places.stop)]
        shown = range(0 if places.start == 0 else len(prompt) + places.start, len(prompt) + places.stop)
        tokens = [*prompt, *(plan.token(index) for index in range(places.stop))]
        offsets = [0]
        for text in texts:
            offsets.append(offsets[-1] + len(text))
        first = 1 if prompt else 0  # the first token of a prompt has no probability
        return {
            "text_offset": [offsets[place] for place in shown],
            "token_logprobs": [None if place < first else shapes.LOGPROB for place in shown],
            "tokens": [texts[place] for place in shown],
            "top_logprobs": [
                None
                if place < first
                else {read([other]): shapes.LOGPROB for other in shapes.alternatives(tokens[place], count, size)}
                for place in shown
            ],
        }
