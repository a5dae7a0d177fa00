"""What the response filter costs: delay and CPU time of an event of a stream, against the same chain without it.

PYTHONPATH=.:images/policy .venv/bin/python -m tests.contract.usage.measure [ROUNDS]

One process is engine and client: it writes an event to Envoy's connection and waits for it on the client's. Events of
all cases take turns, a stream at a time, so that whatever else the machine does meets all of them alike.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import random
import re
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.contract.gateway import harness
from tests.contract.usage.answers import BOTH, CHAT, TEXT
from tests.contract.usage.gateway import Gateway

STREAMS, EVENTS, EVERY_S = 10, 100, 0.001
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
EVENT = (
    b'data: {"id":"chatcmpl-ab4a6d4e50201185","object":"chat.completion.chunk","created":1796071504,"model":"tiny",'
    b'"choices":[{"index":0,"delta":{"content":"word"},"logprobs":null,"finish_reason":null,"token_ids":null}]'
    b',"usage":{"prompt_tokens":9,"total_tokens":%d,"completion_tokens":%d}}\n\n'
)
NONE, AGAIN, READ, HIDE = "no filter", "no filter, again", "read only", "read and hide"
LATER, MANY = "read and hide, after 2,000 tokens", 2_000


@dataclass
class Asked:
    """How a case is asked for."""

    path: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass
class Chain:
    """An Envoy, and the engine's listener behind it."""

    name: str
    port: int
    pid: int
    engine: socket.socket
    cases: Mapping[str, Asked]

    def open(self, case: str, number: int) -> tuple[socket.socket, socket.socket]:
        """A stream that has begun: the engine's end, the client's end."""
        asked = self.cases[case]
        client = socket.create_connection(("127.0.0.1", self.port), 30)
        headers = {
            "host": "x",
            "connection": "close",
            "content-length": str(len(asked.body)),
            "x-id": f"{case} {number}",
            **asked.headers,
        }
        lines = [f"POST {asked.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        client.sendall("\r\n".join(lines).encode() + asked.body)
        server, _ = self.engine.accept()
        server.settimeout(30)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read_request(server)
        server.sendall(HEAD)
        read = b""
        while not read.endswith(b"\r\n\r\n"):
            read += client.recv(65536)
        assert read.startswith(b"HTTP/1.1 200"), read
        return server, client

    @staticmethod
    def _read_request(server: socket.socket) -> None:
        with server.makefile("rb", buffering=0) as asked:
            headers = {}
            for line in iter(asked.readline, b"\r\n"):
                name, _, value = line.lower().partition(b":")
                headers[name] = value.strip()
            left = int(headers.get(b"content-length", 0))
            while left:
                left -= len(asked.read(left))
            if headers.get(b"transfer-encoding") == b"chunked":
                while size := int(asked.readline(), 16):
                    asked.read(size + 2)
                asked.readline()

    def cpu_ms(self) -> float:
        """CPU time of all of Envoy's threads."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e6


def delays(chain: Chain, cases: Sequence[str]) -> dict[str, list[float]]:
    """Of every event, in us, for streams of these cases side by side."""
    found: dict[str, list[float]] = {case: [] for case in cases}
    order = random.Random(1)
    streams = {case: [chain.open(case, number) for number in range(STREAMS)] for case in cases}
    try:
        for turn in range(EVENTS):
            chunks = {case: _chunk(1 + turn + (MANY if case == LATER else 0)) for case in cases}
            for number in range(STREAMS):
                for case in order.sample(cases, len(cases)):  # who comes after whom matters: caches are warm then
                    found[case].append(_one(*streams[case][number], chunks[case]))
    finally:
        for server, client in (ends for case in cases for ends in streams[case]):
            server.sendall(b"0\r\n\r\n")
            server.close()
            while client.recv(65536):
                pass
            client.close()
    return found


def _chunk(tokens: int) -> bytes:
    event = EVENT % (9 + tokens, tokens)
    return b"%x\r\n%s\r\n" % (len(event), event)


def _one(server: socket.socket, client: socket.socket, chunk: bytes) -> float:
    time.sleep(EVERY_S)
    begin = time.perf_counter_ns()
    server.sendall(chunk)
    read = client.recv(65536)
    took = (time.perf_counter_ns() - begin) / 1e3
    while b"\n\n\r\n" not in read:
        read += client.recv(65536)
    return took


@contextlib.contextmanager
def bare(folder: Path) -> Iterator[Chain]:
    """The filter alone (gateway.yaml)."""
    engine = socket.create_server(("127.0.0.1", 0), backlog=512)
    gateway = Gateway(folder, engine.getsockname()[1])
    cases = {
        NONE: Asked("/plain/", gateway.headers("all")),
        AGAIN: Asked("/plain/", gateway.headers("all")),
        READ: Asked("/", gateway.headers("")),
        HIDE: Asked("/", gateway.headers("all")),
        LATER: Asked("/", gateway.headers("all")),
    }
    try:
        yield Chain("filter alone", gateway.port, gateway.process.pid, engine, cases)
        assert gateway.stat("http.ingress_http.lua.usage.errors") == 0
    finally:
        gateway.end()
        engine.close()


class _Gate(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@dataclass
class _Product(harness.Gateway):
    """The product's own chain; /v1/completions goes without the filter, and this process is the engine."""

    engine: socket.socket = field(init=False)

    def start_replicas(self, ready: bool = True) -> None:
        address = self.slots[0].address
        self.engine = socket.create_server((address, self._engine_port), backlog=512)
        gate = http.server.ThreadingHTTPServer((address, self._gate_port), _Gate)
        threading.Thread(target=gate.serve_forever, daemon=True).start()

    def rendered(self) -> dict[str, str]:
        files = super().rendered()
        before, route, behind = files["rds.yaml"].partition(f'- name: "POST {TEXT}"')
        behind, found = re.subn(r"\n *flashbox\.usage: [^\n]*", "", behind, count=1)
        assert route and found
        return {**files, "rds.yaml": before + route + behind}


@contextlib.contextmanager
def product(folder: Path) -> Iterator[Chain]:
    """Keys, limits, budget and policy service, log: everything."""
    gateway = _Product(folder, count=1)
    headers = {"authorization": f"Bearer {harness.KEY}", "content-type": "application/json"}
    asked = {"model": "m", "max_tokens": 1000, "stream": True}
    chat = {**asked, "messages": [{"role": "user", "content": "How are you?"}]}
    cases = {
        NONE: Asked(TEXT, headers, json.dumps({**asked, "prompt": "How are you?"}).encode()),
        AGAIN: Asked(TEXT, headers, json.dumps({**asked, "prompt": "How are you?"}).encode()),
        READ: Asked(CHAT, headers, json.dumps({**chat, "stream_options": BOTH}).encode()),
        HIDE: Asked(CHAT, headers, json.dumps(chat).encode()),
        LATER: Asked(CHAT, headers, json.dumps(chat).encode()),
    }
    with gateway.serving():
        pid = next(line["envoy_pid"] for line in gateway.lines("entry") if "envoy_pid" in line)
        yield Chain("product's chain", gateway.port, pid, gateway.engine, cases)
        assert gateway.stat("http.public.lua.usage.errors") == 0


def report(chain: Chain, rounds: int) -> Iterator[str]:
    """One line for each case: medians of the rounds, with the quartiles of their ratios."""
    cases = list(chain.cases)
    delays(chain, cases)
    p50: dict[str, list[float]] = {case: [] for case in cases}
    p99: dict[str, list[float]] = {case: [] for case in cases}
    spent: dict[str, list[float]] = {case: [] for case in cases}
    for _ in range(rounds):
        for case, found in delays(chain, cases).items():
            p50[case].append(statistics.median(found))
            p99[case].append(sorted(found)[int(len(found) * 0.99)])
        for case in cases:
            before = chain.cpu_ms()
            events = len(delays(chain, [case])[case])
            spent[case].append((chain.cpu_ms() - before) / events * 1e3)
    for case in cases:
        ratios = sorted(mine / base for mine, base in zip(p50[case], p50[NONE], strict=True))
        row = [statistics.median(p50[case]), statistics.median(ratios), statistics.median(p99[case])]
        span = f"{ratios[rounds // 4]:.2f}-{ratios[-1 - rounds // 4]:.2f}"
        cpu = f"{statistics.median(spent[case]):.0f}"
        yield f"| {chain.name}: {case} | {row[0]:.0f} | {row[1]:.2f} ({span}) | {row[2]:.0f} | {cpu} |"


def main() -> None:
    """Print Markdown."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    print("| | p50, us | ratio (quartiles of rounds) | p99, us | CPU of Envoy, us an event |\n|---|---|---|---|---|")
    for chain_of in (bare, product):
        with tempfile.TemporaryDirectory() as folder, chain_of(Path(folder)) as chain:
            for line in report(chain, rounds):
                print(line, flush=True)


if __name__ == "__main__":
    main()
