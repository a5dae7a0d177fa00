"""A replica whose answers a test chooses by headers: how many events, how far apart, and how they end."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import suppress

from aiohttp import web

PROMPT = 11


def event(number: int) -> bytes:
    """One token, with the usage so far."""
    usage = {"prompt_tokens": PROMPT, "completion_tokens": number, "total_tokens": PROMPT + number}
    return b"data: " + json.dumps({"choices": [{}], "usage": usage}, separators=(",", ":")).encode() + b"\n\n"


async def answer(request: web.Request) -> web.StreamResponse:
    asked = request.headers
    await request.read()
    count, pause_s = int(asked.get("x-events", 20)), float(asked.get("x-pause-s", 0))
    if "x-status" in asked:
        return web.Response(status=int(asked["x-status"]), text="{}")
    if "x-json" in asked:
        return web.Response(body=event(count)[6:], content_type="application/json")
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await asyncio.sleep(float(asked.get("x-first-s", 0)))
    with suppress(ConnectionError):
        await response.prepare(request)
        for number in range(1, count + 1):
            await response.write(event(number))
            if number == int(asked.get("x-reset", 0)):
                await asyncio.sleep(0.05)  # so that what was written is on its way
                assert request.transport is not None
                request.transport.abort()
                return response
            await asyncio.sleep(pause_s)
        await response.write(b"data: [DONE]\n\n")
    return response


class Replica:
    """In a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(10)

    async def _open(self) -> int:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1024)
        await site.start()
        port: int = self._runner.addresses[0][1]
        return port

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
