"""`on_overflow: truncate`: makes a prompt that is longer than the context fit, keeping its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass

import orjson

from policy import overflow
from policy.config import MIB
from policy.metrics import Metrics
from policy.rulebook import Rulebook
from policy.splice import Source, Span
from policy.tokens import CannotCount, Tokenizer

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
LARGEST = 4 * MIB  # a longer body passes as it is: each count would send it all
ALTOGETHER_S = 6.0  # for all counts of one request
DEFAULT_OUTPUT = {CHAT: 1, COMPLETIONS: 16}  # tokens that an answer takes when the request does not say
CUT = "truncate_prompt_tokens"
# Fields of a chat request that shape its prompt; /tokenize takes them under the same names.
SHAPING = ("model", "tools", "chat_template", "chat_template_kwargs", "add_generation_prompt", "continue_final_message")
KEPT = (*SHAPING, CUT)


@dataclass(frozen=True)
class Message(Span):
    """One message: where it stands, and what has to be known of it."""

    role: str = ""
    text_only: bool = True

    @classmethod
    def of(cls, span: Span) -> Message:
        given = span.value if isinstance(span.value, dict) else {}
        content = given.get("content")
        parts = content if isinstance(content, list) else []
        others = any(isinstance(part, dict) and part.get("type") != "text" for part in parts)
        return cls(span.start, span.end, role=str(given.get("role")), text_only=not others)


@dataclass(frozen=True)
class Fitted:
    """The body to send on; None: as the client sent it."""

    raw: bytes | None = None
    turns: int = 0


UNCHANGED = Fitted()


class Truncator:
    """Rewrites bodies; one is read at a time, since that may take many times its size."""

    def __init__(self, metrics: Metrics, tokenizer: Tokenizer) -> None:
        self._metrics = metrics
        self._tokenizer = tokenizer
        self._reading = asyncio.Semaphore(1)
        self._counting = asyncio.Semaphore(4)

    def concerns(self, book: Rulebook, path: str, size: int) -> bool:
        """Whether a body may have to be cut; it is read only then."""
        if not book.truncate or path not in DEFAULT_OUTPUT:
            return False
        if size > LARGEST:
            self._metrics.not_truncated.labels("too_large").inc()
            return False
        return True

    async def fit(self, book: Rulebook, path: str, raw: bytes, asked: int | None) -> Fitted:
        """A judged body that fits, if it can be made to. `asked` is how long the answer may become."""
        output = max(1, asked or DEFAULT_OUTPUT[path])
        async with self._reading:
            reading = asyncio.to_thread(_read, raw, path) if len(raw) > MIB // 4 else None
            source, messages = await reading if reading else _read(raw, path)
        if path == COMPLETIONS:
            return _cut(source, len(raw), book.context, output)
        plain = source.value("chat_template") is None and all(message.text_only for message in messages)
        tools = bool(source.value("tools"))
        if plain and overflow.surely_fits(len(raw), len(messages), tools, output, book.context):
            return UNCHANGED
        groups = overflow.turns([message.role for message in messages])
        async with self._counting:
            dropped = await self._search(book, source, messages, groups, book.context - output)
        if not dropped:
            return UNCHANGED
        self._metrics.truncated.inc(dropped)
        return Fitted(source.with_elements("messages", _kept(messages, groups, dropped)), dropped)

    async def _search(
        self, book: Rulebook, source: Source, messages: list[Message], groups: list[list[int]], room: int
    ) -> int:
        """How many turns to drop; 0 also when nothing helps or nobody can count."""
        if not groups:
            return 0
        sizes = [sum(messages[index].end - messages[index].start for index in group) for group in groups]
        counted: dict[int, int] = {}
        until = time.monotonic() + ALTOGETHER_S
        while isinstance(asked := overflow.step(sizes, len(source.text), room, counted), overflow.Ask):
            try:
                if time.monotonic() > until:
                    raise CannotCount("slow")
                body = _question(book, source, _kept(messages, groups, asked.dropped))
                counted[asked.dropped] = await self._tokenizer.count(book.tokenize_url, body)
            except CannotCount as reason:
                self._metrics.not_truncated.labels(str(reason)).inc()
                return min((dropped for dropped, tokens in counted.items() if tokens <= room), default=0)
        if asked.dropped is None:
            self._metrics.not_truncated.labels("last_turn").inc()
        return asked.dropped or 0


def _read(raw: bytes, path: str) -> tuple[Source, list[Message]]:
    source = Source.read(raw, KEPT)
    return source, [Message.of(span) for span in source.elements("messages")] if path == CHAT else []


def _kept(messages: list[Message], groups: list[list[int]], dropped: int) -> list[Message]:
    gone: Collection[int] = {index for group in groups[:dropped] for index in group}
    return [message for index, message in enumerate(messages) if index not in gone]


def _question(book: Rulebook, source: Source, messages: list[Message]) -> bytes:
    """The request to /tokenize, from the client's own text."""
    fields = {name: source.slice(source.members[name]) for name in SHAPING if source.value(name) is not None}
    fields.setdefault("model", orjson.dumps(book.served_model).decode())
    fields["messages"] = f"[{','.join(source.slice(message) for message in messages)}]"
    return ("{" + ",".join(f'"{name}":{text}' for name, text in fields.items()) + "}").encode()


def _cut(source: Source, size: int, context: int, output: int) -> Fitted:
    """The engine cuts a plain prompt itself when it is told to."""
    room = context - output
    if source.value(CUT) is not None or room < 1 or overflow.surely_fits(size, 0, False, output, context):
        return UNCHANGED
    return Fitted(source.with_number(CUT, room))
