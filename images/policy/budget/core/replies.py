"""What a client is told: bodies of refusals, and headers with what is left, in the form of the API it speaks."""

from __future__ import annotations

import datetime
import math

import orjson

from budget.core.counts import Decision

LIMITS = {"tokens": "tokens_per_minute", "streams": "streams"}  # as the gateway's log calls them
CODES = {"tokens": "token_budget_exhausted", "streams": "too_many_streams"}
MESSAGES = "/v1/messages"


def speaks_messages(path: str) -> bool:
    """Whether the caller uses Anthropic's API, and gets its form of an error."""
    return path == MESSAGES or path.startswith(MESSAGES + "/")


def body(decision: Decision, path: str, request: str) -> bytes:
    """The body of a 429."""
    message = _sentence(decision)
    if speaks_messages(path):
        error = {"type": "rate_limit_error", "message": message}
        return orjson.dumps({"type": "error", "error": error, "request_id": request})
    code = CODES[decision.refused]
    known = {"message": message, "type": "rate_limit_error", "param": None, "code": code, "request_id": request}
    return orjson.dumps({"error": known})


def _sentence(decision: Decision) -> str:
    wait = seconds(decision.wait_ms)
    again = f"Try again in {wait} second{'s' if wait > 1 else ''}."
    if decision.refused == "tokens":
        return f"The budget of {decision.limit.tpm} tokens per minute of this API key is used up. {again}"
    most = decision.limit.streams
    return f"This API key may have {most} request{'s' if most > 1 else ''} at the same time, and has. {again}"


def headers(decision: Decision, path: str, request: str, wall_s: float) -> dict[str, str]:
    """Headers of the answer: what is left of a budget, and for a refusal also when to come again."""
    said = {}
    if decision.limit.tpm:
        said = _budget(decision, path, wall_s)
    if decision.refused:
        said |= {"retry-after": str(seconds(decision.wait_ms)), "content-type": "application/json"}
        said["x-flashbox-limit"] = LIMITS[decision.refused]  # for the gateway's log, which takes it off
        if speaks_messages(path):
            said["request-id"] = request
    return said


def marks(decision: Decision) -> dict[str, str]:
    """Headers of the request: that it would have been refused. The gateway takes them off and writes them down."""
    return {"x-flashbox-would-refuse": LIMITS[decision.would]} if decision.would else {}


def _budget(decision: Decision, path: str, wall_s: float) -> dict[str, str]:
    limit, left, full_s = str(decision.limit.tpm), str(max(0, decision.balance)), seconds(decision.full_in_ms)
    if speaks_messages(path):
        moment = datetime.datetime.fromtimestamp(math.ceil(wall_s) + full_s, datetime.timezone.utc)
        reset = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        name = "anthropic-ratelimit-tokens-"
        return {name + "limit": limit, name + "remaining": left, name + "reset": reset}
    return {
        "x-ratelimit-limit-tokens": limit,
        "x-ratelimit-remaining-tokens": left,
        "x-ratelimit-reset-tokens": f"{full_s}s",
    }


def seconds(ms: int) -> int:
    """Whole seconds, never too few."""
    return math.ceil(ms / 1000)
