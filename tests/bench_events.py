"""What the filter of usage costs an event of a stream, on the product's configuration; part of `make bench-gateway`."""

from __future__ import annotations

import asyncio
import re
import statistics
import time
from collections.abc import Sequence

import aiohttp

from tests.contract.gateway.harness import CHAT, KEY, Gateway, Replica
from tests.eventually import eventually
from tests.ports import free_port

SMALL = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "How are you? " * 10}]}
STREAMS, EVENTS, EVERY_S = 10, 100, 0.01
ASKED = {**SMALL, "max_tokens": EVENTS, "stream": True}
USAGE_ON, USAGE_OFF = "LuaPerRoute, name: usage", "LuaPerRoute, disabled: true"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = (
    b'data: {"id":"chatcmpl-ab4a6d4e50201185","object":"chat.completion.chunk","created":%d,"model":"m","choices":'
    b'[{"index":0,"delta":{"content":"word"},"logprobs":null,"finish_reason":null,"token_ids":null}]'
    b',"usage":{"prompt_tokens":9,"total_tokens":%d,"completion_tokens":%d}}\n\n'
)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


class Timed(Gateway):
    """Its one replica says in each event when it wrote it, and runs in the loop of the clients."""

    def start_replicas(self, ready: bool = True) -> None:
        self.replicas = [Replica(slot, free_port(), self._gate_port) for slot in self.slots]
        for replica in self.replicas:
            replica.set_ready(ready)

    def switch_usage(self, on: bool) -> None:
        """The routes with the filter of usage or without it."""
        before = self.stat("http.ingress_http.rds.*update_success")
        text = self.rendered()["rds.yaml"]
        assert USAGE_ON in text
        self.publish("rds.yaml", text if on else text.replace(USAGE_ON, USAGE_OFF))
        eventually(lambda: self.stat("http.ingress_http.rds.*update_success") > before, 20)

    async def delays(self) -> list[float]:
        """From the replica to the client, in ms, of every event of a few streams."""
        server = await asyncio.start_server(_timed, self.slots[0].address, self._engine_port, limit=1 << 20)
        async with server, aiohttp.ClientSession() as session:
            each = await asyncio.gather(*(self._stream(session, number) for number in range(STREAMS)))
        return [delay for delays in each for delay in delays]

    async def _stream(self, session: aiohttp.ClientSession, number: int) -> list[float]:
        await asyncio.sleep(number * EVERY_S / STREAMS)  # they do not write at the same moment
        found: list[float] = []
        headers = {"authorization": f"Bearer {KEY}"}
        async with session.post(f"http://127.0.0.1:{self.port}{CHAT}", json=ASKED, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            async for piece in answer.content.iter_any():
                now = time.monotonic_ns()
                found += [(now - int(sent)) / 1e6 for sent in re.findall(rb'"created":(\d+)', piece)]
        return found


async def _timed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One stream of one connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    await reader.readexactly(int(length[1]) if length else 0)
    writer.write(HEAD)
    for index in range(1, EVENTS + 1):
        await asyncio.sleep(EVERY_S)
        event = EVENT % (time.monotonic_ns(), 9 + index, index)
        writer.write(b"%x\r\n%s\r\n" % (len(event), event))
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    writer.close()


def per_event(gateway: Timed, rounds: int = 6) -> str:
    """The delay of an event with and without the filter of usage, in turns; medians of the rounds."""
    found: dict[bool, list[list[float]]] = {False: [], True: []}
    for _ in range(rounds):
        for on in found:
            gateway.switch_usage(on)
            delays = asyncio.run(gateway.delays())
            assert len(delays) == STREAMS * EVENTS, len(delays)
            found[on].append([percentile(delays, 0.5), percentile(delays, 0.99)])
    without, with_it = ([statistics.median(column) for column in zip(*found[on], strict=True)] for on in found)
    ratio = with_it[0] / without[0]
    return (
        f"Delay of an event with usage ({STREAMS} streams, 10 ms apart, {rounds} rounds each): without the filter "
        f"p50 {without[0]:.3f} ms, p99 {without[1]:.2f}; with it, and usage hidden, p50 {with_it[0]:.3f} "
        f"(x {ratio:.2f}), p99 {with_it[1]:.2f}."
    )
