"""A server to put under the gate: an OpenAI server in outline, told what to do by files in one folder.

Files it reads: `hold_load` (while it exists the server does not listen), `completion` (what a completion without
`stream` gets: ok, 500, hang, cut, text), `other_key` (the key it demands instead of VLLM_API_KEY), `hold_streams`
(while it exists a stream sends its first chunk and waits), `gap` (seconds between the chunks of a stream), `metrics`
(what /metrics says: ok, idle: no request runs, none: a page of others, hang), `says` (written to stderr again and
again while it exists), `plays` (written to stderr, and to stdout reversed, before it listens).
Files it writes: `started` (its pid), `journal` (one JSON line per request that is not the gate's), `probes` (a byte per
request that is), `said` (a byte per time that `says` was written), `sleeper` and `orphan` (pids of --family).
Arguments: folder, port, name, and flags: --deaf (ignores SIGTERM), --family (starts a process of its own group and an
orphan), --prints (writes known bytes to stdout and stderr), --dies (writes `plays` to stderr and exits with 3).
On SIGTERM it does as vLLM 0.26 does: closes the port at once, finishes its streams, exits 0.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CHUNKS = 20
PROBE_PROMPT = "Hello"
SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
# A process that starts another and dies at once, which leaves the other an orphan until it dies too.
ORPHAN = """
import os, sys, time
if os.fork() == 0:
    open(sys.argv[1], "w").write(str(os.getpid()))
    while not os.path.exists(sys.argv[1] + ".may_die"):
        time.sleep(0.02)
    os._exit(3)
os._exit(0)
"""


class Answers(BaseHTTPRequestHandler):
    """The three routes that matter here."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Health, whatever state the rest is in; and metrics."""
        if self.path == "/metrics":
            self._send(200, metrics())
        else:
            self._send(200 if self.path == "/health" else 404, b"")

    def do_POST(self) -> None:
        """A completion, whole or streamed."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        probe = body["prompt"] == PROBE_PROMPT
        if probe:
            append("probes", ".")
        else:
            journal(body, self.headers.get("Authorization"))
        if probe and self.headers.get("Authorization") != f"Bearer {read('other_key') or os.environ['VLLM_API_KEY']}":
            self._send(401, b'{"error":"Unauthorized"}')
        elif body.get("stream"):
            self._stream()
        else:
            self._complete(body)

    def _complete(self, body: dict[str, object]) -> None:
        how = read("completion") or "ok"
        choice = {"index": 0, "text": " x", "finish_reason": "abort" if how == "cut" else "length"}
        answer = {"object": "text_completion", "model": body["model"], "choices": [choice]}
        while read("completion") == "hang":
            time.sleep(0.05)
        if how == "500":
            self._send(500, b'{"error":{"message":"engine is not well"}}')
        else:
            running.tokens += 1
            self._send(200, b"hello" if how == "text" else json.dumps(answer).encode())

    def _stream(self) -> None:
        with running:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("x-replica", NAME)
            self.end_headers()
            for number in range(CHUNKS):
                self.wfile.write(f"data: {number}\n\n".encode())
                self.wfile.flush()
                running.tokens += 1
                time.sleep(float(read("gap") or 0))
                while (FOLDER / "hold_streams").exists():
                    time.sleep(0.02)
            self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("x-replica", NAME)
        self.end_headers()
        self.wfile.write(body)


class Running:
    """Counts the streams in flight, and tokens."""

    def __init__(self) -> None:
        self.count = self.tokens = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.count += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.count -= 1


def read(name: str) -> str:
    """Return a file's text, empty if there is none."""
    try:
        return (FOLDER / name).read_text()
    except FileNotFoundError:
        return ""


def append(name: str, text: str) -> None:
    """Add to a file."""
    with open(FOLDER / name, "a") as file:
        file.write(text)


def metrics() -> bytes:
    """Two engines' worth of a page in vLLM's form, with names that only begin like the ones that count."""
    while read("metrics") == "hang":
        time.sleep(0.05)
    if read("metrics") == "none":
        return b"other_total 1.0\n"
    running_now = 0 if read("metrics") == "idle" else running.count
    lines = ["# TYPE vllm:generation_tokens_total counter"]
    for engine in (0, 1):
        label = f'{{engine="{engine}",model_name="tiny"}}'
        lines += [
            f"vllm:generation_tokens_total{label} {float(running.tokens if engine else 0)}",
            f"vllm:prompt_tokens_total{label} 1e+06",
            f"vllm:generation_tokens_created{label} {time.time()}",
            f"vllm:num_requests_running{label} {float(running_now if engine else 0)}",
            f"vllm:num_requests_waiting{label} 0.0",
            f"vllm:num_requests_waiting_by_reason{label} 9.0",
        ]
    return "\n".join(lines).encode() + b"\n"


def speak() -> None:
    """Write `says` to stderr again and again."""
    while True:
        if text := read("says"):
            os.write(2, text.encode())
            append("said", ".")
        time.sleep(0.1)


def play() -> None:
    """Write `plays`, in pieces that end anywhere."""
    content = (FOLDER / "plays").read_bytes() if (FOLDER / "plays").exists() else b""
    for descriptor, data in ((2, content), (1, content[::-1])):
        for start in range(0, len(data), 997):
            os.write(descriptor, data[start : start + 997])


def journal(body: dict[str, object], authorization: str | None) -> None:
    """Record a client's request, and whether the gate says ready at this moment (it was so when Envoy chose us)."""
    gate = http.client.HTTPConnection("127.0.0.1", int(os.environ["GATE_PORT"]), timeout=10)
    gate.request("GET", "/ready")
    line = {"prompt": body["prompt"], "authorization": authorization, "ready": gate.getresponse().status == 200}
    gate.close()
    append("journal", json.dumps(line) + "\n")


class Server(ThreadingHTTPServer):
    """HTTP/1.0: every answer ends its connection."""

    request_queue_size = 128
    daemon_threads = True


def finish(server: Server) -> None:
    """Close the port, wait for the streams, end."""
    server.shutdown()
    server.server_close()
    while running.count:
        time.sleep(0.02)
    os._exit(0)


def start_family() -> None:
    """Start a process of our own group and an orphan, and write their numbers."""
    sleeper = subprocess.Popen([*SLEEPER, str(FOLDER)])
    orphan = FOLDER / "orphan"
    subprocess.run([sys.executable, "-c", ORPHAN, str(orphan)], check=True)
    (FOLDER / "sleeper").write_text(str(sleeper.pid))


FOLDER, PORT, NAME, FLAGS = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
running = Running()

if __name__ == "__main__":
    if "--deaf" in FLAGS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "--family" in FLAGS:
        start_family()
    if "--prints" in FLAGS:
        os.write(1, b"out \xff\x00 without newline")
        os.write(2, b"(Engine) \x1b[1mbold\x1b[0m\n")
    (FOLDER / "started").write_text(str(os.getpid()))
    play()
    if "--dies" in FLAGS:
        sys.exit(3)
    threading.Thread(target=speak, daemon=True).start()
    while (FOLDER / "hold_load").exists():
        time.sleep(0.02)
    server = Server(("127.0.0.1", PORT), Answers)
    if "--deaf" not in FLAGS:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=finish, args=(server,)).start())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Event().wait()
