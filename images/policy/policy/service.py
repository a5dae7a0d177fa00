"""One call of Envoy for one request: take the body in, have it judged, hand it back byte for byte or refuse it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc

from policy import messages, refusals
from policy.admission import NoRoom, Room
from policy.body import Body
from policy.config import AT_ONCE, SMALL_BODY
from policy.encodings import BadEncoding, Decoder, decoder_of
from policy.judge import Violation
from policy.judge_apart import Apart, TooComplex
from policy.judgement import NOTHING, Judgement, Question, judge
from policy.log import place_of, say
from policy.messages import Head
from policy.metrics import Metrics
from policy.onward import Onward
from policy.rulebook import Rulebook
from policy.truncation import UNCHANGED, Fitted, Truncator

JSON_LIKE = ("", "application/json")


@dataclass(frozen=True)
class Parts:
    """What the calls of one worker share."""

    book: Callable[[], Rulebook]
    room: Room
    medium: Apart  # judges of bodies that are too large to do it at once
    large: Apart
    truncator: Truncator
    metrics: Metrics
    upload_wait_s: float


class PolicyService(external_processor_pb2_grpc.ExternalProcessorServicer):  # type: ignore[misc]
    """Envoy's external processor."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def Process(self, requests: Any, context: Any) -> None:
        """One request. Whatever goes wrong here, Envoy lets nothing pass unjudged."""
        call = Call(self._parts, context)
        try:
            await call.run()
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001 - gRPC would log its text, which may repeat the body
            say("call failed", kind=type(error).__name__, place=place_of(error))
            await context.abort(grpc.StatusCode.INTERNAL, "the policy service failed")
        finally:
            call.close()


