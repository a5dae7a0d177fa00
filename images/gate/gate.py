#!/usr/bin/env python3
"""PID 1 of every replica: starts the server, says when it is ready, drains it, notices its death.

    gate.py run -- SERVER ARGS...   start the server and stay with it
    gate.py state                   print the JSON of GET /state of the gate in this container
    gate.py ready                   exit 0 only if that gate is ready (health check of the container)

Standard library only, one file: it runs inside images that are not ours. Its environment: Config. Phases: starting,
loading (no answer on /health), compiling and capturing (the same, as the server's log says), warming (no completion
yet), ready, draining, failed.

Threads: main has the signals, the child and the phase (Gate); one asks the server (Prober, Watch); two for each of
stdout and stderr bring the server's bytes out (Tap); one per client of the gate's port (Port).
"""

from __future__ import annotations

import signal

if __name__ == "__main__":  # before the other imports: a stop that PID 1 neither blocks nor handles is lost
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
import enum
import http.client
import json
import math
import os
import queue
import re
import resource
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STOPS = (signal.SIGTERM, signal.SIGINT)
EXIT_USAGE, EXIT_FAILED, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND = 2, 70, 126, 127
TICK_S = 1.0  # the child is looked at this often even if its death went unsignalled
CLIENT_TIMEOUT_S = 5.0  # of one read or write of a client of the gate's port
KILL_WAIT_S = 5.0  # a process in an uninterruptible call outlives SIGKILL for a while; the container's end takes it
HEALTH_TIMEOUT_S, HEALTH_PAUSE_S = 5.0, 0.2
COMPLETION_TIMEOUT_S, COMPLETION_PAUSE_S = 120.0, 1.0  # the first completion may compile kernels, 11-19 s each
LOOK_S, LOOKS_PER_LIMIT = 5.0, 10  # a ready server is looked at this often, and so many times within GATE_HANG_S
HOLD_BYTES = 1 << 20  # of output that nobody takes; more is dropped
LAST_WORDS_S = 2.0  # after the end: for output that is still on its way
LINE_BYTES = 4096  # of a line that has no end yet; what is recognised is far shorter
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
RENDERED = "the variable comes from run/engines.yaml: run python ctl.py up"


class Refused(Exception):
    """The gate cannot start the server: what, why and the fix."""

    def __init__(self, what: str, why: str, fix: str, code: int = EXIT_USAGE) -> None:
        super().__init__(what)
        self.what, self.why, self.fix, self.code = what, why, fix, code


class NotYet(Exception):
    """The server does not do what a ready one does; the text says what it did instead."""


def line(event: str, **fields: object) -> bytes:
    """Return one line of the gate's log."""
    content = {"time": round(time.time(), 3), "source": "gate", "event": event, **fields}
    return json.dumps(content).encode() + b"\n"


def log(event: str, **fields: object) -> None:
    """Write one JSON line to stderr in one call, so that it never mixes with a line of the server."""
    try:
        os.write(2, line(event, **fields))
    except OSError:
        return  # nobody reads stderr any more; the server matters more than the line


def setting(env: Mapping[str, str], name: str, pattern: str, expected: str) -> str:
    """Return a variable that has the right form."""
    text = env.get(name, "").strip()
    if not re.fullmatch(pattern, text, re.ASCII):
        raise Refused(f"{name}={text}", f"expected {expected}", RENDERED)
    return text


def own_port(env: Mapping[str, str]) -> int:
    """Return the port of the gate."""
    return int(setting(env, "GATE_PORT", r"[1-9]\d{0,4}", "a port, 1 to 65535"))


def read_key(path: str) -> str:
    """Return the key that the server demands; from a file, so that no listing of the container shows it."""
    why = "expected one word, the key"
    try:
        with open(path, encoding="latin-1") as file:
            key = file.read().strip()
    except OSError as error:
        key, why = "", error.strerror or str(error)
    if not re.fullmatch(r"[!-~]+", key):
        fix = "run python ctl.py init, and let service.uid read secrets/upstream_key"
        raise Refused(f"GATE_API_KEY_FILE={path}", why, fix)
    return key


