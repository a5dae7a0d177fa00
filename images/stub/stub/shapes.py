"""What every kind of answer is made of: the protocol of a shape, and the parts that several of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from stub.job import Choice, Job, usage
from stub.service import Service
from stub.tokenizer import EOS
from stub.wire import DONE, spaced_event

LOGPROB = -0.0625  # prepared text is sure of itself; any number is as good


class Shape(Protocol):
    """The bytes of one kind of answer; each item of an iterable is an event and goes out as a chunk of its own."""

    def begin(self) -> Iterable[bytes]:
        """What goes out at once, before anything is known."""

    def opening(self, choice: Choice) -> Iterable[bytes]:
        """What goes before the first token."""

    def token(self, choice: Choice, index: int) -> Iterable[bytes]:
        """One token."""

    def aborted(self, choice: Choice) -> Iterable[bytes]:
        """What ends a choice that the server cut; its plan is shortened by now."""

    def end(self) -> Iterable[bytes]:
        """What goes after the last token."""

    def lost(self, message: str) -> Iterable[bytes]:
        """How a stream ends whose engine died."""

    def whole(self) -> dict[str, Any]:
        """The answer to a request that is no stream."""


MakeShape = Callable[[Job, Service], Shape]


def lost(message: str) -> Iterable[bytes]:
    """The end of an OpenAI stream whose engine died."""
    error = {"message": message, "type": "InternalServerError", "param": None, "code": 500}
    return spaced_event({"error": error}), DONE


def head(job: Job, kind: str) -> dict[str, Any]:
    """The first fields of everything."""
    return {"id": job.id, "object": kind, "created": job.created, "model": job.model}


def chunk(job: Job, kind: str, inside: dict[str, Any], made: int, choice: Choice, last: bool = False) -> dict[str, Any]:
    """One event of a stream; `made` tokens are there by now."""
    event = {"id": job.id, "object": kind, "created": job.created, "model": job.model, "choices": [inside]}
    if job.continuous_usage:
        event["usage"] = usage(len(choice.prompt), made)
    if last and not job.include_usage:
        event["system_fingerprint"] = job.fingerprint
    return event


def usage_chunk(
    service: Service, job: Job, kind: str, details: dict[str, Any], reasoning_tokens: int = 0
) -> dict[str, Any]:
    """The event after the last one; `details` are shown with a flag."""
    counts = job.usage()
    if "--enable-prompt-tokens-details" in service.flags:
        counts["prompt_tokens_details"] = details
    if service.release.completion_details and reasoning_tokens:
        counts["completion_tokens_details"] = {"reasoning_tokens": reasoning_tokens}
    event = {**head(job, kind), "choices": [], "usage": counts, "system_fingerprint": job.fingerprint}
    return {**event, "metrics": timings(job)} if "--enable-per-request-metrics" in service.flags else event


def whole_usage(service: Service, job: Job, details: dict[str, Any], reasoning_tokens: int = 0) -> dict[str, Any]:
    """Token counts of an answer that is no stream."""
    counts = job.usage()
    shown = "--enable-prompt-tokens-details" in service.flags and not job.batch
    counts["prompt_tokens_details"] = details if shown else None
    if service.release.completion_details:
        counts["completion_tokens_details"] = {"reasoning_tokens": reasoning_tokens} if reasoning_tokens else None
    return counts


def cache_details(created: int | None = 0) -> dict[str, Any]:
    """Details of a prompt: this engine has no cache of prefixes."""
    return {"cached_tokens": 0, "created_cache_tokens": created, "multimodal_tokens": None}


def metrics_of(service: Service, job: Job) -> dict[str, Any] | None:
    """Timings of the request, with a flag."""
    return timings(job) if "--enable-per-request-metrics" in service.flags else None


def timings(job: Job) -> dict[str, Any]:
    """When the first choice was queued, read and written."""
    sequence = job.choices[0].sequence
    whole, later = sequence.last - sequence.arrived, sequence.last - sequence.first
    return {
        "time_to_first_token_ms": 1000 * (sequence.first - sequence.arrived),
        "generation_time_ms": 1000 * later,
        "queue_time_ms": 1000 * (sequence.scheduled - sequence.arrived),
        "mean_itl_ms": 1000 * later / max(1, sequence.produced - 1),
        "tokens_per_second": sequence.produced / whole if whole > 0 else 0.0,
    }


def ids(choice: Choice) -> list[int]:
    """The tokens of an answer."""
    return [choice.plan.token(index) for index in range(choice.plan.length)]


def alternatives(token: int, count: int, size: int) -> list[int]:
    """The token itself and its neighbours in the vocabulary."""
    return [(token + step) % size for step in range(count)] if token != EOS else list(range(EOS, EOS + count))


def prompt_logprobs(service: Service, prompt: Sequence[int], count: int | None) -> list[Any] | None:
    """For each token of a prompt but the first: itself, and the `count` tokens that were likelier."""
    if count is None:
        return None
    read, size = service.tokenizer.decode, service.tokenizer.size
    found: list[Any] = [None]
    for token in prompt[1:]:
        entry = {str(token): {"logprob": LOGPROB, "rank": count + 1, "decoded_token": read([token])}}
        for rank in range(1, count + 1):
            other = (token + rank) % size
            entry[str(other)] = {"logprob": LOGPROB, "rank": rank, "decoded_token": read([other])}
        found.append(entry)
    return found
