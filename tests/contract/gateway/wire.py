"""Bytes as they are: requests that no well-behaved client library would send."""

from __future__ import annotations

import socket
import struct

from tests.contract.gateway.harness import Answer

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
END_STREAM, ACK, END_HEADERS = 1, 1, 4


def send(port: int, data: bytes, within_s: float = 20) -> Answer:
    """Send `data` as it is and read one HTTP/1.1 answer; the connection is then dropped."""
    with socket.create_connection(("127.0.0.1", port), timeout=within_s) as connection:
        connection.sendall(data)
        return read_answer(connection)


def read_answer(connection: socket.socket) -> Answer:
    """One answer with a content-length, or everything until the peer closes."""
    reader = connection.makefile("rb")
    status = int(reader.readline().split()[1])
    headers: dict[str, str] = {}
    while line := reader.readline().strip().decode("latin-1"):
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    length = headers.get("content-length")
    return Answer(status, headers, reader.read(int(length)) if length else b"")


class Http2:
    """One HTTP/2 connection, `over` one that is there or plain; headers go out as literals and none is decoded."""

    def __init__(self, port: int, over: socket.socket | None = None) -> None:
        self._socket = over or socket.create_connection(("127.0.0.1", port), timeout=20)
        self._reader = self._socket.makefile("rb")
        self._socket.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))

    def get(self, stream: int, *headers: tuple[str, str]) -> tuple[str, bytes]:
        """How the stream ended (`end`, `reset`, `goaway`) and the body that came."""
        block = b"".join(literal(name) for name in headers)
        self._socket.sendall(frame(HEADERS, END_STREAM | END_HEADERS, stream, block))
        body = b""
        while True:
            kind, flags, owner, payload = self._read()
            if kind == SETTINGS and not flags & ACK:
                self._socket.sendall(frame(SETTINGS, ACK, 0, b""))
            elif kind == GOAWAY:
                return "goaway", body
            elif owner == stream and kind == RST_STREAM:
                return "reset", body
            elif owner == stream and kind in (DATA, HEADERS):
                body += payload if kind == DATA else b""
                if flags & END_STREAM:
                    return "end", body

    def close(self) -> None:
        """Drop the connection."""
        self._reader.close()
        self._socket.close()

    def _read(self) -> tuple[int, int, int, bytes]:
        try:
            head = self._reader.read(9)
        except ConnectionError:
            head = b""
        if len(head) < 9:  # closed without a word
            return GOAWAY, 0, 0, b""
        length = int.from_bytes(head[:3], "big")
        kind, flags, owner = struct.unpack(">BBI", head[3:])
        return kind, flags, owner & 0x7FFFFFFF, self._reader.read(length)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One HTTP/2 frame."""
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


def literal(field: tuple[str, str]) -> bytes:
    """A header field without index or Huffman code; name and value below 127 bytes."""
    name, value = (part.encode("latin-1") for part in field)
    assert len(name) < 127 and len(value) < 127
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value