@dataclass(frozen=True)
class Config:
    """What the environment says."""

    port: int
    upstream: str  # host:port of the server
    model: str
    key: str
    notice_s: float
    drain_s: float
    start_timeout_s: float
    hang_s: float
    probe_s: float

    @classmethod
    def read(cls, env: Mapping[str, str]) -> Config:
        """Parse every variable or refuse with the first that is wrong."""

        def seconds(name: str) -> float:
            return float(setting(env, name, r"\d{1,5}(\.\d+)?", "seconds, 0 to 99999"))

        def some_seconds(name: str) -> float:
            return float(setting(env, name, r"(?=.*[1-9])\d{1,5}(\.\d+)?", "seconds, above 0 to 99999"))

        address = setting(env, "GATE_UPSTREAM", r"http://[\w.-]+:\d{1,5}/?", "a form like http://127.0.0.1:8000")
        return cls(
            port=own_port(env),
            upstream=address.split("/")[2],
            model=setting(env, "GATE_MODEL", r"[!-~]+", "the served model name"),
            key=read_key(setting(env, "GATE_API_KEY_FILE", r".+", "the path of a file with the key")),
            notice_s=seconds("GATE_NOTICE_S"),
            drain_s=seconds("GATE_DRAIN_S"),
            start_timeout_s=seconds("GATE_START_TIMEOUT_S"),
            hang_s=some_seconds("GATE_HANG_S"),
            probe_s=some_seconds("GATE_PROBE_S"),
        )


START = ("starting", "loading", "compiling", "capturing", "warming", "ready")


class Status:
    """What GET /state tells; written by the main thread, `last_error` by the prober, `loaded` by the log's reader."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entered = time.monotonic()
        self.phase = "starting"
        self.since = time.time()
        self.loaded: tuple[int, int] | None = None
        self.last_error: str | None = None
        self.pid: int | None = None

    def enter(self, phase: str, error: str | None = None) -> None:
        """Change the phase and log it."""
        with self._lock:
            was, after_s = self.phase, time.monotonic() - self._entered
            self.phase, self.since, self._entered, self.last_error = phase, time.time(), time.monotonic(), error
        log("phase", phase=phase, was=was, after_s=round(after_s, 3), last_error=error)

    def reach(self, phase: str) -> None:
        """Enter a phase of the start unless a later one is reached: kernels are compiled between captures too."""
        if START.index(phase) > START.index(self.phase):
            self.enter(phase)

    def note(self, error: str | None) -> None:
        """Remember why the server does not answer, None that it does; logged when it changes."""
        with self._lock:
            if self.phase not in START or error == self.last_error:
                return
            self.last_error = error
        log("waiting", phase=self.phase, last_error=error)

    def shards(self, there: int, of_all: int) -> None:
        """Remember how much of the weights is loaded."""
        if self.phase == "loading" and there <= of_all:
            self.loaded = there, of_all

    def snapshot(self) -> dict[str, object]:
        """Return the answer of GET /state."""
        with self._lock:
            phase_s = round(time.monotonic() - self._entered, 3)
            answer = {"phase": self.phase, "since": round(self.since, 3), "phase_s": phase_s}
            return {**answer, "loaded": self.loaded, "last_error": self.last_error, "pid": self.pid}


class Event(enum.Enum):
    """What wakes the main thread."""

    STOP = enum.auto()  # SIGTERM or SIGINT
    SOMEONE_DIED = enum.auto()  # SIGCHLD: perhaps only an orphan
    GONE = enum.auto()  # the server itself
    HUNG = enum.auto()
    # Of the start; the value is the phase that begins.
    COMPILING = "compiling"
    CAPTURING = "capturing"
    HEALTHY = "warming"
    ANSWERED = "ready"


class Tap:
    """Our stdout or stderr, led through a pipe where it is listened to. Bytes pass at once and as they are.

    Who writes never waits for who reads outside: if Docker stops taking lines, HOLD_BYTES are kept and the rest is
    dropped and counted. The child inherits the pipe, and our own lines take the same way, so that none is torn.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._outside = descriptor, os.dup(descriptor)
        self._inside, end = os.pipe()
        os.dup2(end, descriptor)
        os.close(end)
        self._lock = threading.Lock()
        self._kept: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._kept_bytes = self._dropped_bytes = 0
        self._writer = threading.Thread(target=self._pass_on, daemon=True)

    def start(self, hear: Callable[[bytes], None]) -> None:
        """Let bytes flow; `hear` gets each piece."""
        self._writer.start()
        threading.Thread(target=self._read, args=(hear,), daemon=True).start()

    def stop(self) -> None:
        """Write directly again, after what is still in the pipe; a process that still holds it is not waited for."""
        os.dup2(self._outside, self._descriptor)
        self._writer.join(LAST_WORDS_S)

    def _read(self, hear: Callable[[bytes], None]) -> None:
        deaf = False
        while data := os.read(self._inside, 1 << 16):
            self._keep(data)
            try:
                if not deaf:
                    hear(data)
            except Exception as error:  # noqa: BLE001 - whatever a listener does, the bytes must flow on
                deaf = True
                self._keep(line("deaf", error=repr(error)))
        self._kept.put(b"")

    def _keep(self, data: bytes) -> None:
        with self._lock:
            if self._kept_bytes + len(data) > HOLD_BYTES:
                self._dropped_bytes += len(data)
                return
            if self._dropped_bytes:
                data = b"\n" + line("output_dropped", bytes=self._dropped_bytes) + data
                self._dropped_bytes = 0
            self._kept_bytes += len(data)
        if data:
            self._kept.put(data)

    def _pass_on(self) -> None:
        while data := self._kept.get():
            left = memoryview(data)
            try:
                while left:
                    left = left[os.write(self._outside, left) :]
            except OSError:
                left = left[:0]  # nobody is there to read: the server goes on all the same
            with self._lock:
                self._kept_bytes -= len(data)
            if not self._kept_bytes:
                self._keep(b"")  # a server that fell silent has its loss told all the same


