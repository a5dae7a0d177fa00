"""The process: takes its ports, brings the counts back, serves, and tends what has to be tended."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import time

import grpc
import orjson
from envoy.service.ratelimit.v3 import rls_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from prometheus_client import CONTENT_TYPE_LATEST, disable_created_metrics, generate_latest

from budget.checks import Checks, Reply
from budget.config import Config
from budget.core.counts import Counts
from budget.core.descriptors import Check
from budget.core.limits import Limits
from budget.core.recent import KEPT_MS
from budget.journal import Journal
from budget.ledger import Ledger
from budget.log import say
from budget.metrics import Metrics
from budget.page import Answer, Page, text
from budget.service import BudgetService, Desk
from budget.shelf import Shelf
from budget.usage_files import UsageFiles

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
TEND_EVERY_S = 0.5
NOT_HEARD_MS = 1_500  # several times the pause between two looks
STOOD_STILL_MS = 50_000  # the gateway gives up after 60 s: what ended meanwhile may never be said again
OPTIONS = (
    ("grpc.so_reuseport", 0),  # a second owner of the port must fail, not take half of the calls
    ("grpc.http2.max_ping_strikes", 0),  # Envoy's keepalive is not held against it
)
JSON = "application/json"
MIB = 1 << 20


class SecondOwner(Exception):
    """Somebody else owns the counts."""


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM."""
    disable_created_metrics()
    try:
        return asyncio.run(Service(Config.read(os.environ)).run())
    except SecondOwner as error:
        say("not started", error=str(error))
        return 1


