"""Answers in place of an Envoy that has ended, since its successor goes on asking it.

After a hot restart the newer Envoy knows the older one by the name of a socket until the older one's time is over. It
sends "end now" then, and when a next one starts; it asks for the listening socket of every listener that is new to it.
If nobody has the name it tries for ten seconds and aborts; if nobody answers it waits for ever. Messages are those of
source/server/hot_restart.proto of Envoy 1.40: eight bytes of length, then one message.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

EPOCHS = 3  # Envoy numbers its sockets 0, 1, 2, 0, ...
LONGEST = 4096
LENGTH = 8
PASS_LISTEN_SOCKET = 0x0A  # the first byte of a request's content: field 1
# reply { pass_listen_socket { fd: -1 } }: there is none, open your own.
NO_SOCKET = bytes.fromhex("120d0a0b08ffffffffffffffffff01")
# didnt_recognize_your_last_message: true
UNKNOWN = bytes.fromhex("1801")
SHUTDOWN_ADMIN, STATS = 0x12, 0x1A  # requests that wait for an answer too; nobody sends them here
AWAITING = frozenset({SHUTDOWN_ADMIN, STATS})


def address(role: str, base_id: int, epoch: int) -> bytes:
    """The abstract name of one end."""
    return f"\0envoy_domain_socket_{role}_{base_id * 10 + epoch % EPOCHS}".encode().ljust(108, b"\0")


def reply_to(message: bytes) -> bytes | None:
    """The answer to one message; None where none is waited for."""
    content = message[LENGTH:]
    kind = content[2] if len(content) > 2 and content[0] == 0x0A else 0
    answer = NO_SOCKET if kind == PASS_LISTEN_SOCKET else UNKNOWN if kind in AWAITING else None
    return None if answer is None else len(answer).to_bytes(LENGTH, "big") + answer


class StandIn:
    """Has the name of the Envoy of `epoch`, which has ended, for the one after it."""

    def __init__(self, base_id: int, epoch: int) -> None:
        self._successor = address("child", base_id, epoch + 1)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.bind(address("parent", base_id, epoch))
        except OSError:
            self._socket.close()
            raise
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        while True:
            try:
                message = self._socket.recv(LONGEST)
            except OSError:  # closed
                return
            if not message:
                return
            reply = reply_to(message)
            if reply is not None:
                with suppress(OSError):
                    self._socket.sendto(reply, self._successor)

    def close(self) -> None:
        """Free the name: Envoy uses the same number again two epochs later."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)  # wakes the thread
        self._socket.close()
