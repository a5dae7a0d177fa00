"""How the engine is asked for usage: a change of the body that changes nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy.usage import ASKED_ONLY, UsagePlan, plan

CHAT, TEXT = ASKED_ONLY
BOTH = {"include_usage": True, "continuous_usage_stats": True}
SAID = [{"role": "user", "content": "a" * 40}]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
SPACE = st.text(" \t\r\n", max_size=3)
OPTIONS = st.none() | st.dictionaries(
    st.sampled_from(["include_usage", "continuous_usage_stats", "other"]), st.none() | st.booleans()
)


def planned(body: Any, path: str = CHAT) -> UsagePlan:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return plan(path, raw, json.loads(raw))


@given(st.dictionaries(st.text(), VALUES, max_size=4), OPTIONS, st.sampled_from(ASKED_ONLY), SPACE, st.booleans())
def test_the_changed_body_is_the_old_one_with_the_options_merged(
    fields: dict[str, Any], options: dict[str, Any] | None, path: str, space: str, ascii_only: bool
) -> None:
    document = {**fields, "stream": True, "stream_options": options}
    raw = (space + json.dumps(document, ensure_ascii=ascii_only) + space).encode("utf-8", "surrogatepass")
    try:
        raw.decode()
    except UnicodeDecodeError:
        return  # no JSON: it is refused before
    change = plan(path, raw, json.loads(raw))
    changed = change.changed(raw)
    assert json.loads(changed) == {**json.loads(raw), "stream_options": {**(options or {}), **BOTH}}
    assert changed[: change.at] == raw[: change.at]
    assert changed[change.at :] == change.added + raw[change.at :]
    assert plan(path, changed, json.loads(changed)).changed(changed) == changed


@pytest.mark.parametrize("path", ASKED_ONLY)
@pytest.mark.parametrize(
    "options, strip",
    [
        (None, "all"),
        ({}, "all"),
        ({"include_usage": False}, "all"),
        ({"include_usage": None}, "all"),
        ({"continuous_usage_stats": True}, "all"),
        ({"include_usage": True}, "chunks"),
        ({"include_usage": "yes"}, "chunks"),
        ({"include_usage": True, "continuous_usage_stats": 0}, "chunks"),
        (BOTH, ""),
        ({"include_usage": 1, "continuous_usage_stats": "True", "more": 1}, ""),
    ],
)
def test_the_filter_hides_what_was_not_asked_for(path: str, options: object, strip: str) -> None:
    change = planned({"stream": True, "stream_options": options}, path)
    assert change.strip == strip and bool(change.added) == bool(strip)


@pytest.mark.parametrize("stream", [True, 1, 1.0, "true", "YES", "on", "1"])
def test_a_stream_is_what_the_engine_takes_for_one(stream: object) -> None:
    assert planned({"stream": stream}).strip == "all"


@pytest.mark.parametrize("body", [{}, {"stream": None}, {"stream": False}, {"stream": "no"}, {"stream": 0}])
@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": True}}])
def test_a_request_without_a_stream_is_not_changed(body: dict[str, Any], options: dict[str, Any]) -> None:
    change = planned({**body, **options})
    assert (change.strip, change.added) == ("", b"")


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/messages/count_tokens", "/tokenize", ""])
def test_a_route_that_reports_usage_anyway_is_not_changed(path: str) -> None:
    change = planned({"stream": True, "input": "hi"}, path)
    assert (change.strip, change.added) == ("", b"")


@pytest.mark.parametrize("stream", ["perhaps", 2, [], {}, 1.5])
def test_a_stream_that_the_engine_refuses_is_left_to_it(stream: object) -> None:
    assert planned({"stream": stream}).added == b""


@pytest.mark.parametrize("options", [[], "x", 1, True, {"include_usage": "maybe"}, {"continuous_usage_stats": {}}])
def test_options_that_the_engine_refuses_are_left_to_it(options: object) -> None:
    change = planned({"stream": True, "stream_options": options})
    assert (change.strip, change.added) == ("", b"")


def test_of_repeated_members_the_last_ones_count() -> None:
    raw = b'{"stream":false,"stream_options":{"include_usage":true},"stream":true,"stream_options":{"a":"}"} } \r\n'
    change = planned(raw)
    assert change.strip == "all"
    assert (
        change.changed(raw)
        == raw[:-4] + b',"stream_options":{"a":"}","include_usage":true,"continuous_usage_stats":true}} \r\n'
    )


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-be", "utf-16"])
def test_a_body_in_wide_characters_is_not_cut_in_the_middle_of_one(encoding: str) -> None:
    raw = json.dumps({"stream": True}).encode(encoding)
    assert plan(CHAT, raw, {"stream": True}).changed(raw) == raw


def test_a_byte_order_mark_stays() -> None:
    raw = b'\xef\xbb\xbf{"stream":true}'
    changed = plan(CHAT, raw, {"stream": True}).changed(raw)
    assert changed.startswith(raw[:-1]) and json.loads(changed) == {"stream": True, "stream_options": BOTH}


@pytest.mark.parametrize(
    "path, body, tokens",
    [
        (CHAT, {"messages": SAID}, 11),
        (CHAT, {"messages": [{"role": "", "content": [{"type": "", "text": "a" * 41}]}]}, 11),
        (CHAT, {"messages": [{"content": [{"type": "", "image_url": {"url": "data:" + "A" * 9999}}]}]}, 0),
        (TEXT, {"prompt": "a" * 41}, 11),
        (TEXT, {"prompt": ["a" * 20, "b" * 20]}, 10),
        (TEXT, {"prompt": [1, 2, 3]}, 3),
        (TEXT, {"prompt": [[1, 2, 3], [4]]}, 4),
        ("/v1/responses", {"input": "a" * 8, "instructions": "b" * 8}, 4),
        ("/v1/messages", {"system": "a" * 8, "messages": SAID}, 13),
        ("/v1/messages", {"messages": [{"content": [{"source": {"data": "A" * 9999}}]}]}, 0),
        (CHAT, {"messages": None, "model": "m" * 400}, 0),
        (CHAT, {"messages": SAID, "tools": [{"type": "function", "function": {"name": "look"}}]}, 23),
        (CHAT, {"messages": SAID, "tools": []}, 11),
        (TEXT, {"prompt": "你好" * 100_000}, 150_000),
        (TEXT, {"prompt": "\ud800 é"}, 1),
    ],
)
def test_a_prompt_is_estimated_by_its_text(path: str, body: dict[str, Any], tokens: int) -> None:
    assert planned(body, path).facts() == {"strip": "", "prompt_estimate": tokens}