# As vLLM 0.26.0 writes them; progress bars end in a carriage return. No line is known that proves the end of a start.
SAID = re.compile(
    rb"checkpoint shards: +\d{1,3}% Completed \| (\d{1,6})/(\d{1,6})\b"
    rb"|(Model loading took |Warming up |DeepGEMM warmup: |to compile kernel )"
    rb"|(Capturing CUDA graphs )"
)


class Listener:
    """What the server's own log tells: shards, phases of the start, and compilations."""

    def __init__(self, status: Status, tell: Callable[[Event], None]) -> None:
        self._status, self._tell = status, tell
        self._told: set[Event] = set()
        self.compiled_at = -math.inf  # when a kernel was last told to be compiled: until then nothing can move

    def ear(self) -> Callable[[bytes], None]:
        """Return what hears one stream; each has an unfinished line of its own."""
        rest = b""

        def hear(data: bytes) -> None:
            nonlocal rest
            text = rest + data
            end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
            for said in SAID.finditer(text, 0, end):
                self._take(said)
            rest = text[end:][-LINE_BYTES:]

        return hear

    def _take(self, said: re.Match[bytes]) -> None:
        there, of_all, compiling, _ = said.groups()
        if there:
            self._status.shards(int(there), int(of_all))
            return
        if compiling:
            self.compiled_at = time.monotonic()
        event = Event.COMPILING if compiling else Event.CAPTURING
        if event not in self._told:
            self._told.add(event)
            self._tell(event)


def prctl(option: int, value: int) -> None:
    """Call Linux's prctl; where there is no such call the gate works without it."""
    try:
        import ctypes  # some slim Pythons lack it

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return


