"""What differs between the releases that can be stood in for, as data; the defaults are 0.26.0's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

ENGINE_LOST = "EngineCore encountered an issue. See stack trace (above) for the root cause."
_EFFECTIVE = frozenset(
    {
        "--enable-request-id-headers",
        "--enable-prompt-tokens-details",
        "--enable-server-load-tracking",
        "--enable-force-include-usage",
        "--enable-per-request-metrics",
    }
)


@dataclass(frozen=True)
class Release:
    """One release's ways."""

    version: str = "0.26.0"
    # Stopping and dying
    drains_open: bool = False  # in a drain the port stays open, /health says 200 and new requests get a 500
    engine_lost: str = ENGINE_LOST
    # Refusals
    repeats_input: bool = True  # validation errors hold the refused value; later ones say how large it is
    names_aliases: bool = False
    cuts_long_answers: bool = False  # prompt + max_tokens over the context: cut instead of refused
    total_tokens_named: str = "max_model_len=max_total_tokens"
    body_must_be_object: bool = False  # 400 for an array; 0.26.0 fails with a 500
    messages_fail: bool = True  # /v1/messages answers 500 where the others answer 400
    messages_types: Mapping[str, str] | None = None  # Anthropic's names of the kinds of error
    checks_tool_arguments: bool = True
    unknown_role: tuple[str, int, str] = ("Unknown", 501, "NotImplementedError")  # V4 mode
    fim_suffix: bool = False  # V4 mode takes `suffix` on completions
    refuses_foreign_origin: bool = False
    scale_out_guarded: bool = False  # render, generate and abort_requests need a flag
    # Answers
    varies: bool = False  # `vary: Origin`
    completion_details: bool = False
    cache_write_tokens: bool = False
    async_tools: bool = False  # a field of tools that /v1/responses repeats
    message_delta_sequence: bool = False
    item_summary: bool = True
    stream_items_stay: bool = False  # the last event of a responses stream repeats the items of the stream
    reasoning_part: str = "reasoning_part"
    responses_end: str = "response.completed"
    weight_versions: bool = False
    thinks_unasked: bool = False  # V4 mode
    # Routes, flags, metrics
    newer_routes: bool = False
    flags: frozenset[str] = _EFFECTIVE
    newer_families: bool = False
    scaling_phases: bool = False  # what /is_scaling_elastic_ep says


V026 = Release()
V032 = replace(
    V026,
    version="0.32.0",
    drains_open=True,
    repeats_input=False,
    names_aliases=True,
    cuts_long_answers=True,
    total_tokens_named="max_model_len",
    body_must_be_object=True,
    messages_fail=False,
    checks_tool_arguments=False,
    unknown_role=("Invalid", 400, "BadRequestError"),
    fim_suffix=True,
    refuses_foreign_origin=True,
    scale_out_guarded=True,
    varies=True,
    completion_details=True,
    cache_write_tokens=True,
    async_tools=True,
    message_delta_sequence=True,
    item_summary=False,
    stream_items_stay=True,
    reasoning_part="content_part",
    thinks_unasked=True,
    newer_routes=True,
    flags=_EFFECTIVE | {"--max-num-queued-reqs", "--enable-scale-out", "--sse-keep-alive-interval"},
    newer_families=True,
)
V033 = replace(
    V032,
    version="0.33.0",
    engine_lost="The server had an error while processing your request.",
    messages_types={"BadRequestError": "invalid_request_error", "NotFoundError": "not_found_error"},
    responses_end="response.incomplete",
    weight_versions=True,
    scaling_phases=True,
)
RELEASES: Mapping[str, Release] = {release.version: release for release in (V026, V032, V033)}
