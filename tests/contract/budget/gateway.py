"""Envoy with the two filters and two clusters that counting needs (gateway.yaml), and its clients."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import string
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from control.adapters.envoy import packaged_binary
from tests.contract.budget.process import CHAT, SOON_S, free_port
from tests.eventually import eventually

T = TypeVar("T")
CONFIG = Path(__file__).with_name("gateway.yaml")


@dataclass
class Answer:
    """One whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Gateway:
    """One Envoy process; started again, it has another boot id."""

    def __init__(self, folder: Path, replica: int, service: int, checks: int) -> None:
        self.port, self._base = free_port(), free_port()
        self._socket, self._log = folder / "admin.sock", folder / "envoy.log"
        names = {"port": self.port, "replica": replica, "service": service, "checks": checks, "socket": self._socket}
        self._config = folder / "gateway.yaml"
        self._config.write_text(string.Template(CONFIG.read_text()).safe_substitute(names))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._boots = 0

    def start(self, *more: str, boot: str | None = None) -> None:
        """Start it and wait until it serves."""
        self._boots += 1
        environment = {**os.environ, "GATEWAY_BOOT": boot or f"gateway:{self._boots}"}
        words = [str(packaged_binary()), "-c", str(self._config), "--concurrency", "2", "--log-level", "warning"]
        words += ["--base-id", str(self._base), "--drain-time-s", "20", "--parent-shutdown-time-s", "30", *more]
        with self._log.open("ab") as log:
            process = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
        self._processes.append(process)
        # The check's cluster has asked the service for its health.
        eventually(lambda: process.poll() is None and self.stat("cluster.budget.membership_healthy") == 1, SOON_S)

    def hot_restart(self) -> None:
        """Another process takes over, with the same boot id; streams in flight stay with the first."""
        self.start("--restart-epoch", str(len(self._processes)), boot=f"gateway:{self._boots}")

    def end(self) -> None:
        """SIGKILL."""
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes.clear()

    def stat(self, name: str) -> int:
        """One of Envoy's counters or gauges."""
        connection = http.client.HTTPConnection("admin", timeout=10)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self._socket))
        try:
            connection.request("GET", f"/stats?filter=^{name}$")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        return int(text.partition(": ")[2] or 0)

    # ---- clients

    def run(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Let clients work."""

        async def inside() -> T:
            connector, most = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=120)
            async with aiohttp.ClientSession(connector=connector, timeout=most) as session:
                return await work(Client(session, self.port))

        return asyncio.run(inside())

    def ask(self, key: str, path: str = CHAT, **headers: object) -> Answer:
        """One request, to its end."""
        return self.run(lambda client: client.ask(key, path, **headers))


class Client:
    """Requests at the same time."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session, self._port = session, port

    def _post(self, key: str, path: str, headers: dict[str, object]) -> Any:
        sent = {"authorization": f"Bearer {key}", **{name.replace("_", "-"): str(v) for name, v in headers.items()}}
        return self._session.post(f"http://127.0.0.1:{self._port}{path}", json={"model": "m"}, headers=sent)

    async def ask(self, key: str, path: str = CHAT, **headers: object) -> Answer:
        """One request to its end; status 0 if it was broken off before or within."""
        try:
            async with self._post(key, path, headers) as response:
                named = {name.lower(): value for name, value in response.headers.items()}
                return Answer(response.status, named, await response.read())
        except aiohttp.ClientError:
            return Answer(0, {}, b"")

    async def many(self, number: int, key: str, every_s: float = 0, **headers: object) -> list[Answer]:
        """So many requests, begun one after the other."""
        begun = []
        for _ in range(number):
            begun.append(asyncio.ensure_future(self.ask(key, **headers)))
            await asyncio.sleep(every_s)
        return await asyncio.gather(*begun)

    async def leave_after(self, events: int, key: str, **headers: object) -> int:
        """Read so many events, then go; how many were seen."""
        seen = 0
        async with self._post(key, CHAT, headers) as response:
            async for line in response.content:
                seen += line.startswith(b"data:")
                if seen >= events:
                    break
            response.close()
        return seen

    async def give_up_after(self, seconds: float, key: str, **headers: object) -> None:
        """Go without having seen an answer."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.ask(key, **headers), seconds)
