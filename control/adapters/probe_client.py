"""Sends a probe byte by byte, as a client that means no good would, and reads one answer."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from control.core.probes import Seen, Sent, code_of

PATIENCE_S = 15.0
PIECE = 1 << 16
RETRIES = 8  # of a 429: the probes may be more than one key may ask in a second
VERSIONS = {"TLSv1": ssl.TLSVersion.TLSv1, "TLSv1.1": ssl.TLSVersion.TLSv1_1}


@dataclass(frozen=True)
class ProbeClient:
    """The public port of a gateway; `key` goes with the probes that ask for one."""

    base_url: str
    key: str

    @property
    def tls(self) -> bool:
        return urlsplit(self.base_url).scheme == "https"

    def send(self, sent: Sent) -> Seen:
        """The answer; a limit of the key is waited for and tried again."""
        for _ in range(RETRIES):
            seen = self._once(sent)
            if seen.status != 429:
                break
            time.sleep(min(5.0, float(seen.headers.get("retry-after", "1"))))
        return seen

    def _once(self, sent: Sent) -> Seen:
        try:
            with self._connect(sent.scheme) as connection:
                refused = self._write(connection, sent)
                return _read(connection, sent.method, refused)
        except (OSError, http.client.HTTPException) as error:
            return Seen(None, words=type(error).__name__)

    def _connect(self, scheme: str) -> socket.socket:
        where = urlsplit(self.base_url)
        address = (where.hostname or "127.0.0.1", where.port or (443 if self.tls else 80))
        connection = socket.create_connection(address, PATIENCE_S)
        if not self.tls or scheme == "plain":
            return connection
        try:
            return _context(scheme).wrap_socket(connection, server_hostname=where.hostname)
        except BaseException:
            connection.close()
            raise

    def _write(self, connection: socket.socket, sent: Sent) -> bool:
        """Send it; True if the other side closed before it had all."""
        with suppress(BrokenPipeError, ConnectionResetError, ssl.SSLError):
            connection.sendall(self._head(sent))
            for piece in _pieces(sent):
                connection.sendall(piece)
            return False
        return True

    def _head(self, sent: Sent) -> bytes:
        names = {name for name, _ in sent.headers}
        lines = [f"{sent.method} {sent.target} HTTP/1.1"]
        lines += [] if "host" in names else [f"host: {urlsplit(self.base_url).netloc}"]
        lines += [f"{name}: {value}" for name, value in sent.headers]
        lines += [f"authorization: Bearer {self.key}"] if sent.key else []
        if sent.chunked:
            lines.append("transfer-encoding: chunked")
        elif not names & {"content-length", "transfer-encoding"} and (sent.body or sent.announced):
            lines.append(f"content-length: {sent.announced or len(sent.body) + sent.filler}")
        return ("\r\n".join([*lines, "connection: close"]) + "\r\n\r\n").encode("latin-1")


def _context(scheme: str) -> ssl.SSLContext:
    """Doors are tried here, not names: a certificate of nobody will do. Old versions need OpenSSL's leave."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if scheme in VERSIONS:
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = VERSIONS[scheme]
    return context


def _pieces(sent: Sent) -> Iterator[bytes]:
    """The body as it is sent; none where only its length is announced."""
    if sent.announced is not None:
        return
    if not sent.chunked:
        yield sent.body + b"x" * sent.filler
        return
    left = sent.filler
    yield b"%x\r\n%s\r\n" % (len(sent.body), sent.body)
    while left:
        size = min(left, PIECE)
        yield b"%x\r\n%s\r\n" % (size, b"x" * size)
        left -= size
    yield b"0\r\n\r\n"


def _read(connection: socket.socket, method: str, refused: bool) -> Seen:
    answer = http.client.HTTPResponse(connection, method=method)
    try:
        answer.begin()
        body = answer.read(PIECE) if method != "CONNECT" else b""
    except (OSError, http.client.HTTPException) as error:
        return Seen(None, words=f"{type(error).__name__}{' while sending' if refused else ''}")
    headers = {name.lower(): value for name, value in answer.getheaders()}
    return Seen(answer.status, code_of(body), headers)
