"""The name of a conversation: one for all of its turns, another for every other."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy.affinity import HEAD, LONG, name_of, prefix

TEXT = st.text(min_size=1, max_size=20)
CONTENT = TEXT | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}), min_size=1, max_size=2)
SYSTEM = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "developer"]), "content": CONTENT}), max_size=2
)
USER = st.fixed_dictionaries({"role": st.just("user"), "content": CONTENT})
LATER = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "tool", "system"]), "content": CONTENT}),
    max_size=6,
)
UNRELATED = st.dictionaries(
    st.sampled_from(["temperature", "max_tokens", "stream", "seed", "user", "stream_options", "metadata"]),
    st.integers() | st.booleans(),
)


def shuffled(document: dict[str, Any], seed: int) -> dict[str, Any]:
    names = list(document)
    random.Random(seed).shuffle(names)
    return {name: document[name] for name in names}


@given(SYSTEM, USER, LATER, UNRELATED, UNRELATED, st.sampled_from(["messages", "input"]), st.integers())
def test_a_later_turn_has_the_name_of_the_first(
    system: list[Any], user: Any, later: list[Any], now: Any, then: Any, field: str, seed: int
) -> None:
    first = {"model": "m", field: [*system, user], **now}
    after = {"model": "m", field: [*system, user, *later], **then}
    assert prefix(first) == prefix(shuffled(after, seed)) is not None


@given(SYSTEM, USER, USER, LATER)
def test_another_first_message_is_another_conversation(system: list[Any], one: Any, two: Any, later: list[Any]) -> None:
    def texts(message: Any) -> list[str]:
        content = message["content"]
        return [content] if isinstance(content, str) else [part["text"] for part in content]

    names = {prefix({"messages": [*system, message, *later]}) for message in (one, two)}
    assert len(names) == (1 if texts(one) == texts(two) else 2)


BASE: dict[str, Any] = {
    "model": "m",
    "system": "be kind",
    "instructions": "be short",
    "tools": [{"name": "f"}],
    "cache_salt": "s",
    "messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "hi"}],
}


@pytest.mark.parametrize(
    "other",
    [
        {"model": "n"},
        {"system": "be rude"},
        {"instructions": None},
        {"tools": [{"name": "g"}]},
        {"cache_salt": "t"},
        {"messages": [{"role": "system", "content": "y"}, {"role": "user", "content": "hi"}]},
        {"messages": [{"role": "developer", "content": "x"}, {"role": "user", "content": "hi"}]},
        {"messages": [{"role": "user", "content": "hi"}]},
        {"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": [{"type": "image", "id": 1}]}]},
    ],
)
def test_what_begins_a_prompt_is_a_part_of_the_name(other: dict[str, Any]) -> None:
    assert prefix(BASE) != prefix({**BASE, **other})


def test_marks_of_where_to_cache_are_not_a_part_of_the_name() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    marked = {
        "system": [{"type": "text", "text": "s", **mark}],
        "tools": [{"name": "f", **mark}],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "hi", **mark}, {"type": "image", "source": 1, **mark}],
            }
        ],
    }
    plain = {
        "system": "s",
        "tools": [{"name": "f"}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image", "source": 1}]}],
    }
    assert prefix(marked) == prefix(plain)


def test_an_input_that_is_a_text_is_a_message_of_the_user() -> None:
    later = [{"role": "user", "content": "hi"}, {"type": "message", "role": "assistant", "content": "hello"}]
    assert prefix({"input": "hi"}) == prefix({"input": later})


@pytest.mark.parametrize("grown", ["a" * HEAD + "b", "a" * HEAD + "c" * 9999])
def test_a_plain_prompt_is_known_by_its_head(grown: str) -> None:
    assert prefix({"prompt": grown}) == prefix({"prompt": "a" * HEAD}) != prefix({"prompt": "b" + grown[1:]})
    assert prefix({"prompt": [grown, "x"]}) == prefix({"prompt": grown})


def test_a_prompt_of_tokens_is_known_by_its_first_ones() -> None:
    tokens = list(range(300))
    assert prefix({"prompt": tokens}) == prefix({"prompt": tokens[:256]}) != prefix({"prompt": tokens[1:]})
    assert prefix({"prompt": [tokens, [1]]}) == prefix({"prompt": tokens})


def test_large_images_are_told_apart() -> None:
    def seen(data: str) -> str | None:
        return prefix({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": data}}]}]})

    assert len({seen("A" * LONG), seen("A" * (LONG + 1)), seen("A" * (LONG + 2)), seen("B" * (LONG + 1))}) == 4


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"model": "m"},
        {"messages": []},
        {"messages": None},
        {"messages": ["x"]},
        {"messages": [{"role": "assistant", "content": "hi"}]},
        {"input": []},
        {"prompt": ""},
        {"prompt": []},
        {"prompt": [""]},
        {"prompt": None},
        {"previous_response_id": "resp_1", "input": "go on"},
    ],
)
def test_a_request_without_a_beginning_has_no_name(document: dict[str, Any]) -> None:
    assert prefix(document) is None


def test_the_setting_decides_what_names_a_conversation() -> None:
    other = {"messages": [{"role": "user", "content": "another"}]}
    assert name_of("none", BASE, "s") is None
    assert name_of("prefix", BASE, "s") == name_of("prefix", BASE) == prefix(BASE)
    assert name_of("session", BASE, "s") == name_of("session", other, "s") != name_of("session", BASE, "t")
    assert name_of("session", BASE) == name_of("session", BASE, "") == prefix(BASE)


@given(TEXT)
def test_a_name_is_sixteen_hex_digits(session: str) -> None:
    name = name_of("session", {}, session)
    assert name is not None and len(name) == 16 and int(name, 16) >= 0
