"""A replica for tests: an OpenAI-like server and a gate in one process, with a record of what it was asked.

    python fake_replica.py NAME ADDRESS ENGINE_PORT GATE_PORT

The body of a request says how to answer: `max_tokens` and `stream` as usual, and `act`:
  refuse: 503; echo: 400 that repeats the body; lose: read the request and drop the connection; hang: never
  answer; stall: one event, then nothing; garbage: no HTTP; step: each event waits for `POST /step` on the gate's
  port; flood: long events at once.
The gate's port also has `POST /ready` and `POST /unready` (it starts unready), `POST /plain` (from now on every body
gets one short answer, whatever it says) and `GET /requests`.
Standard library only; a process of its own, so that a test can kill it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time

GAP_S = 0.02
OWN_WORDS = "".join(
    f"{line}\r\n"
    for line in (
        "server: fake-engine",
        "x-powered-by: fake",
        "via: 1.1 fake",
        "set-cookie: fake=1",
        "x-request-id: own",
    )
)


class Replica:
    """Both servers and the record."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready = False
        self.plain = False
        self.requests: list[dict[str, object]] = []
        self.steps = asyncio.Semaphore(0)

    async def engine(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: requests until it closes."""
        try:
            while await self._one(reader, writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head, body = await read_request(reader)
        method, target, _ = head[0].split(" ", 2)
        self.requests.append(
            {
                "at": time.time(),
                "method": method,
                "target": target,
                "headers": head[1:],
                "bytes": len(body),
                "sha256": hashlib.sha256(body).hexdigest(),
                "ready": self.ready,
            }
        )
        asked = json.loads(body) if body.startswith(b"{") and not self.plain else {}
        act = asked.get("act")
        if act in ("lose", "hang", "garbage"):
            return await self._misbehave(act, writer)
        if act == "refuse":
            return self._json(writer, "503 Service Unavailable", {"error": {"message": "busy", "code": 503}})
        if act == "echo":
            return self._json(
                writer, "400 Bad Request", {"error": {"message": f"cannot: {body.decode()}", "code": 400}}
            )
        if asked.get("stream"):
            return await self._stream(writer, int(asked.get("max_tokens", 5)), act)
        return self._json(writer, "200 OK", {"replica": self.name, "path": target, "bytes": len(body)})

    async def _misbehave(self, act: str, writer: asyncio.StreamWriter) -> bool:
        if act == "hang":
            await asyncio.sleep(3600)
        if act == "garbage":
            writer.write(b"this is not HTTP\r\n\r\n")
            await writer.drain()
        return False

    def _json(self, writer: asyncio.StreamWriter, status: str, content: object) -> bool:
        body = json.dumps(content).encode()
        head = f"HTTP/1.1 {status}\r\n{OWN_WORDS}x-replica: {self.name}\r\ncontent-type: application/json\r\n"
        writer.write(head.encode() + b"content-length: %d\r\n\r\n%s" % (len(body), body))
        return True

    async def _stream(self, writer: asyncio.StreamWriter, tokens: int, act: str | None) -> bool:
        head = f"HTTP/1.1 200 OK\r\n{OWN_WORDS}x-replica: {self.name}\r\ncontent-type: text/event-stream\r\n"
        writer.write(head.encode() + b"transfer-encoding: chunked\r\n\r\n")
        for number in range(tokens):
            if act == "step":
                await self.steps.acquire()
            elif act == "stall" and number == 1:
                await asyncio.sleep(3600)
            elif act is None:
                await asyncio.sleep(GAP_S)
            words = "x" * 16_384 if act == "flood" else f"{number} "
            event = {"choices": [{"index": 0, "delta": {"content": words}}]}
            writer.write(chunk(f"data: {json.dumps(event)}\n\n"))
            await writer.drain()
        writer.write(chunk("data: [DONE]\n\n") + b"0\r\n\r\n")
        return True

    async def gate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection to the gate or, for the test, to the controls."""
        try:
            while True:
                head, _ = await read_request(reader)
                status, headers, body = self._control(*head[0].split(" ")[:2])
                start = f"HTTP/1.1 {status}\r\n{headers}content-length: {len(body)}\r\n\r\n"
                writer.write(start.encode() + body.encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _control(self, method: str, target: str) -> tuple[str, str, str]:
        if (method, target) == ("GET", "/ready"):
            failing = "x-envoy-immediate-health-check-fail: true\r\n"
            return ("200 OK", "", "") if self.ready else ("503 Service Unavailable", failing, "")
        if (method, target) == ("GET", "/requests"):
            return "200 OK", "", json.dumps(self.requests)
        if (method, target) == ("POST", "/step"):
            self.steps.release()
        elif (method, target) == ("POST", "/plain"):
            self.plain = True
        elif method == "POST":
            self.ready = target == "/ready"
        return "200 OK", "", ""


async def read_request(reader: asyncio.StreamReader) -> tuple[list[str], bytes]:
    """Start line and headers as they came, and the body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
    fields = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in head[1:]}
    if fields.get("transfer-encoding") != "chunked":
        return head, await reader.readexactly(int(fields.get("content-length", "0")))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return head, body


def chunk(text: str) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(text.encode()), text.encode())


async def main(name: str, address: str, engine_port: str, gate_port: str) -> None:
    """Serve until killed."""
    replica = Replica(name)
    await asyncio.start_server(replica.gate, address, int(gate_port), backlog=512)
    engine = await asyncio.start_server(replica.engine, address, int(engine_port), backlog=512, limit=1 << 20)
    await engine.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
