"""The stand-in's metrics: the families of the recorded page, moved when vLLM moves its own."""

from __future__ import annotations

import gc
import os
import platform
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from stub.engine import Engine, Sequence
from stub.exposition import Family, Instrument, page
from stub.settings import Settings

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"
BLOCK_TOKENS = 128  # as recorded
_TABLE = Path(__file__).with_name("families.tsv")
# Series that are there from the start, at zero.
_FROM_THE_START = {
    "vllm:num_requests_waiting_by_reason": ("capacity", "deferred"),
    "vllm:engine_sleep_state": ("awake", "weights_offloaded", "discard_all"),
    "vllm:prompt_tokens_by_source_total": ("local_compute", "local_cache_hit", "external_kv_transfer"),
    "vllm:prompt_tokens_cached_by_source_total": ("device", "host", "p2p", "disk", "external_unspecified"),
    "vllm:admission_rejections_total": ("max_num_queued_reqs", "max_num_queued_tokens"),
    "vllm:tool_call_parser_invocations_total": tuple(
        f"{mode} {outcome} {kind}"
        for mode in ("streaming", "non_streaming")
        for outcome in ("tool_call", "no_tool_call")
        for kind in ("chat_completions", "responses", "other")
    ),
    "vllm:request_success_total": ("stop", "length", "abort", "error", "repetition"),
}


def families(settings: Settings) -> Iterator[Family]:
    """The table of families, with this server's labels; a mark at a line's start says when it is left out."""
    for line in _TABLE.read_text().splitlines():
        if line.startswith("#"):
            continue
        marks, rest = line[: len(line) - len(line.lstrip("+!~"))], line.lstrip("+!~")
        if ("+" in marks and not settings.plays.newer_families) or ("!" in marks and not settings.v4):
            continue
        name, kind, labels, buckets, text = rest.split("\t")
        fixed = {"engine": "0", "model_name": settings.model} if name.startswith("vllm:") else {}
        if "~" in marks:
            del fixed["engine"]
        names = tuple(labels.split()) if labels != "-" else ()
        if name == "vllm:cache_config_info":
            fixed = {"engine": "0", **dict(item.split("=", 1) for item in names), **_cache_labels(settings)}
            names = ()
        yield Family(name, kind, text, names, _bounds(buckets, settings.max_model_len), fixed)


def _bounds(text: str, longest: int) -> tuple[float, ...]:
    if text == "1-2-5":
        return tuple(float(m * 10**e) for e in range(8) for m in (1, 2, 5) if m * 10**e <= longest)
    return () if text == "-" else tuple(map(float, text.split()))


def _cache_labels(settings: Settings) -> dict[str, str]:
    blocks = blocks_of(settings)
    return {
        "num_gpu_blocks": str(blocks),
        "kv_cache_size_tokens": str(blocks * BLOCK_TOKENS),
        "kv_cache_max_concurrency": str(blocks * BLOCK_TOKENS / settings.max_model_len),
        "kv_cache_memory_bytes": "None",
    }


