"""The service's page: `/metrics` for Prometheus, `/state` for the control program, `/usage` of today, `/ready`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from budget.log import say

LONGEST_S = 10.0
REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 500: "Internal Server Error"}
REASONS[503] = "Service Unavailable"


@dataclass(frozen=True)
class Answer:
    """One answer."""

    status: int
    kind: str
    body: bytes


Show = Callable[[dict[str, str]], Answer]


def text(status: int, words: str) -> Answer:
    """A short one."""
    return Answer(status, "text/plain; charset=utf-8", words.encode() + b"\n")


class Page:
    """HTTP for GET, in the loop that owns the counts: what is shown is never half changed."""

    def __init__(self, shows: dict[str, Show]) -> None:
        self._shows = shows
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> None:
        """Listen. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=16384)

    def close(self) -> None:
        """No new connections."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request per connection."""
        with suppress(OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LONGEST_S)
            answer = self._answer(head.split(b"\r\n", 1)[0].decode("latin-1"))
            reason = REASONS[answer.status]
            fields = f"content-type: {answer.kind}\r\ncontent-length: {len(answer.body)}\r\nconnection: close\r\n"
            writer.write(f"HTTP/1.1 {answer.status} {reason}\r\n{fields}\r\n".encode() + answer.body)
            await asyncio.wait_for(writer.drain(), LONGEST_S)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    def _answer(self, line: str) -> Answer:
        words = line.split(" ")
        if len(words) != 3:
            return text(400, "not HTTP")
        if words[0] != "GET":
            return text(405, "only GET")
        try:
            target = urlsplit(words[1])
            show = self._shows.get(target.path)
            asked = {name: values[-1] for name, values in parse_qs(target.query).items()}
            return show(asked) if show else text(404, "not found")
        except ValueError as error:
            return text(400, str(error))
        except Exception as error:  # noqa: BLE001 - a page that cannot be shown is no reason to stop counting
            say("page failed", path=words[1][:80], error=f"{type(error).__name__}: {error}")
            return text(500, "the page could not be made")
