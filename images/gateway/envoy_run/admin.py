"""Envoy's admin interface on its socket: questions, orders, and how much is in flight."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ADMIN_TIMEOUT_S = 5.0
BUSY = (
    "/stats?filter=^(http.ingress_http.downstream_(rq_active|cx_active|cx_tx_bytes_buffered)"
    "|cluster.budget_done.(upstream_rq_active|upstream_rq_pending_active|circuit_breakers.default.remaining_retries))$"
)
CHARGES_AT_ONCE = 20_000  # max_retries of the cluster budget_done
DRAIN_ORDERS = (
    "/healthcheck/fail",  # /health says 503, and each answer asks its connection to close
    "/runtime_modify?flashbox.draining=100",  # the first route of rds.yaml: 503 for every new request
    "/drain_listeners?graceful&skip_exit",  # the same wish for HTTP/2 connections; the listeners stay open
)


class AdminSilent(Exception):
    """Envoy's admin socket gave no usable answer."""


@dataclass(frozen=True)
class Busy:
    """What an Envoy has in flight on its public port."""

    requests: int
    unsent: int  # bytes of answers that it still holds for slow readers
    connections: int
    charges: int  # requests that have ended and of which the budget service has not heard; Envoy gives up after 60 s

    @property
    def idle(self) -> bool:
        return (self.requests, self.unsent, self.charges) == (0, 0, 0)


class Admin:
    """The Envoy that has the socket now: the newest."""

    def __init__(self, socket_path: str) -> None:
        self.socket_path = socket_path

    def connect(self) -> http.client.HTTPConnection:
        """A connection; the caller closes it."""
        connection = http.client.HTTPConnection("admin")
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.sock.settimeout(ADMIN_TIMEOUT_S)
            connection.sock.connect(self.socket_path)
        except OSError as error:
            connection.close()
            raise AdminSilent(str(error)) from error
        return connection

    def ask(self, method: str, path: str) -> str:
        """The body of a 200 answer."""
        connection = self.connect()
        try:
            return answer(connection, method, path)
        finally:
            connection.close()

    def is_live(self) -> bool:
        """Whether Envoy has read its files and listens."""
        try:
            return self.ask("GET", "/ready").startswith("LIVE")
        except AdminSilent:
            return False

    def serves_epoch(self, epoch: int) -> bool:
        """Whether the Envoy of this epoch has the socket and is live."""
        try:
            said = json.loads(self.ask("GET", "/server_info"))
            return said["state"] == "LIVE" and int(said["command_line_options"].get("restart_epoch", 0)) == epoch
        except (AdminSilent, ValueError, LookupError, TypeError):
            return False


class Link(Admin):
    """One connection that is kept: to an Envoy whose socket the next one takes over, which still answers on it."""

    def __init__(self, socket_path: str) -> None:
        super().__init__(socket_path)
        self._kept = self.connect()

    def ask(self, method: str, path: str) -> str:
        """As an Admin, on the kept connection; once that has closed nobody can ask any more."""
        if self._kept.sock is None:
            raise AdminSilent(f"{path}: the connection is closed")
        try:
            return answer(self._kept, method, path)
        except AdminSilent:
            self._kept.close()
            raise

    def close(self) -> None:
        self._kept.close()


def answer(connection: http.client.HTTPConnection, method: str, path: str) -> str:
    """The body of a 200 answer to one request."""
    try:
        connection.auto_open = 0  # never a TCP connection to a host called admin
        connection.request(method, path)
        got = connection.getresponse()
        body = got.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise AdminSilent(f"{path}: {error}") from error
    if got.status != 200:
        raise AdminSilent(f"{path}: {got.status} {body.strip()}")
    return body


class Quiet:
    """True at the second look in a row that finds nothing: one look can fall between two requests."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin
        self.left: int | None = None  # requests at the last look; None is "could not be learnt", never zero
        self.connections: int | None = None
        self.charges: int | None = None
        self._looks = 0

    def __call__(self) -> bool:
        busy = look(self.admin)
        self.left = None if busy is None else busy.requests
        self.connections = None if busy is None else busy.connections
        self.charges = None if busy is None else busy.charges
        self._looks = self._looks + 1 if busy is not None and busy.idle else 0
        return self._looks >= 2

    @property
    def held(self) -> str:
        """What keeps this Envoy, in words."""
        if self.left is None:
            return "an unknown number of streams"
        return f"{self.left} streams" + (f", and {self.charges} charges that nobody has heard" if self.charges else "")


def total(numbers: Iterable[int | None]) -> int | None:
    """The sum; None if one could not be learnt."""
    known = list(numbers)
    return None if None in known else sum(n for n in known if n is not None)


def look(admin: Admin) -> Busy | None:
    """What is in flight; None if it could not be learnt."""
    try:
        text = admin.ask("GET", BUSY)
        pairs = (line.rpartition(": ") for line in text.splitlines())
        numbers = {name.rpartition(".")[2].removeprefix("downstream_"): int(value) for name, _, value in pairs}
        told = _calls(numbers)
        return Busy(numbers["rq_active"], numbers["cx_tx_bytes_buffered"], numbers["cx_active"], told)
    except (AdminSilent, KeyError, ValueError):
        return None


def _calls(numbers: Mapping[str, int]) -> int:
    """Calls to the budget service without an answer: on their way, waiting for a connection, or to be repeated."""
    repeated = CHARGES_AT_ONCE - numbers.get("remaining_retries", CHARGES_AT_ONCE)
    return repeated + numbers.get("upstream_rq_active", 0) + numbers.get("upstream_rq_pending_active", 0)