class Child:
    """The server's process, leader of a session of its own; and the reaper of everything that is orphaned."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Start it. No other thread may run yet: between fork and exec a lock of theirs would stay locked."""
        gate = os.getpid()

        def die_with_the_gate() -> None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != gate:  # it died before the line above
                os._exit(EXIT_FAILED)

        prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans come to us even where the gate is not PID 1
        try:
            self._process = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=die_with_the_gate
            )
        except OSError as error:
            fix = "the image must contain it as an executable; see compose/engine.yaml"
            code = EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_NOT_EXECUTABLE
            raise Refused(f"cannot run {command[0]}", error.strerror or str(error), fix, code) from None
        self.pid = self._process.pid
        self.code: int | None = None  # negative: the signal that ended it

    def alive(self) -> bool:
        """Look without reaping; any thread may ask."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    def reap(self) -> bool:
        """Collect all who died, and say whether the server is among them. Main thread only."""
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if dead is None:
                break
            if dead.si_pid == self.pid:
                self.kill_group()  # before its zombie goes: until then the group's number is surely ours
            status = os.waitpid(dead.si_pid, 0)[1]
            if dead.si_pid == self.pid:
                self.code = self._process.returncode = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def terminate(self) -> None:
        """Ask it to finish its requests and go; its own processes are its own business."""
        os.kill(self.pid, signal.SIGTERM)  # not reaped yet, so the number is its own

    def kill_group(self) -> None:
        """SIGKILL to it and to every process of its group."""
        if self.code is not None:
            return
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError) as error:
            log("kill", error=str(error))


METRIC = re.compile(
    rb"^vllm:(generation_tokens_total|prompt_tokens_total|num_requests_running|num_requests_waiting)"
    rb"(?:\{[^\n]*\})? (\d+(?:\.\d+)?(?:e[+-]?\d+)?)$",
    re.MULTILINE,
)


class Upstream:
    """The server as a client sees it."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def health(self) -> None:
        """Demand 200 on /health."""
        self._ask("GET", "/health", HEALTH_TIMEOUT_S)

    def work(self, within_s: float) -> tuple[float, float]:
        """Return how many tokens there were so far, read or written, and how many requests run or wait."""
        page = self._ask("GET", "/metrics", within_s)
        values: dict[bytes, float] = {}
        for name, value in METRIC.findall(page):
            values[name] = values.get(name, 0.0) + float(value)  # one line per engine of the server
        if b"generation_tokens_total" not in values or b"num_requests_running" not in values:
            raise NotYet("GET /metrics: 200 without vllm:generation_tokens_total and vllm:num_requests_running")
        tokens = values[b"generation_tokens_total"] + values.get(b"prompt_tokens_total", 0.0)
        return tokens, values[b"num_requests_running"] + values.get(b"num_requests_waiting", 0.0)

    def complete(self, within_s: float = COMPLETION_TIMEOUT_S) -> None:
        """Demand one real token: /health says 200 long before the engine can do that, and while it hangs too."""
        request = {"model": self._config.model, "prompt": "Hello", "max_tokens": 1, "temperature": 0}
        body = self._ask("POST", "/v1/completions", within_s, json.dumps(request).encode())
        try:
            choice = json.loads(body)["choices"][0]
            whole = isinstance(choice["text"], str) and choice["finish_reason"] in ("length", "stop")
        except (ValueError, LookupError, TypeError):
            whole = False
        if not whole:
            raise NotYet(f"POST /v1/completions: 200 without a whole completion: {excerpt(body)}")

    def _ask(self, method: str, path: str, timeout_s: float, body: bytes | None = None) -> bytes:
        headers = {"Authorization": f"Bearer {self._config.key}", "Content-Type": "application/json"}
        status, answer = ask(self._config.upstream, method, path, timeout_s, body, headers)
        if status != 200:
            raise NotYet(f"{method} {path}: {status} {excerpt(answer)}")
        return answer


def ask(
    address: str, method: str, path: str, timeout_s: float, body: bytes | None = None, headers: Mapping[str, str] = {}
) -> tuple[int, bytes]:
    """Return status and body. http.client and not urllib: no proxy of the environment may step in."""
    connection = http.client.HTTPConnection(address, timeout=timeout_s)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read(1 << 20)
    except (OSError, OverflowError, http.client.HTTPException) as error:
        raise NotYet(f"{method} {path}: {getattr(error, 'strerror', None) or error or repr(error)}") from None
    finally:
        connection.close()


def excerpt(body: bytes) -> str:
    """Return the start of an answer for a message."""
    return " ".join(body[:200].decode("utf-8", "replace").split())


class Watch:
    """Tells a server that works from one that hangs: it owes a token while requests run, and after a probe.

    A probe is sent when nothing proved it alive for GATE_PROBE_S (an engine that hangs may count no request, and
    metrics may be unreadable). Any token pays, whoever asked; so does a line about a kernel that is being compiled.
    """

    def __init__(self, config: Config, upstream: Upstream, listener: Listener) -> None:
        self._config, self._upstream, self._listener = config, upstream, listener
        self._look_s = min(HEALTH_TIMEOUT_S, max(1.0, config.hang_s / LOOKS_PER_LIMIT))
        self._tokens: float | None = None
        self._alive_at = time.monotonic()
        self._owes_since: float | None = None
        self._over = False
        self.why = ""  # what is owed

    def owed_s(self) -> float:
        """Take one look; return for how long the server owes a sign of life."""
        now = time.monotonic()
        try:
            tokens, requests = self._upstream.work(self._look_s)
            moved, self._tokens = tokens != self._tokens, tokens
        except NotYet as error:
            moved, requests = False, 0.0
            self.why = str(error)
        if moved:
            self._alive()
        elif requests:
            self._owes(now, f"requests without a token: {requests:g}")
        elif now - self._alive_at >= self._config.probe_s:
            self._probe(now)
        else:
            self._owes_since = None
        return 0.0 if self._owes_since is None else time.monotonic() - self._owes_since

    def hung(self, owed_s: float) -> bool:
        """Say whether the limit was passed at two looks in a row: a container that was paused is not killed for it."""
        before, self._over = self._over, owed_s >= self._config.hang_s
        return before and self._over

    def _probe(self, now: float) -> None:
        owed_s = 0.0 if self._owes_since is None else now - self._owes_since
        try:
            self._upstream.complete(max(self._look_s, self._config.hang_s - owed_s))
            self._alive()
        except NotYet as error:
            self._owes(now, str(error))

    def _alive(self) -> None:
        self._alive_at, self._owes_since = time.monotonic(), None

    def _owes(self, since: float, why: str) -> None:
        first = since if self._owes_since is None else self._owes_since
        self._owes_since, self.why = max(first, self._listener.compiled_at), why