def blocks_of(settings: Settings) -> int:
    """Blocks of the pretended KV cache: every sequence that may run fits whole, so nothing is ever preempted."""
    return settings.max_num_seqs * -(-settings.max_model_len // BLOCK_TOKENS)


class Metrics:
    """The instruments, and the engine's watcher that moves them."""

    def __init__(self, settings: Settings) -> None:
        self._capacity = blocks_of(settings) * BLOCK_TOKENS
        self._by_name = {family.name: Instrument(family) for family in families(settings)}
        for name, values in _FROM_THE_START.items():
            for value in values if name in self._by_name else ():
                self[name].series(*value.split())
        self["vllm:engine_sleep_state"].set(1, "awake")
        self["vllm:cache_config_info"].set(1)
        self["python_info"].set(
            1, platform.python_implementation(), *platform.python_version_tuple(), platform.python_version()
        )
        self["process_start_time_seconds"].set(time.time())
        self._first = self["vllm:time_to_first_token_seconds"]
        self._between = self["vllm:inter_token_latency_seconds"]
        self._generated = self["vllm:generation_tokens_total"]
        self._steps = self["vllm:iteration_tokens_total"]

    def __getitem__(self, name: str) -> Instrument:
        return self._by_name[name]

    def first_token(self, sequence: Sequence, now: float) -> None:
        """The prompt is read and the first token is there: TTFT is sampled at once."""
        self._first.observe(now - sequence.arrived)
        self._generated.add(1)
        self["vllm:prompt_tokens_total"].add(sequence.prompt_tokens)
        self["vllm:prompt_tokens_by_source_total"].add(sequence.prompt_tokens, "local_compute")
        self["vllm:prefix_cache_queries_total"].add(sequence.prompt_tokens)

    def later_tokens(self, count: int, interval_s: float) -> None:
        """Further tokens of one sequence."""
        self._between.observe(interval_s, times=count)
        self._generated.add(count)

    def step(self, tokens: int) -> None:
        """One engine step ended."""
        self._steps.observe(tokens)

    def finished(self, sequence: Sequence, now: float) -> None:
        """A sequence ended by itself: only now its queue time shows. One that was cut off never comes here."""
        decode_s = now - sequence.first
        self["vllm:request_success_total"].add(1, sequence.finish_reason)
        for name, value in (
            ("request_prompt_tokens", sequence.prompt_tokens),
            ("request_generation_tokens", sequence.length),
            ("request_max_num_generation_tokens", sequence.length),
            ("request_params_max_tokens", sequence.max_tokens),
            ("request_params_n", 1),
            ("request_prefill_kv_computed_tokens", sequence.prompt_tokens),
            ("e2e_request_latency_seconds", now - sequence.arrived),
            ("request_queue_time_seconds", sequence.scheduled - sequence.arrived),
            ("request_inference_time_seconds", now - sequence.scheduled),
            ("request_prefill_time_seconds", sequence.first - sequence.scheduled),
            ("request_decode_time_seconds", decode_s),
            ("request_time_per_output_token_seconds", decode_s / max(1, sequence.length - 1)),
        ):
            self[f"vllm:{name}"].observe(value)
        if "vllm:request_num_preemptions" in self._by_name:
            self["vllm:request_num_preemptions"].observe(0)

    def rejected(self, reason: str) -> None:
        """A queue limit refused a request."""
        self["vllm:admission_rejections_total"].add(1, reason)

    def parsed(self, mode: str, found: bool, kind: str) -> None:
        """The tool parser looked at an answer, or at a part of it."""
        self["vllm:tool_call_parser_invocations_total"].add(1, mode, "tool_call" if found else "no_tool_call", kind)

    def page(self, engine: Engine) -> bytes:
        """The page as of now."""
        self["vllm:num_requests_running"].set(len(engine.running))
        self["vllm:num_requests_waiting"].set(len(engine.waiting))
        self["vllm:num_requests_waiting_by_reason"].set(len(engine.waiting), "capacity")
        self["vllm:kv_cache_usage_perc"].set(engine.tokens_held() / self._capacity)
        self._look_at_process()
        return page(list(self._by_name.values()))

    def _look_at_process(self) -> None:
        for generation, stats in enumerate(gc.get_stats()):
            for field in ("collected", "uncollectable"):
                self[f"python_gc_objects_{field}_total"].set(stats[field], str(generation))
            self["python_gc_collections_total"].set(stats["collections"], str(generation))
        self["process_cpu_seconds_total"].set(time.process_time())
        self["process_max_fds"].set(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        if sys.platform == "linux":
            size, resident = Path("/proc/self/statm").read_text().split()[:2]
            self["process_virtual_memory_bytes"].set(int(size) * resource.getpagesize())
            self["process_resident_memory_bytes"].set(int(resident) * resource.getpagesize())
            self["process_open_fds"].set(len(os.listdir("/proc/self/fd")))
