"""A job meets the engine: waiting for the whole answer, or sending it token by token; and clients that go away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from stub.engine import Aborted, Engine, EngineDead, Gone, Sequence
from stub.errors import internal
from stub.job import Choice, Job
from stub.plan import shortened
from stub.service import Service
from stub.shapes import Shape
from stub.wire import dump

_INTERVAL = "--sse-keep-alive-interval"


class Watch:
    """Cancels the sequences of a request as soon as its client is gone."""

    def __init__(self, engine: Engine, sequences: Iterable[Sequence], receive: Receive) -> None:
        self._engine, self._sequences, self._receive = engine, list(sequences), receive

    async def __aenter__(self) -> None:
        self._task = asyncio.ensure_future(self._until_gone())

    async def __aexit__(self, *exc: object) -> None:
        self._task.cancel()
        self._cancel()  # nothing is left in the engine, however the request ended

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._cancel()

    def _cancel(self) -> None:
        for sequence in self._sequences:
            if sequence.produced < sequence.length:
                self._engine.cancel(sequence)


def submit(service: Service, job: Job) -> None:
    """Queue all sequences of a job; a dead engine takes none, and neither does one that drains with an open port."""
    if service.draining:
        raise internal("cannot schedule new futures after shutdown")
    try:
        for choice in job.choices:
            service.engine.submit(choice.sequence)
    except EngineDead:
        raise internal(service.release.engine_lost) from None


async def answer(service: Service, job: Job, shape: Shape, receive: Receive) -> Response:
    """The answer to a request that is no stream."""
    submit(service, job)
    async with Watch(service.engine, [choice.sequence for choice in job.choices], receive):
        try:
            for choice in job.choices:
                await _whole(choice)
        except EngineDead:
            raise internal(service.release.engine_lost) from None
        except Gone:
            return Response(b"null", media_type="application/json")  # unread; counted as 2xx, as in 0.26.0
    return Response(dump(shape.whole()), media_type="application/json")


async def _whole(choice: Choice) -> None:
    try:
        await choice.sequence.reach(choice.plan.length)
    except Aborted:
        choice.plan = shortened(choice.plan, choice.sequence.produced)


class EventStream(Response):
    """The answer as server-sent events; status and headers go out at once, even while the request is queued."""

    media_type = "text/event-stream"

    def __init__(self, service: Service, job: Job, shape: Shape) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self.init_headers()
        del self.headers["content-length"]
        self._service, self._job, self._shape = service, job, shape

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with Watch(self._service.engine, [choice.sequence for choice in self._job.choices], receive):
            keeper = asyncio.ensure_future(self._keep_alive(send)) if _INTERVAL in self._service.flags else None
            try:
                await self._send_all(send)
            except Gone:
                return
            finally:
                if keeper:
                    keeper.cancel()

    async def _send_all(self, send: Send) -> None:
        faults, sent = self._service.faults, 0
        async for chunk in self._chunks():
            if faults.cut_after is not None and sent >= faults.cut_after:
                return  # an answer without an end: the connection is closed
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            sent += 1
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _keep_alive(self, send: Send) -> None:
        """Comments while nothing is there yet, in releases that have the flag."""
        interval_s = self._service.flags[_INTERVAL]
        while interval_s and not any(choice.sequence.produced for choice in self._job.choices):
            await asyncio.sleep(interval_s)
            if not any(choice.sequence.produced for choice in self._job.choices):
                await send({"type": "http.response.body", "body": b": keep-alive\n\n", "more_body": True})

    async def _chunks(self) -> AsyncIterator[bytes]:
        for chunk in self._shape.begin():
            yield chunk
        try:
            async for chunk in self._tokens():
                yield chunk
        except EngineDead:
            for chunk in self._shape.lost(self._service.release.engine_lost):
                yield chunk
            return
        for chunk in self._shape.end():
            yield chunk

    async def _tokens(self) -> AsyncIterator[bytes]:
        choices = self._job.choices
        if len(choices) == 1:
            async for chunk in self._choice(choices[0]):
                yield chunk
            return
        async for chunk in _merged([self._choice(choice) for choice in choices]):
            yield chunk

    async def _choice(self, choice: Choice) -> AsyncIterator[bytes]:
        sequence, shape, sent = choice.sequence, self._shape, 0
        while sent < choice.plan.length:
            try:
                await sequence.reach(sent + 1)
            except Aborted:
                choice.plan = shortened(choice.plan, sent)
                for chunk in shape.aborted(choice):
                    yield chunk
                return
            if not sent:
                for chunk in shape.opening(choice):
                    yield chunk
            for index in range(sent, sequence.produced):
                for chunk in shape.token(choice, index):
                    yield chunk
                sent = index + 1


async def _merged(sources: list[AsyncIterator[bytes]]) -> AsyncIterator[bytes]:
    """What several streams say, in the order in which they say it."""
    queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()

    async def forward(source: AsyncIterator[bytes]) -> None:
        try:
            async for chunk in source:
                queue.put_nowait(chunk)
            queue.put_nowait(None)
        except (EngineDead, Gone) as error:
            queue.put_nowait(error)

    tasks = [asyncio.ensure_future(forward(source)) for source in sources]
    try:
        left = len(tasks)
        while left:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                left -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
