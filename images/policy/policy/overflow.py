"""Prompts that are too long: which turns of a conversation go. Pure; the counting is somebody else's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

STAYS = ("system", "developer")
GUESSES = (
    4  # counts made where sizes point to; after that the middle is asked, so that few are enough in the worst case
)
# What a chat template may add to the bytes of the messages, in tokens.
TEMPLATE_TOKENS, MESSAGE_TOKENS = 4096, 16
TOOLS_FACTOR = 3  # tools are written out again by the template, perhaps indented and escaped


@dataclass(frozen=True)
class Ask:
    """Count the prompt without its `dropped` oldest turns."""

    dropped: int


@dataclass(frozen=True)
class Answer:
    """Drop this many turns; None: even the last turn alone does not fit."""

    dropped: int | None


def turns(roles: Sequence[str]) -> list[list[int]]:
    """Indexes of the messages that may go, turn by turn, oldest first.

    A turn is a message of the user with all that follows until the next one, so an answer with tool calls keeps its
    results. System and developer messages belong to none. The last turn stays.
    """
    found: list[list[int]] = []
    for index, role in enumerate(roles):
        if role in STAYS:
            continue
        if not found or role == "user":
            found.append([])
        found[-1].append(index)
    return found[:-1]


def step(sizes: Sequence[int], total: int, room: int, counted: Mapping[int, int]) -> Ask | Answer:
    """What to count next, or how many turns to drop: as few as make the prompt fit into `room` tokens.

    `sizes` are the bytes of each turn that may go, `total` those of the whole prompt, `counted` what is known:
    turns dropped -> tokens.
    """
    last = len(sizes)
    if 0 not in counted:
        return Ask(0)
    fitting = [dropped for dropped, tokens in counted.items() if tokens <= room]
    high = min(fitting, default=None)
    if high == 0:
        return Answer(0)
    low = max(dropped for dropped in counted if high is None or dropped < high)
    if high is None:
        return Answer(None) if low == last else Ask(_guess(sizes, total, room, counted, low, last))
    return Answer(high) if high == low + 1 else Ask(_guess(sizes, total, room, counted, low, high - 1))


def _guess(sizes: Sequence[int], total: int, room: int, counted: Mapping[int, int], low: int, most: int) -> int:
    """A number of turns above `low`, at most `most`: the first one that should fit, by the bytes that go."""
    if len(counted) > GUESSES:
        return (low + 1 + most) // 2
    per_byte = counted[0] / max(1, total)
    tokens = float(counted[low])
    for dropped in range(low + 1, most):
        tokens -= sizes[dropped - 1] * per_byte
        if tokens <= room:
            return dropped
    return most


def surely_fits(size: int, messages: int, tools: bool, output: int, context: int) -> bool:
    """No count is needed: text never has more tokens than bytes, and a template adds only so much."""
    return size * (TOOLS_FACTOR if tools else 1) + messages * MESSAGE_TOKENS + TEMPLATE_TOKENS + output <= context
