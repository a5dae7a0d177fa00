"""An engine that writes given bytes in given pieces."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

APART_S = 0.0005  # so that pieces are read one by one; nothing is wrong when they are not


class Upstream:
    """Answers every request with the same pieces, until others are set."""

    def __init__(self) -> None:
        self.pieces: Sequence[bytes] = ()
        self.status, self.type = "200 OK", "text/event-stream; charset=utf-8"
        self.name = "one"  # which replica it plays
        self.cut = False  # reset the connection instead of an end
        self.apart_s = APART_S
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more requests."""
        self._listener.close()

    def set(self, pieces: Sequence[bytes], status: str = "200 OK", kind: str = "text/event-stream") -> None:
        """What is answered from now on."""
        self.pieces, self.status, self.type, self.cut = pieces, status, kind, False

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError), connection, connection.makefile("rb") as asked:
            while self._request(asked):
                self._answer(connection)

    @staticmethod
    def _request(asked) -> bool:  # type: ignore[no-untyped-def]
        length = 0
        lines = iter(asked.readline, b"\r\n")
        first = next(lines, b"")
        if not first:
            return False
        for line in lines:
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        asked.read(length)
        return True

    def _answer(self, connection: socket.socket) -> None:
        headers = f"content-type: {self.type}\r\nx-flashbox-replica: {self.name}\r\ntransfer-encoding: chunked"
        connection.sendall(f"HTTP/1.1 {self.status}\r\n{headers}\r\n\r\n".encode())
        for piece in self.pieces:
            time.sleep(self.apart_s)
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        if self.cut:
            time.sleep(0.05)  # what was written is read before
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            raise OSError
        connection.sendall(b"0\r\n\r\n")