class Clock:
    """Milliseconds that never jump: the wall clock of the start, and what has passed since."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> int:
        """The moment."""
        return int((self._offset + time.monotonic()) * 1000)


class Service:
    """Put together once, run once."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._clock = Clock()
        self._metrics = Metrics()
        self._shelf = Shelf(config.folder, config.state, self._retune)
        self._counts = Counts(Limits())
        self._journal = Journal(config.state, self._counts)
        size, total = int(config.ledger_file_mib * MIB), int(config.ledger_mib * MIB)
        self._files = UsageFiles(config.state / "usage", size, total, config.ledger_days)
        self._ledger = Ledger(self._files)
        self._desk = Desk(self._counts, self._journal, self._ledger, self._metrics)
        self._checks = Checks(self._check, self._metrics.missed.inc, lambda: self._serving)
        self._health = HealthServicer()
        self._stop = asyncio.Event()
        self._lock: int | None = None
        self._serving = False
        self._started = time.monotonic()

    async def run(self) -> int:
        """Until SIGTERM or SIGINT."""
        loop = asyncio.get_running_loop()
        for wanted in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(wanted, self._stop.set)
        server, page = await self._own()
        self._recover()
        tending = asyncio.ensure_future(self._tend())
        await self._health.set("", SERVING)
        await server.start()
        self._serving = True
        say("serving", port=self._config.port)
        await asyncio.wait((asyncio.ensure_future(self._stop.wait()), tending), return_when=asyncio.FIRST_COMPLETED)
        self._serving = False
        say("draining")
        await self._health.set("", NOT_SERVING)
        await server.stop(self._config.drain_s)
        tending.cancel()
        self._checks.close()
        page.close()
        self._finish()
        return 0

    async def _own(self) -> tuple[grpc.aio.Server, Page]:
        """The ports, then the volume: only who has all of them touches the journal."""
        config = self._config
        server = grpc.aio.server(options=OPTIONS)
        rls_pb2_grpc.add_RateLimitServiceServicer_to_server(BudgetService(self._desk, self._clock.now), server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        try:
            if not server.add_insecure_port(f"{config.host_address}:{config.port}"):
                raise RuntimeError("the port was refused")
        except RuntimeError:
            raise SecondOwner(f"port {config.port} is taken: another budget service owns the counts") from None
        page = Page(
            {"/ready": self._ready, "/metrics": self._show_metrics, "/state": self._state, "/usage": self._usage}
        )
        try:
            await page.open(config.host_address, config.metrics_port)
            await self._checks.open(config.host_address, config.check_port)
        except OSError as error:
            raise SecondOwner(f"a port is taken: {error}") from None
        self._lock = _locked(config)
        return server, page

    def _recover(self) -> None:
        """Limits, journal, ledger; and into the ledger what only the journal has."""
        now = self._clock.now()
        self._counts.limits = self._shelf.first()
        self._journal.open(now)
        self._ledger.open()
        charged = list(self._counts.charged)
        known = self._files.latest_ids() if charged else set()
        for at, line in charged:
            if at >= charged[-1][0] - KEPT_MS and orjson.loads(line)["id"] not in known:
                self._ledger.add(line)
        self._shelf.look()
        self._metrics.watch(lambda: self._counts.states(self._clock.now()), self._gauges, self._totals)

    def _check(self, ask: Check) -> Reply:
        return Reply.to(ask, self._desk.check(ask, self._clock.now()), time.time())

    # ---- while it runs

    async def _tend(self) -> None:
        """Look after files and time. Nothing that happens here may end the service."""
        last = self._clock.now()
        while True:
            await asyncio.sleep(TEND_EVERY_S)
            now = self._clock.now()
            try:
                self._look_after(now, now - last)
            except Exception as error:  # noqa: BLE001 - counting goes on
                say("tending failed", error=f"{type(error).__name__}: {error}")
            last = now

    def _look_after(self, now: int, passed: int) -> None:
        if passed > NOT_HEARD_MS:
            self._counts.stood_still(passed, now)
        if passed > STOOD_STILL_MS:
            say("stood still", seconds=passed / 1000, leases_forgotten=self._counts.leases.clear())
        self._shelf.look()
        self._counts.sweep(now)
        self._desk.note_refused(time.time())
        self._journal.tend()
        self._ledger.tend()

    def _retune(self, limits: Limits) -> None:
        self._counts.retune(limits, self._clock.now())
        self._journal.compact()  # a replay knows the limits of then only as what was used

    def _finish(self) -> None:
        self._desk.note_refused(time.time())
        self._ledger.close()
        self._journal.close()
        say("ended")

    # ---- what is shown

    def _ready(self, asked: dict[str, str]) -> Answer:
        return text(200, "ready") if self._serving else text(503, "not serving")

    def _show_metrics(self, asked: dict[str, str]) -> Answer:
        return Answer(200, CONTENT_TYPE_LATEST, generate_latest(self._metrics.registry))

    def _usage(self, asked: dict[str, str]) -> Answer:
        self._desk.note_refused(time.time())
        body = b"".join(day.dump() for day in self._ledger.latest())
        return Answer(200, "application/jsonl", body)

    def _state(self, asked: dict[str, str]) -> Answer:
        keys = [
            {"key": one.key, "tpm": one.tpm, "balance": one.balance if one.tpm else None, "wait_s": one.wait_s}
            | {"streams": one.streams, "leases": one.leases}
            for one in self._counts.states(self._clock.now())
        ]
        limits, journal, ledger = self._counts.limits, self._journal, self._ledger
        said = {
            "serving": self._serving,
            "up_s": round(time.monotonic() - self._started, 1),
            "limits": {"version": limits.version, "observe": limits.observe, "error": self._shelf.error},
            "journal": {"error": journal.error, "errors": journal.errors, "bytes": journal.size},
            "ledger": {"error": ledger.error, "errors": ledger.errors, "waiting": ledger.waiting, "lost": ledger.lost},
            "keys": keys,
        }
        return Answer(200, JSON, orjson.dumps(said))

    def _gauges(self) -> dict[str, tuple[str, float]]:
        return {
            "budget_up": ("1 while checks are answered.", float(self._serving)),
            "budget_limits_broken": ("1 while limits.json cannot be used.", float(self._shelf.error is not None)),
            "budget_journal_broken": ("1 while counts are in memory only.", float(self._journal.error is not None)),
            "budget_journal_bytes": ("Size of the journal.", self._journal.size),
            "budget_ledger_waiting": ("Lines of the ledger that are in memory only.", self._ledger.waiting),
        }

    def _totals(self) -> dict[str, tuple[str, float]]:
        return {
            "budget_journal_errors": ("Times that the journal could not be written.", self._journal.errors),
            "budget_ledger_errors": ("Times that the ledger could not be written.", self._ledger.errors),
            "budget_ledger_lost": ("Lines of the ledger that were given up.", self._ledger.lost),
        }


def _locked(config: Config) -> int | None:
    """The volume belongs to one process, also where each container has ports of its own."""
    try:
        config.state.mkdir(parents=True, exist_ok=True)
        handle = os.open(config.state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        say("no lock on the volume", error=str(error))
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise SecondOwner(f"{config.state} is in use: another budget service owns the counts") from None
    return handle