class Call:
    """The state of one request."""

    def __init__(self, parts: Parts, context: Any) -> None:
        self._parts, self._context = parts, context
        self._book = parts.book()  # one version of the rules for the whole request
        self._ticket = parts.room.ticket(time.monotonic())
        self._body = Body()
        self._trailers = False
        self._reader: asyncio.Future[Any] | None = None

    def close(self) -> None:
        """Give everything back."""
        self._body.close()
        self._ticket.release()
        if self._reader is not None and not self._reader.done():
            self._reader.cancel()

    async def run(self) -> None:
        """From the headers to the last piece."""
        first = await self._context.read()
        if first is grpc.aio.EOF or not first.HasField("request_headers"):
            await self._unfinished()
        head = Head.read(first)
        judgement = NOTHING
        try:
            decoder = self._accept(head)
            if not head.ended and not await self._take_in(head, decoder):
                await self._unfinished()
            judgement = await self._judge(head)
        except refusals.Refused as refused:
            await self._refuse(head, refused.violation, judgement)
            return
        violation = judgement.violation
        if violation is not None and not (self._book.observe and refusals.may_pass(violation)):
            await self._refuse(head, violation, judgement)
            return
        await self._pass_on(head, judgement, decoder is not None)

    async def _unfinished(self) -> None:
        """Never end a call well that was not answered: Envoy might let the request go on."""
        await self._context.abort(grpc.StatusCode.CANCELLED, "the request is not complete")

    def _accept(self, head: Head) -> Decoder | None:
        """What can be told from the headers; the decoder of a compressed body."""
        if head.media_type not in JSON_LIKE and not head.media_type.endswith("+json") and not self._book.observe:
            raise refusals.Refused(refusals.media_type())
        if head.length is not None and head.length > self._most:
            raise refusals.Refused(refusals.too_large(self._most))
        decoder = decoder_of(head.encoding) if head.encoding else None
        if head.encoding and decoder is None:
            raise refusals.Refused(refusals.encoding(head.encoding))
        return decoder

    @property
    def _most(self) -> int:
        return min(self._book.max_body_bytes, self._parts.room.large)

    # ---- taking in

    async def _take_in(self, head: Head, decoder: Decoder | None) -> bool:
        """Read the whole body; False if the client left before its end."""
        declared = head.length if decoder is None else None
        try:
            if declared is not None and declared >= SMALL_BODY:
                await self._enlarge(declared)
            while (message := await self._read()) is not grpc.aio.EOF:
                self._trailers = message.HasField("request_trailers")
                for piece in _opened(message.request_body.body, decoder):
                    await self._add(piece)
                    if decoder:
                        await asyncio.sleep(0)  # a few bytes may unfold into many pieces: others come between
                if self._trailers or message.request_body.end_of_stream:
                    self._complete(decoder)
                    return True
        except NoRoom:
            raise refusals.Refused(refusals.no_room()) from None
        except BadEncoding:
            raise refusals.Refused(refusals.bad_encoding(head.encoding)) from None
        return False

    def _complete(self, decoder: Decoder | None) -> None:
        if decoder is not None:
            decoder.finish()
        self._ticket.complete()
        self._count()

    async def _read(self) -> Any:
        """The next message, or Refused when others need the place and this upload stands still."""
        self._reader = asyncio.ensure_future(self._context.read())
        await asyncio.wait((self._reader, self._ticket.evicted), return_when=asyncio.FIRST_COMPLETED)
        if not self._reader.done():
            self._parts.metrics.evicted.inc()
            raise refusals.Refused(refusals.too_slow())
        return self._reader.result()

    async def _add(self, piece: bytes) -> None:
        size = self._body.size + len(piece)
        if size > self._most:
            raise refusals.Refused(refusals.too_large(self._most))
        if size >= SMALL_BODY and not self._ticket.reserved:
            await self._enlarge(self._most)
        if size > self._ticket.reserved > 0:  # more than content-length said; Envoy lets none such through
            raise refusals.Refused(refusals.too_large(self._ticket.reserved))
        self._ticket.grow(len(piece))
        self._body.append(piece)

    async def _enlarge(self, need: int) -> None:
        self._body.spill()
        self._count()
        await self._ticket.enlarge(need, time.monotonic, self._parts.upload_wait_s)
        self._count()

    def _count(self) -> None:
        self._parts.metrics.bodies_waiting.set(self._parts.room.waiting)
        self._parts.metrics.bytes_held.set(self._parts.room.held)

    # ---- judging

    async def _judge(self, head: Head) -> Judgement:
        begun = time.perf_counter()
        try:
            return await self._verdict(head)
        except (TooComplex, MemoryError, RecursionError):
            raise refusals.Refused(refusals.too_complex()) from None
        finally:
            seconds = time.perf_counter() - begun
            self._parts.metrics.judge_seconds.labels(self._book.route(head.path)).observe(seconds)

    async def _verdict(self, head: Head) -> Judgement:
        book, body = self._book, self._body
        wishes = replace(book.wishes, session=head.session) if head.session else book.wishes
        question = Question(head.path, head.models, wishes)
        if body.size < AT_ONCE:
            return judge(book.rules, question, body.whole())
        apart = self._parts.large if body.size >= SMALL_BODY else self._parts.medium
        return await apart.judge(book, question, body)

    # ---- answering

    async def _refuse(self, head: Head, violation: Violation, judgement: Judgement) -> None:
        self._record(head, "refused", violation.rule)
        body = self._book.error(violation, head.path, head.request_id)
        metadata = messages.facts(_request(judgement, "refused", violation))
        after = refusals.RETRY_AFTER_S.get(violation.status, 0)
        await self._context.write(messages.refusal(violation.status, body, violation.rule, after, metadata))

    async def _pass_on(self, head: Head, judgement: Judgement, decoded: bool) -> None:
        violation, onward = judgement.violation, judgement.onward
        fitted = UNCHANGED if violation else await self._fit(head, judgement)
        verdict = "would_refuse" if violation else "ok"
        self._record(head, verdict, violation.rule if violation else "")
        changed = self._change(onward, fitted) or decoded
        told = {**_request(judgement, verdict, violation, fitted.turns), **onward.facts(self._book.context)}
        length = self._body.size if changed else None
        await self._context.write(messages.headers(messages.facts(told), length, onward.affinity))
        if not head.ended:
            await self._send()
        if self._trailers:
            await self._context.write(messages.trailers())

    async def _fit(self, head: Head, judgement: Judgement) -> Fitted:
        truncator = self._parts.truncator
        if not truncator.concerns(self._book, head.path, self._body.size):
            return UNCHANGED
        return await truncator.fit(self._book, head.path, self._body.whole(), judgement.facts.max_tokens)

    def _change(self, onward: Onward, fitted: Fitted) -> bool:
        """Make the body what will be sent: shorter by turns, longer by fields; False if it stays as it is."""
        if fitted.raw is not None:
            self._body.close()
            self._body = Body()
            self._body.append(fitted.raw)
        if onward.added:
            # What a conversation is called stays as it was judged: dropped turns would move it from replica to replica.
            at = onward.at if fitted.raw is None else onward.place(fitted.raw)
            self._body.insert(at, onward.added.encode())
        return bool(onward.added) or fitted.raw is not None

    async def _send(self) -> None:
        left = self._body.size
        for piece in self._body.pieces():
            left -= len(piece)
            await self._context.write(messages.piece(piece, last=not left and not self._trailers))

    def _record(self, head: Head, verdict: str, rule: str) -> None:
        self._parts.metrics.requests.labels(self._book.route(head.path), verdict, rule).inc()


def _opened(data: bytes, decoder: Decoder | None) -> Iterable[bytes]:
    return decoder.feed(data) if decoder and data else (data,)


def _request(judgement: Judgement, verdict: str, violation: Violation | None, turns: int = 0) -> dict[str, Any]:
    """What the gateway's log is told."""
    facts = judgement.facts
    return {
        "model": facts.model,
        "max_tokens": facts.max_tokens,
        "stream": facts.stream,
        "verdict": verdict,
        "param": violation.param if violation else None,
        "rule": violation.rule if violation else None,
        "truncated_turns": turns,
        "truncated": f"turns={turns}" if turns else None,
    }
