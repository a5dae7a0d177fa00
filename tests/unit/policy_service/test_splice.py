"""Bodies are changed in one place and keep every other byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy.splice import Source

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=6)
LAYOUTS = st.sampled_from([{}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False}])


def dump(value: Any, layout: dict[str, Any]) -> bytes:
    return json.dumps(value, **layout).encode("utf-8", "surrogatepass")


def readable(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(OBJECTS, LAYOUTS)
def test_members_are_found_where_they_stand(body: dict[str, Any], layout: dict[str, Any]) -> None:
    raw = dump(body, layout)
    if readable(raw):
        source = Source.read(raw, body)
        assert {name: span.value for name, span in source.members.items()} == body
        assert {name: json.loads(source.slice(span)) for name, span in source.members.items()} == body


@given(OBJECTS, st.lists(VALUES, max_size=6), st.data(), LAYOUTS)
def test_leaving_out_elements_changes_nothing_else(
    body: dict[str, Any], elements: list[Any], data: st.DataObject, layout: dict[str, Any]
) -> None:
    body = {**body, "messages": elements, "after": 1}
    raw = dump(body, layout)
    if not readable(raw):
        return
    keep = data.draw(st.lists(st.booleans(), min_size=len(elements), max_size=len(elements)))
    source = Source.read(raw)
    kept = [span for span, wanted in zip(source.elements("messages"), keep, strict=True) if wanted]
    made = source.with_elements("messages", kept)
    wanted = [element for element, wanted in zip(elements, keep, strict=True) if wanted]
    assert json.loads(made) == {**body, "messages": wanted}
    span = source.members["messages"]
    text = raw.decode()
    assert made.decode().startswith(text[: span.start]) and made.decode().endswith(text[span.end :])


@given(OBJECTS, LAYOUTS)
def test_a_number_is_set_and_nothing_else(body: dict[str, Any], layout: dict[str, Any]) -> None:
    raw = dump(body, layout)
    if readable(raw):
        made = Source.read(raw).with_number("truncate_prompt_tokens", 7)
        assert json.loads(made) == {**body, "truncate_prompt_tokens": 7}


def test_the_last_of_repeated_keys_counts_also_when_it_is_written_with_escapes() -> None:
    source = Source.read(rb'{"messages": [1], "mess\u0061ges": [2, 3]}')
    assert [span.value for span in source.elements("messages")] == [2, 3]
    assert source.with_elements("messages", list(source.elements("messages"))[1:]) == (
        rb'{"messages": [1], "mess\u0061ges": [3]}'
    )


@pytest.mark.parametrize("raw", [b"", b"[]", b"1", b'{"a"', b'{"a": }', b'{"a": 1 "b": 2}', b'{"a": 1', b"\xff"])
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        Source.read(raw)
