"""A collector of a few lines: takes OpenTelemetry logs over HTTP and keeps every byte."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Collector:
    """Listens on a free port of localhost."""

    def __init__(self) -> None:
        self.raw: list[bytes] = []
        self.paths: set[str] = set()
        ours = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                ours.paths.add(self.path)
                ours.raw.append(self._body())
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def _body(self) -> bytes:
                if self.headers.get("transfer-encoding") != "chunked":
                    return self.rfile.read(int(self.headers.get("content-length", "0")))
                whole = b""
                while size := int(self.rfile.readline(), 16):
                    whole += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return whole

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def records(self) -> list[dict[str, str]]:
        """Attributes of each record, with `service.name` of its resource and the text as `body`."""
        return [record for raw in list(self.raw) for record in decode(raw)]

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()


# ---- protobuf by hand; numbers are those of opentelemetry/proto/logs/v1/logs.proto


def decode(raw: bytes) -> Iterator[dict[str, str]]:
    """An ExportLogsServiceRequest."""
    for resource_logs in inner(raw, 1):
        resource = dict(attribute(pair) for part in inner(resource_logs, 1) for pair in inner(part, 1))
        for scope in inner(resource_logs, 2):
            for record in inner(scope, 2):
                found = dict(attribute(pair) for pair in inner(record, 6))
                yield {**found, **resource, "body": "".join(text(value) for value in inner(record, 5))}


def attribute(pair: bytes) -> tuple[str, str]:
    """A KeyValue."""
    return inner(pair, 1)[0].decode(), "".join(text(value) for value in inner(pair, 2))


def text(value: bytes) -> str:
    """An AnyValue that is a string."""
    return b"".join(inner(value, 1)).decode()


def inner(message: bytes, wanted: int) -> list[bytes]:
    """The length-delimited fields of this number."""
    found, at = [], 0
    while at < len(message):
        key, at = varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            _, at = varint(message, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            size, at = varint(message, at)
            if number == wanted:
                found.append(message[at : at + size])
            at += size
    return found


def varint(message: bytes, at: int) -> tuple[int, int]:
    """A number, and where the next one begins."""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
