"""Checks over HTTP/1.1, as Envoy's ext_authz asks them: a fifth of what the same question costs over gRPC in Python.

`POST /check<path>` with the headers below; 200 lets the request go on, 429 is the answer to the client. What is not
understood gets 503, since only that is no refusal: the gateway lets the request pass and counts an error. `GET /ready`
is its health check. Nobody but the gateway can reach this port.

A question whose asker has hung up is not answered and takes no place: the gateway has waited long enough and let the
request pass. After a standstill there are hundreds of these, and their ends are told later than they are read.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from budget.core import replies
from budget.core.counts import Decision
from budget.core.descriptors import BadDescriptor, Check, check
from budget.log import say

PREFIX = "/check"
LONGEST_HEAD = 64 << 10
END = b"\r\n\r\n"
# Header of the question -> entry of a check.
ENTRIES = {"x-client": "client", "x-request-id": "id", "x-boot": "boot", "x-key-id": "key_id"}
REASONS = {200: "OK", 429: "Too Many Requests", 503: "Service Unavailable"}
BACKLOG = 4096  # after a standstill the gateway opens many at once


@dataclass(frozen=True)
class Reply:
    """What the gateway is told."""

    status: int = 200
    headers: Mapping[str, str] | None = None
    body: bytes = b""

    def dump(self) -> bytes:
        """As HTTP."""
        fields = "".join(f"{name}: {value}\r\n" for name, value in (self.headers or {}).items())
        length = f"content-length: {len(self.body)}\r\n"
        return f"HTTP/1.1 {self.status} {REASONS[self.status]}\r\n{fields}{length}\r\n".encode() + self.body

    @classmethod
    def to(cls, ask: Check, decision: Decision, wall_s: float) -> Reply:
        """What a decision means for this request."""
        told = replies.headers(decision, ask.path, ask.id, wall_s)
        if decision.refused:
            return cls(429, told, replies.body(decision, ask.path, ask.id))
        return cls(200, {**told, **replies.marks(decision)})


PASS, UNKNOWN = Reply(), Reply(503)
Answering = Callable[[Check], Reply]


class Checks:
    """The port."""

    def __init__(self, answer: Answering, missed: Callable[[], None], serving: Callable[[], bool]) -> None:
        self.answer, self.missed, self.serving = answer, missed, serving
        self.open_ones: set[asyncio.BaseTransport] = set()
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> None:
        """Listen. Raises OSError."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self), host, port, backlog=BACKLOG
        )

    def close(self) -> None:
        """No more questions: the gateway lets requests pass that were on their way."""
        if self._server is not None:
            self._server.close()
        for transport in list(self.open_ones):
            transport.close()


class Connection(asyncio.Protocol):
    """One connection of the gateway: question, answer, question, answer."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._transport: asyncio.Transport | None = None
        self._end = select.poll()
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._end.register(transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        self._checks.open_ones.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._checks.open_ones.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while (end := self._rest.find(END)) >= 0:
            head, self._rest = self._rest[:end], self._rest[end + len(END) :]
            if not self._reply(head):
                return
        if len(self._rest) > LONGEST_HEAD:
            self._hang_up()

    def _reply(self, head: bytes) -> bool:
        """Answer one question; False if that was the last on this connection."""
        first, *lines = head.decode(errors="replace").split("\r\n")
        words = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if len(words) != 3 or headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            self._hang_up()  # where its end is nobody knows
            return False
        if self._end.poll(0):
            self._checks.missed()
            return False  # connection_lost follows
        self._write(self._answer(words[1], headers))
        return True

    def _answer(self, target: str, headers: Mapping[str, str]) -> Reply:
        path = target.partition("?")[0]
        if path == "/ready":
            return PASS if self._checks.serving() else UNKNOWN
        if not path.startswith(PREFIX):
            return UNKNOWN
        entries = {entry: headers[name] for name, entry in ENTRIES.items() if name in headers}
        try:
            return self._checks.answer(check({"path": path[len(PREFIX) :], **entries}))
        except BadDescriptor:
            return UNKNOWN
        except Exception as error:  # noqa: BLE001 - no count is worth a request
            say("check failed", error=f"{type(error).__name__}: {error}")
            return PASS

    def _write(self, reply: Reply) -> None:
        if self._transport is not None:
            self._transport.write(reply.dump())

    def _hang_up(self) -> None:
        self._write(UNKNOWN)
        if self._transport is not None:
            self._transport.close()
