"""The supervisor's page for Prometheus: `/metrics` of all workers together, and `/ready`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest, multiprocess

LOADED = "policy_rules_loaded"


class Together:
    """Collector of all workers' values, without versions of the rules that nobody has any more."""

    def __init__(self, folder: Path) -> None:
        self._all = multiprocess.MultiProcessCollector(None, str(folder))

    def collect(self) -> Iterator[Metric]:
        for metric in self._all.collect():
            if metric.name == LOADED:
                metric.samples = [sample for sample in metric.samples if sample.value]
            yield metric


class Scrape:
    """A small HTTP server in threads of its own."""

    def __init__(self, host: str, port: int, folder: Path, ready: Callable[[], bool]) -> None:
        registry = CollectorRegistry()
        registry.register(Together(folder))

        class Handler(BaseHTTPRequestHandler):
            timeout = 10

            def do_GET(self) -> None:
                if self.path == "/metrics":
                    self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
                elif self.path == "/ready":
                    fine = ready()
                    self._answer(200 if fine else 503, b"ready\n" if fine else b"no worker serves\n", "text/plain")
                else:
                    self._answer(404, b"not found\n", "text/plain")

            def _answer(self, status: int, body: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Scrapes are not worth a line."""

        self._server = ThreadingHTTPServer((host, port), Handler)

    def start(self) -> None:
        Thread(target=self._server.serve_forever, daemon=True, name="scrape").start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
