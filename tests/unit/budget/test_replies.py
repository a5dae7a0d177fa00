"""What a refused client is told, in the form of the API it speaks; and what an admitted one learns of its budget."""

from __future__ import annotations

import json

import pytest
from budget.core import replies
from budget.core.counts import Decision
from budget.core.limits import Limit

from tests.unit.budget.said import WALL_S

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
BROKE = Decision("tokens", Limit(6000, 4), -411, 4111, 64_110)
BUSY = Decision("streams", Limit(0, 4), 0, 1000, 0)
FINE = Decision("", Limit(6000, 4), 5969, 0, 310)


def test_a_used_up_budget_in_openais_form() -> None:
    assert json.loads(replies.body(BROKE, CHAT, "r-1")) == {
        "error": {
            "message": "The budget of 6000 tokens per minute of this API key is used up. Try again in 5 seconds.",
            "type": "rate_limit_error",
            "param": None,
            "code": "token_budget_exhausted",
            "request_id": "r-1",
        }
    }


@pytest.mark.parametrize("path", [MESSAGES, MESSAGES + "/count_tokens"])
def test_too_many_streams_in_anthropics_form(path: str) -> None:
    said = json.loads(replies.body(BUSY, path, "r-1"))
    assert said == {
        "type": "error",
        "error": {
            "type": "rate_limit_error",
            "message": "This API key may have 4 requests at the same time, and has. Try again in 1 second.",
        },
        "request_id": "r-1",
    }
    assert replies.headers(BUSY, path, "r-1", WALL_S)["request-id"] == "r-1"


def test_a_path_that_only_begins_alike_is_openais() -> None:
    assert "code" in json.loads(replies.body(BUSY, "/v1/messages2", "r"))["error"]


def test_retry_after_is_never_too_short() -> None:
    assert replies.headers(BROKE, CHAT, "r", WALL_S)["retry-after"] == "5"  # 4.111 s
    assert replies.seconds(4000) == 4 and replies.seconds(4001) == 5


def test_an_admitted_request_learns_what_is_left() -> None:
    assert replies.headers(FINE, CHAT, "r", WALL_S) == {
        "x-ratelimit-limit-tokens": "6000",
        "x-ratelimit-remaining-tokens": "5969",
        "x-ratelimit-reset-tokens": "1s",
    }
    assert replies.headers(FINE, MESSAGES, "r", WALL_S) == {
        "anthropic-ratelimit-tokens-limit": "6000",
        "anthropic-ratelimit-tokens-remaining": "5969",
        "anthropic-ratelimit-tokens-reset": "2026-12-01T00:00:01Z",
    }


def test_debt_is_shown_as_nothing_left_and_no_budget_as_no_header() -> None:
    assert replies.headers(BROKE, CHAT, "r", WALL_S)["x-ratelimit-remaining-tokens"] == "0"
    assert replies.headers(Decision("", Limit(0, 4), 0, 0, 0), CHAT, "r", WALL_S) == {}