class Prober(threading.Thread):
    """Asks the server what a client would: until it is ready, and then whether it hangs.

    A thread of its own, so that a server that hangs cannot hold the gate.
    """

    def __init__(self, config: Config, status: Status, listener: Listener, tell: Callable[[Event], None]) -> None:
        super().__init__(name="prober", daemon=True)
        self._config, self._status, self._listener, self._tell = config, status, listener, tell
        self._upstream = Upstream(config)

    def run(self) -> None:
        """Try each step until it passes, then watch."""
        self._until(self._upstream.health, HEALTH_PAUSE_S)
        self._tell(Event.HEALTHY)
        self._until(self._upstream.complete, COMPLETION_PAUSE_S)
        self._tell(Event.ANSWERED)
        self._watch()
        self._tell(Event.HUNG)

    def _until(self, step: Callable[[], None], pause_s: float) -> None:
        while True:
            try:
                return step()
            except NotYet as error:
                self._status.note(str(error))
                time.sleep(pause_s)

    def _watch(self) -> None:
        """Return when the server hangs; half-way there it is told."""
        limit_s = self._config.hang_s
        pause_s = min(LOOK_S, limit_s / LOOKS_PER_LIMIT)
        watch = Watch(self._config, self._upstream, self._listener)
        while not watch.hung(owed_s := watch.owed_s()):
            stalled = f"no token for more than {limit_s / 2:g} s of {limit_s:g} s allowed: {watch.why}"
            self._status.note(stalled if owed_s > limit_s / 2 else None)
            time.sleep(pause_s)
        self._status.note(watch.why)


class Port(ThreadingHTTPServer):
    """The gate's own port; every connection has its own thread, so that a slow client holds up nobody."""

    request_queue_size = 128
    allow_reuse_port = False  # a second gate on the port is a mistake and must be told

    def __init__(self, port: int, report: Callable[[], tuple[bool, dict[str, object]]]) -> None:
        self.report = report
        try:
            super().__init__(("0.0.0.0", port), Answers)
        except (OSError, OverflowError) as error:  # the latter: above 65535
            fix = "stop what listens there, or change GATE_PORT"
            raise Refused(f"GATE_PORT={port}", getattr(error, "strerror", None) or str(error), fix) from None

    def server_bind(self) -> None:
        """Bind without the base class's look-up of our own name, which waits for DNS."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "gate", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that went away is no event."""


