"""What the stand-in says: readable, deterministic, and honest about being no model."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from stub.tokenizer import Tokenizer

OPENINGS = (
    "This is flashbox's stand-in engine, not a language model: it read your prompt only to count its tokens.",
    "This is flashbox's stand-in engine. It has no weights, so what follows is a fixed text and not an answer.",
    "This is flashbox's stand-in engine speaking: the stack around it is real, the words are prepared.",
    "This is flashbox's stand-in engine, and it knows nothing; it shows how an answer would travel to you.",
)

SENTENCES = (
    " Every token that you receive has gone the way a real one goes.",
    " Your request came in through the gateway, which looked at the key and chose a replica for it.",
    " On that replica it waited until there was room, because only so many requests run at the same time.",
    " Then its prompt was read at the speed that the settings name, and the first token was due.",
    " From there on the tokens come one by one, each in an event of its own, until the limit is reached.",
    " Behind these words there is a clock and a queue, and no thought at all.",
    " That is useful when you want to learn how the system behaves before the large machine is yours.",
    " You can count the events, cut the line, ask for two hundred answers at once, or stop a replica under load.",
    " What you see in the graphs then has the same names and the same shape as it will have later.",
    " The numbers are those of this stand-in, though, so do not take its speed for the speed of a model.",
    " If the answer stops in the middle of a sentence, the limit on its length was reached, as a model's would be.",
    " If it begins late, other requests were ahead of it in the queue.",
    " When a replica leaves, it finishes what it has begun and takes nothing new.",
    " The same prompt with the same seed always gives the same text, which makes tests easy to write.",
    " A different prompt, or a different seed, begins at another place.",
    " And when the text comes to its end, it starts again from the top, for as long as you care to listen.",
)

THOUGHT = (
    "This is flashbox's stand-in engine, so there is nothing to think about, but the thinking is asked for. "
    "It comes before the answer, as a model's would, and counts as tokens."
)


@dataclass(frozen=True)
class Answer:
    """An endless list of token ids: `head` once, then `body` round and round from `offset`."""

    head: Sequence[int]
    body: Sequence[int]
    offset: int = 0

    def token(self, index: int) -> int:
        """The token at a place."""
        if index < len(self.head):
            return self.head[index]
        return self.body[(self.offset + index - len(self.head)) % len(self.body)]

    def tokens(self, count: int) -> list[int]:
        """The first `count` tokens."""
        return [self.token(index) for index in range(count)]


class Speaker:
    """Turns a prompt into an answer, with every sentence tokenized once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.thought = tokenizer.encode(THOUGHT)
        self._openings = [tokenizer.encode(text) for text in OPENINGS]
        sentences = [tokenizer.encode(text) for text in SENTENCES]
        self._body = [token for sentence in sentences for token in sentence]
        self._starts: list[int] = []
        place = 0
        for sentence in sentences:
            self._starts.append(place)
            place += len(sentence)

    def answer(self, prompt: str, seed: object, choice: int) -> Answer:
        """The prepared text, begun at a place that prompt, seed and choice decide."""
        key = zlib.crc32(f"{choice}\0{seed}\0{prompt}".encode("utf-8", "replace"))
        opening = self._openings[key % len(self._openings)]
        return Answer(opening, self._body, self._starts[key // 7 % len(self._starts)])

    def natural_length(self, answer: Answer, wanted: int) -> int:
        """The most whole sentences in `wanted` tokens; all of `wanted` when not even one fits."""
        ends = [len(answer.head)]
        bounds = sorted({(start - answer.offset) % len(self._body) for start in self._starts} - {0})
        rounds = wanted // len(self._body) + 1
        for turn in range(rounds):
            base = len(answer.head) + turn * len(self._body)
            ends.extend(base + bound for bound in [*bounds, len(self._body)])
        return max((end for end in ends if end <= wanted), default=wanted)
