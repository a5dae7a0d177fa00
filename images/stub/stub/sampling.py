"""Limits of the sampling parameters, checked once the request is understood, in vLLM's words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from stub.errors import ApiError, bad_value

MOST_CHOICES = 16_384
MOST_LOGPROBS = 20

Rule = tuple[str, Callable[[Any], bool], str, bool]  # name, is it wrong, what to say, does the error name the parameter
_RULES: tuple[Rule, ...] = (
    ("n", lambda v: v < 1, "n must be at least 1, got {}.", False),
    (
        "n",
        lambda v: v > MOST_CHOICES,
        f"n must be at most {MOST_CHOICES}, got {{}}. To increase this limit, "
        "set the VLLM_MAX_N_SEQUENCES environment variable.",
        False,
    ),
    ("presence_penalty", lambda v: not -2 <= v <= 2, "presence_penalty must be in [-2, 2], got {}.", False),
    ("frequency_penalty", lambda v: not -2 <= v <= 2, "frequency_penalty must be in [-2, 2], got {}.", False),
    ("repetition_penalty", lambda v: not v > 0, "repetition_penalty must be greater than zero, got {}.", False),
    ("temperature", lambda v: not math.isfinite(v), "temperature must be a finite number, got {}.", True),
    ("temperature", lambda v: v < 0, "temperature must be non-negative, got {}.", True),
    ("temperature", lambda v: v > 2, "temperature must be in [0, 2], got {}.", True),
    ("top_p", lambda v: not 0 < v <= 1, "top_p must be in (0, 1], got {}.", True),
    ("top_k", lambda v: v < -1, "top_k must be 0 (disable), or at least 1, got {}.", False),
    ("min_p", lambda v: not 0 <= v <= 1, "min_p must be in [0, 1], got {}.", False),
    ("max_tokens", lambda v: v < 1, "max_tokens must be at least 1, got {}.", True),
    ("min_tokens", lambda v: v < 0, "min_tokens must be greater than or equal to 0, got {}.", False),
)


def check(values: Mapping[str, Any], vocabulary: int) -> None:
    """Raise the first complaint about a request's sampling parameters."""
    for name, wrong, text, names_parameter in _RULES:
        value = values[name]
        if value is not None and wrong(value):
            said = text.format(value)
            raise bad_value(said, name, value) if names_parameter else ApiError(said)
    if values["min_tokens"] > values["max_tokens"]:
        least, most = values["min_tokens"], values["max_tokens"]
        raise ApiError(f"min_tokens must be less than or equal to max_tokens={most}, got {least}.")
    if any(not stop for stop in values["stop"]):
        raise ApiError("stop cannot contain an empty string.")
    if values["temperature"] == 0 and values["n"] > 1:
        raise ApiError(f"n must be 1 when using greedy sampling, got {values['n']}.")
    _check_logprobs(values, vocabulary)
    _check_tokens(values, vocabulary)


def _check_logprobs(values: Mapping[str, Any], vocabulary: int) -> None:
    chat = "top_logprobs" in values
    asked = (values["top_logprobs"] if values["logprobs"] else None) if chat else values["logprobs"]
    for what, param, count in (("sample", "logprobs", asked), ("prompt", "prompt_logprobs", values["prompt_logprobs"])):
        count = vocabulary if count == -1 else count
        if count is not None and count > MOST_LOGPROBS:
            text = f"Requested {what} logprobs of {count}, which is greater than max allowed: {MOST_LOGPROBS}"
            raise bad_value(text, param, count)


def _check_tokens(values: Mapping[str, Any], vocabulary: int) -> None:
    outside = [int(token) for token in values["logit_bias"] or {} if not _known(token, vocabulary)]
    if outside:
        text = f"token_id(s) {outside} in logit_bias contain out-of-vocab token ids. Vocabulary size: {vocabulary}"
        raise bad_value(text, "logit_bias", outside)


def _known(token: str, vocabulary: int) -> bool:
    try:
        return 0 <= int(token) < vocabulary
    except ValueError:
        raise ApiError(f"invalid literal for int() with base 10: {token!r}") from None
