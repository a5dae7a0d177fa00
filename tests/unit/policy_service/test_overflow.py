"""Which turns of a conversation go when its prompt is too long."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from policy import overflow

ROLES = st.lists(st.sampled_from(["system", "developer", "user", "assistant", "tool"]), max_size=40)


@given(ROLES)
def test_system_and_developer_messages_and_the_last_turn_stay(roles: Sequence[str]) -> None:
    gone = [index for turn in overflow.turns(roles) for index in turn]
    assert len(gone) == len(set(gone))
    assert not {roles[index] for index in gone} & {"system", "developer"}
    talk = [index for index, role in enumerate(roles) if role not in overflow.STAYS]
    if talk:
        last_user = max((index for index in talk if roles[index] == "user"), default=talk[0])
        assert not [index for index in gone if index >= last_user]


@given(ROLES)
def test_turns_are_whole_and_the_oldest_come_first(roles: Sequence[str]) -> None:
    found = overflow.turns(roles)
    flat = [index for turn in found for index in turn]
    assert flat == sorted(flat)
    for turn in found:
        assert not [index for index in turn[1:] if roles[index] == "user"], "a turn holds one message of the user"
    starts = {turn[0] for turn in found[1:]}
    assert all(roles[index] == "user" for index in starts)
    talk = [index for index, role in enumerate(roles) if role not in overflow.STAYS]
    assert flat == talk[: len(flat)], "nothing in between is left out"


def test_an_answer_with_tool_calls_goes_with_its_results() -> None:
    roles = ["system", "user", "assistant", "tool", "tool", "assistant", "user", "assistant", "tool", "user"]
    assert overflow.turns(roles) == [[1, 2, 3, 4, 5], [6, 7, 8]]


def search(sizes: Sequence[int], tokens: Sequence[int], room: int) -> tuple[int | None, int]:
    """The answer, and how many counts it took, when `tokens[k]` is what is left after k turns."""
    counted: dict[int, int] = {}
    while True:
        asked = overflow.step(sizes, sum(sizes) + 100, room, counted)
        if isinstance(asked, overflow.Answer):
            return asked.dropped, len(counted)
        assert asked.dropped not in counted, "asked twice"
        counted[asked.dropped] = tokens[asked.dropped]


CONVERSATIONS = st.lists(st.tuples(st.integers(1, 10_000), st.integers(1, 10_000)), max_size=300)


@given(CONVERSATIONS, st.integers(0, 5000), st.integers(-10, 500_000))
def test_as_few_turns_go_as_make_the_prompt_fit(turns: list[tuple[int, int]], rest: int, room: int) -> None:
    tokens = [rest + sum(count for _, count in turns[dropped:]) for dropped in range(len(turns) + 1)]
    expected = next((dropped for dropped, count in enumerate(tokens) if count <= room), None)
    found, counts = search([size for size, _ in turns], tokens, room)
    assert found == expected
    assert counts <= 2 * overflow.GUESSES + len(turns).bit_length() + 2


def test_a_prompt_that_fits_is_counted_once() -> None:
    assert search([10, 10], [50, 40, 30], 60) == (0, 1)


def test_with_even_turns_few_counts_are_enough() -> None:
    tokens = [100 * (400 - dropped) + 1000 for dropped in range(401)]
    dropped, counts = search([400] * 400, tokens, 20_000)
    assert dropped == 210 and counts <= 5


@given(st.integers(0, 10**6), st.integers(0, 1000), st.booleans(), st.integers(1, 10**5))
def test_no_count_is_left_out_where_the_bytes_alone_could_overflow(
    size: int, messages: int, tools: bool, output: int
) -> None:
    context = 131_072
    if overflow.surely_fits(size, messages, tools, output, context):
        assert size + output <= context
