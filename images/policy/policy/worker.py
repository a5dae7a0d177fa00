"""One worker: a gRPC server for Envoy, its health, and the rules it judges by."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from policy.admission import Room
from policy.config import MEDIUM_BYTES, Budget, Config
from policy.heart import Heart
from policy.judge_apart import Apart
from policy.log import say
from policy.metrics import Metrics
from policy.rulebook import Rulebook, Shelf
from policy.service import Parts, PolicyService
from policy.tokens import Tokenizer
from policy.truncation import Truncator

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SWEEP_EVERY_S = 1.0
MEDIUM_LONGEST_S, LARGE_LONGEST_S = 5.0, 60.0  # for one judgement
OPTIONS = (
    ("grpc.so_reuseport", 0),  # a second owner of the port fails instead of taking half of the calls
    ("grpc.http2.max_ping_strikes", 0),  # Envoy's keepalive is not held against it
    ("grpc.http2.bdp_probe", 0),  # with a fixed window an upload that waits leaves little here
    ("grpc.http2.lookahead_bytes", 256 << 10),
    ("grpc.max_receive_message_length", 16 << 20),  # one piece of a body; Envoy's are below 1 MiB
)


def main(arguments: list[str]) -> int:
    """Serve on the port that is named until SIGTERM."""
    return asyncio.run(Worker(Config.read(os.environ), int(arguments[0])).run())


class Worker:
    """Put together once, run once."""

    def __init__(self, config: Config, port: int) -> None:
        self._config, self._port = config, port
        self._metrics = Metrics(str(port) if "PROMETHEUS_MULTIPROC_DIR" in os.environ else None)
        budget = Budget.of(config)
        self._room = Room(budget.small, budget.large)
        self._medium = Apart(MEDIUM_BYTES, MEDIUM_LONGEST_S, alone=False)
        self._large = Apart(budget.judging, LARGE_LONGEST_S, alone=True)
        self._shelf = Shelf(config.folder, self._rules_changed)
        self._health = HealthServicer()
        self._heart = Heart(os.environ)
        self._stop = asyncio.Event()

    async def run(self) -> int:
        """Until SIGTERM, or until the supervisor is gone."""
        loop = asyncio.get_running_loop()
        for wanted in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(wanted, self._stop.set)
        watching = [asyncio.ensure_future(job) for job in (self._shelf.watch(), self._sweep(), self._beat())]
        try:
            await self._have_rules()
            if not self._stop.is_set():
                await self._serve()
        finally:
            for job in watching:
                job.cancel()
            self._medium.close()
            self._large.close()
        return 0

    async def _have_rules(self) -> None:
        while not self._shelf.loaded and not self._stop.is_set():
            await asyncio.sleep(0.1)

    async def _serve(self) -> None:
        server = grpc.aio.server(options=OPTIONS)
        external_processor_pb2_grpc.add_ExternalProcessorServicer_to_server(PolicyService(self._parts()), server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        server.add_insecure_port(f"{self._config.host}:{self._port}")
        await self._health.set("", SERVING)
        await server.start()
        self._medium.start()
        self._heart.state = "serving"
        say("serving", port=self._port)
        await self._stop.wait()
        self._heart.state = "draining"
        await self._health.set("", NOT_SERVING)
        say("draining", port=self._port)
        await asyncio.sleep(self._config.notice_s)  # Envoy sees it and asks the other worker
        await server.stop(self._config.drain_s)

    def _parts(self) -> Parts:
        return Parts(
            book=self._book,
            room=self._room,
            medium=self._medium,
            large=self._large,
            truncator=Truncator(self._metrics, Tokenizer()),
            metrics=self._metrics,
            upload_wait_s=self._config.upload_wait_s,
        )

    def _book(self) -> Rulebook:
        return self._shelf.current

    def _rules_changed(self, book: Rulebook | None) -> None:
        self._metrics.rules(book.version if book else None)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            self._room.sweep(time.monotonic())

    async def _beat(self) -> None:
        """Tell the supervisor that the loop turns; without a supervisor there is nothing to serve for."""
        with suppress(BrokenPipeError):
            while True:
                self._heart.beat()
                self._metrics.bytes_held.set(self._room.held)
                self._metrics.bodies_waiting.set(self._room.waiting)
                await asyncio.sleep(self._heart.EVERY_S)
        self._stop.set()
