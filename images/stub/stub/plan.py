"""What an answer will be, settled before its first token: which tokens, how many, what each is, and why it ends."""

from __future__ import annotations

from bisect import bisect_right
from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stub.prose import Answer, Speaker
from stub.structured import forced_text
from stub.tokenizer import EOS, Tokenizer
from stub.tools import Call
from stub.v4 import CALL, CALL_END, THINK_END

CONTENT, REASONING, MARKUP = "content", "reasoning", "markup"  # of markup a client sees nothing
_BY_ITSELF = ("stop", "tool_calls")


@dataclass(frozen=True)
class Wish:
    """What a request wants besides words."""

    thinking: bool = False
    calls: tuple[Call, ...] = ()


WORDS = Wish()


@dataclass(frozen=True)
class Spans:
    """Which part of an answer its tokens belong to: `kinds[i]` begins at `starts[i]`; a call is told by its index."""

    starts: Sequence[int] = (0,)
    kinds: Sequence[str | int] = (CONTENT,)

    def kind(self, index: int) -> str | int:
        """The part of the token at a place."""
        return self.kinds[bisect_right(self.starts, index) - 1]


_WORDS_ONLY = Spans()


@dataclass(frozen=True)
class Plan:
    """One answer: `length` tokens; `texts` overrides what they read as (a stop string cuts a token in two)."""

    answer: Answer
    length: int
    finish_reason: str
    stop_reason: str | None = None
    texts: Sequence[str] | None = None
    spans: Spans = _WORDS_ONLY
    calls: tuple[Call, ...] = ()

    def token(self, index: int) -> int:
        """The token at a place; the last one of an answer that ends by itself is end-of-text."""
        ends = index == self.length - 1 and self.finish_reason in _BY_ITSELF and self.stop_reason is None
        return EOS if ends else self.answer.token(index)

    def kind(self, index: int) -> str | int:
        """What the token at a place is a part of."""
        return CONTENT if self.spans is _WORDS_ONLY else self.spans.kind(index)

    def begins(self, index: int) -> bool:
        """Whether a part begins with this token."""
        return index in self.spans.starts


class Planner:
    """Makes plans; what a plan reads as is asked here too, since it takes the tokenizer."""

    def __init__(self, tokenizer: Tokenizer, default_length: int) -> None:
        self._tokenizer = tokenizer
        self._speaker = Speaker(tokenizer)
        self._default_length = default_length
        self._texts = [tokenizer.decode([token]) for token in range(tokenizer.size)]
        self._texts[EOS] = ""

    def plan(
        self, prompt: str, values: Mapping[str, Any], choice: int, limit: int, open_ended: bool, wish: Wish = WORDS
    ) -> Plan:
        """The answer to a prompt: at most `limit` tokens; an open-ended one ends by itself after the default length."""
        answer = self._speaker.answer(prompt, values["seed"], choice)
        forced = None if wish.calls else forced_text(values)
        natural: int | None = None
        if forced is not None:
            answer = Answer(self._tokenizer.encode(forced), answer.body, answer.offset)
            natural = len(answer.head)
        elif open_ended:
            natural = self._speaker.natural_length(answer, self._default_length - 1)
        answer, spans, before = self._staged(answer, wish)
        natural = len(answer.head) if wish.calls else None if natural is None else natural + before
        if natural is None or natural >= limit or values["ignore_eos"]:
            plan = Plan(answer, limit, "length", None, None, spans, wish.calls)
        else:
            reason = "tool_calls" if wish.calls else "stop"
            plan = Plan(answer, natural + 1, reason, None, None, spans, wish.calls)
        if forced is not None and not forced.isascii():
            plan = _with_texts(plan, self._read_together(plan))
        return self._cut(plan, values) if values["stop"] else plan

    def _staged(self, answer: Answer, wish: Wish) -> tuple[Answer, Spans, int]:
        """Put the thinking before an answer, and calls in the place of its words."""
        if not wish.thinking and not wish.calls:
            return answer, _WORDS_ONLY, 0
        encode = self._tokenizer.encode
        parts: list[tuple[str | int, list[int]]] = []
        if wish.thinking:
            parts = [(REASONING, self._speaker.thought), (MARKUP, encode(THINK_END))]
        before = sum(len(tokens) for _, tokens in parts)
        for index, call in enumerate(wish.calls):
            parts.append((MARKUP, encode(CALL.format(name=call.name))))
            parts += [(index, encode(call.arguments)), (MARKUP, encode(CALL_END))]
        starts: list[int] = []
        kinds: list[str | int] = []
        head: list[int] = []
        for kind, tokens in parts:
            starts.append(len(head))
            kinds.append(kind)
            head += tokens
        if not wish.calls:
            starts.append(len(head))
            kinds.append(CONTENT)
            head += answer.head
        return Answer(head, answer.body, answer.offset), Spans(starts, kinds), before

    def text(self, plan: Plan, index: int) -> str:
        """What the token at a place reads as; nothing for markup."""
        if plan.texts is not None:
            return plan.texts[index]
        return "" if plan.kind(index) == MARKUP else self._texts[plan.token(index)]

    def whole(self, plan: Plan, kind: str | int = CONTENT) -> str:
        """The text of one part of the whole answer."""
        return "".join(self.text(plan, index) for index in range(plan.length) if plan.kind(index) == kind)

    def calls(self, plan: Plan) -> list[tuple[int, Call]]:
        """The calls that the answer got to, with as much of their arguments as there is."""
        reached = [kind for start, kind in zip(plan.spans.starts, plan.spans.kinds, strict=True) if start < plan.length]
        return [
            (kind, Call(plan.calls[kind].name, self.whole(plan, kind))) for kind in reached if isinstance(kind, int)
        ]

    def _read_together(self, plan: Plan) -> list[str]:
        """Texts of tokens that may hold parts of a character: each character comes with its last byte."""
        decoder = getincrementaldecoder("utf-8")("replace")
        return [
            "" if (token := plan.token(index)) == EOS else decoder.decode(self._tokenizer.token_bytes(token))
            for index in range(plan.length)
        ]

    def _cut(self, plan: Plan, values: Mapping[str, Any]) -> Plan:
        """End a plan at the first stop string in its words."""
        texts = [self.text(plan, index) for index in range(plan.length)]
        words = [text if plan.kind(index) == CONTENT else "" for index, text in enumerate(texts)]
        whole = "".join(words)
        places = [(whole.find(stop) + len(stop), stop) for stop in values["stop"] if stop in whole]
        if not places:
            return plan
        end, stop = min(places)
        visible = end if values["include_stop_str_in_output"] else end - len(stop)
        kept: list[str] = []
        place = 0
        for text, word in zip(texts, words, strict=True):
            kept.append(word[: max(0, visible - place)] if word else text)
            place += len(word)
            if place >= end:
                break
        return Plan(plan.answer, len(kept), "stop", stop, kept, plan.spans, plan.calls)


def _with_texts(plan: Plan, texts: Sequence[str]) -> Plan:
    return Plan(plan.answer, plan.length, plan.finish_reason, plan.stop_reason, texts, plan.spans, plan.calls)


def shortened(plan: Plan, length: int) -> Plan:
    """A plan that the server cut after so many tokens."""
    return Plan(plan.answer, length, "abort", None, plan.texts, plan.spans, plan.calls)
