"""Load for tests: long streams and a steady rate of short requests, judged one by one.

A stream is whole when its last event is `[DONE]` and it carries as many text pieces as were asked for.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp


@dataclass(frozen=True)
class Target:
    """A gateway and a key. `url` ends in /v1."""

    url: str
    key: str
    model: str = "deepseek-v4-flash"

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}

    def body(self, tokens: int, stream: bool) -> dict[str, object]:
        message = {"role": "user", "content": "Count."}
        return {
            "model": self.model,
            "messages": [message],
            "max_tokens": tokens,
            "stream": stream,
            "ignore_eos": True,
        }


@dataclass
class Outcomes:
    """What each request came to: `ok`, or words that say how it failed."""

    streams: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    started: list[float] = field(default_factory=list)
    failures: list[tuple[float, str]] = field(default_factory=list)  # seconds since start of sending, words


async def stream_once(session: aiohttp.ClientSession, target: Target, tokens: int, opened: Callable[[], None]) -> str:
    """Read one stream to its end and say whether it was whole."""
    try:
        async with session.post(f"{target.url}/chat/completions", json=target.body(tokens, True)) as answer:
            if answer.status != 200:
                return f"{answer.status} {(await answer.text())[:160]}"
            return await _read_events(answer, tokens, opened)
    except (aiohttp.ClientError, asyncio.TimeoutError) as error:
        return f"{type(error).__name__}: {error}"


async def _read_events(answer: aiohttp.ClientResponse, tokens: int, opened: Callable[[], None]) -> str:
    pieces, done = 0, False
    async for line in answer.content:
        if not line.startswith(b"data: "):
            continue
        if line.strip() == b"data: [DONE]":
            done = True
            continue
        event = json.loads(line[6:])
        if "error" in event:
            return f"error event: {event['error']}"
        if any(choice["delta"].get("content") for choice in event["choices"]):
            pieces += 1
            if pieces == 1:
                opened()
    return "ok" if done and pieces == tokens else f"cut: {pieces} of {tokens} pieces, done={done}"


async def request_once(session: aiohttp.ClientSession, target: Target, tokens: int = 1) -> str:
    """Send one short request and say what it came to."""
    try:
        async with session.post(f"{target.url}/chat/completions", json=target.body(tokens, False)) as answer:
            text = await answer.text()
            return "ok" if answer.status == 200 else f"{answer.status} {text[:160]}"
    except (aiohttp.ClientError, asyncio.TimeoutError) as error:
        return f"{type(error).__name__}: {error}"


class Load:
    """Runs streams and a steady rate in a thread of its own while a test does something to the stack.

    with Load(target, streams=20, tokens=200, rate=100) as load:
        load.wait_until_streaming()
        ... the event ...
    load.outcomes is complete after the block: it waits for every stream and every request.
    """

    def __init__(self, target: Target, streams: int = 0, tokens: int = 100, rate: float = 0.0) -> None:
        self.target, self.streams, self.tokens, self.rate = target, streams, tokens, rate
        self.outcomes = Outcomes()
        self._open = 0
        self._stop = threading.Event()
        self._all_open = threading.Event()
        self._all_answered = threading.Event()
        self.began = 0.0  # clock time at which `at` of outcomes begins to count
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=240)
        assert not self._thread.is_alive(), "load did not end within 240 s"

    def wait_until_streaming(self, within_s: float = 60) -> None:
        """Return once every stream has delivered its first text."""
        assert self._all_open.wait(within_s), f"{self._open} of {self.streams} streams open after {within_s} s"

    def stop_sending(self) -> None:
        self._stop.set()

    def wait_until_answered(self, within_s: float = 60) -> None:
        """Return once no short request is on its way any more; needs stop_sending."""
        assert self._all_answered.wait(within_s), f"requests without an answer after {within_s} s"

    def _opened(self) -> None:
        self._open += 1
        if self._open >= self.streams:
            self._all_open.set()

    async def _run(self) -> None:
        # A connection per request: each one meets the gateway as a new client would.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        timeout = aiohttp.ClientTimeout(total=220, sock_connect=30)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=self.target.headers) as session:
            long = [asyncio.create_task(self._stream(session)) for _ in range(self.streams)]
            short = await self._send_steadily(session)
            await asyncio.gather(*short)
            self._all_answered.set()
            await asyncio.gather(*long)

    async def _send_steadily(self, session: aiohttp.ClientSession) -> list[asyncio.Task[None]]:
        tasks: list[asyncio.Task[None]] = []
        begin, self.began = time.monotonic(), time.time()
        while not self._stop.is_set():
            if self.rate and len(tasks) < (time.monotonic() - begin) * self.rate:
                tasks.append(asyncio.create_task(self._request(session, time.monotonic() - begin)))
            else:
                await asyncio.sleep(0.002)
        return tasks

    async def _stream(self, session: aiohttp.ClientSession) -> None:
        self.outcomes.streams[await stream_once(session, self.target, self.tokens, self._opened)] += 1

    async def _request(self, session: aiohttp.ClientSession, at: float) -> None:
        outcome = await request_once(session, self.target)
        self.outcomes.started.append(at)
        self.outcomes.requests[outcome] += 1
        if outcome != "ok":
            self.outcomes.failures.append((at, outcome))