class Answers(BaseHTTPRequestHandler):
    """GET and HEAD of /ready and /state."""

    server: Port
    server_version, sys_version = "gate", ""
    timeout = CLIENT_TIMEOUT_S

    def do_GET(self) -> None:
        """Answer; the header of a 503 makes Envoy leave this replica at once, whatever its thresholds."""
        path = self.path.partition("?")[0]
        ready, state = self.server.report()
        known = path in ("/ready", "/state")
        status = 404 if not known else 503 if path == "/ready" and not ready else 200
        body = json.dumps(state if known else {"error": "only /ready and /state are here"}).encode() + b"\n"
        self.send_response(status)
        if status == 503:
            self.send_header("x-envoy-immediate-health-check-fail", "true")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: Envoy asks every second."""


class Gate:
    """The life of one server process, from start to end."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._status = Status()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()  # its put is safe in a signal handler
        self._stop_asked = False

    def run(self, command: Sequence[str]) -> int:
        """Start the server, stay with it, return the gate's exit code."""
        for number in STOPS:
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGCHLD, lambda *_: self._events.put(Event.SOMEONE_DIED))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)  # the child inherits the mask
        if self._stop_asked:
            log("stopped", note="before the server was started")
            return 0
        port = Port(self._config.port, self._report)  # listens from here on; first answers after the fork
        taps = Tap(1), Tap(2)
        try:
            self._start(command, port, taps)
            return self._supervise()
        finally:
            for tap in taps:
                tap.stop()

    def _start(self, command: Sequence[str], port: Port, taps: Sequence[Tap]) -> None:
        listener = Listener(self._status, self._events.put)
        try:
            self._child = Child(command, {**os.environ, "VLLM_API_KEY": self._config.key})
        finally:
            for tap in taps:
                tap.start(listener.ear())
        self._status.pid = self._child.pid
        self._status.enter("loading")
        threading.Thread(target=port.serve_forever, daemon=True).start()
        Prober(self._config, self._status, listener, self._events.put).start()

    def _on_stop(self, *_: object) -> None:
        self._stop_asked = True
        self._events.put(Event.STOP)

    def _report(self) -> tuple[bool, dict[str, object]]:
        state = self._status.snapshot()
        return state["phase"] == "ready" and self._child.alive(), state

    def _supervise(self) -> int:
        deadline = time.monotonic() + self._config.start_timeout_s
        while True:
            event = self._next(deadline)
            if event is Event.GONE:
                return self._after_death()
            if event is Event.STOP:
                return self._drain()
            if event is Event.HUNG:
                return self._fail(f"the server hangs: no token for {self._config.hang_s:g} s")
            if event is None:
                return self._fail(f"not ready {self._config.start_timeout_s:g} s after the start")
            self._status.reach(event.value)
            if event is Event.ANSWERED:
                deadline = math.inf

    def _next(self, deadline: float) -> Event | None:
        """Wait for the next event; None when the deadline has passed."""
        while True:
            if self._child.reap():
                return Event.GONE
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            try:
                event = self._events.get(timeout=min(TICK_S, left))
            except queue.Empty:
                continue
            if event is not Event.SOMEONE_DIED:
                return event

    def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while True:
            event = self._next(deadline)
            if event is Event.STOP:
                log("stop_repeated", note="already stopping; this shortens nothing")
            if event is Event.GONE or event is None:
                return event is Event.GONE

    def _drain(self) -> int:
        serving = self._status.phase == "ready"
        self._status.enter("draining")
        if serving and not self._gone_within(self._config.notice_s):
            self._child.terminate()
            if not self._gone_within(self._config.drain_s):
                log("drain_over", drain_s=self._config.drain_s, note="requests still ran; SIGKILL")
        # A server that still starts swallows SIGTERM and has no request to finish.
        self._child.kill_group()
        self._gone_within(KILL_WAIT_S)
        log("stopped", child_code=self._child.code)
        return 0

    def _after_death(self) -> int:
        """Turn the death of the server into an exit that restarts it: vLLM exits 0 when its engine died."""
        code = self._child.code or 0
        if self._stop_asked:
            log("stopped", child_code=code)
            return 0
        how = f"was ended by signal {-code}" if code < 0 else f"exited with {code}"
        return self._fail(f"the server {how}", 128 - code if code < 0 else code)

    def _fail(self, why: str, code: int = EXIT_FAILED) -> int:
        last = self._status.last_error
        self._status.enter("failed", f"{why}; last: {last}" if last else why)
        self._child.kill_group()
        self._gone_within(KILL_WAIT_S)  # at once if it is gone already
        return code or EXIT_FAILED


def ask_local_gate(path: str) -> tuple[int, str]:
    """Return status and body of the gate in this container."""
    port = own_port(os.environ)
    try:
        status, body = ask(f"127.0.0.1:{port}", "GET", path, CLIENT_TIMEOUT_S)
    except NotYet as error:
        raise Refused(f"no gate answers on port {port}", str(error), "is the replica running?", code=1) from None
    return status, body.decode()


def allow_many_sockets() -> None:
    """Raise the limit of open files to the highest allowed: each stream is a socket, and many start with 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(argv: Sequence[str]) -> int:
    """Run one subcommand."""
    try:
        match argv:
            case ["run", "--", *command] if command:
                allow_many_sockets()
                return Gate(Config.read(os.environ)).run(command)
            case ["state"]:
                sys.stdout.write(ask_local_gate("/state")[1])
                return 0
            case ["ready"]:
                status, body = ask_local_gate("/ready")
                sys.stdout.write(body)
                return 0 if status == 200 else 1
        usage = "gate.py run -- SERVER ARGS... | state | ready"
        raise Refused("gate.py " + " ".join(argv[:1]), "unknown command", usage)
    except Refused as refusal:
        log("refused", what=refusal.what, why=refusal.why, fix=refusal.fix)
        return refusal.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
