"""The process: load, serve, stop. Signals do here what they do in vLLM; which of the ways is a setting."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
import time
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from stub import app, control
from stub.service import Service
from stub.settings import Settings

_SHARDS = 46  # the load is told in steps, as the real one is
_MOST_FILES = 65_536
_LAST_WORDS_S = 0.5  # a dead engine's server lives this long, so that every client hears of it


class CannotListen(Exception):
    """An address that cannot be had."""


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers: it would end with the signal's status, and vLLM ends with 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Process:
    """The life of one stand-in server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._service = Service(settings)
        self._faults = self._service.faults
        self._faults.die = self._die
        self._public = _server(app.application(self._service), "info")
        self._control = _server(control.application(self._faults), "warning")
        self._signals = self._signals_serving = 0
        self._stuck = False  # half started, and never more than that
        self._waiter: asyncio.Future[None] | None = None
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Serve until told to stop; returns when everything is over."""
        _raise_file_limit()
        # Bound before the load and listening only after it, as in the real server: until then connections are refused.
        listener = _bind(self._settings.host, self._settings.port, "STUB_PORT")
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        aside = self._listen_for_faults()
        await self._load()
        if not self._ended.is_set():
            settings = self._settings
            say(f"Starting the stand-in for vLLM {settings.release} on http://{settings.host}:{settings.port}")
            gc.freeze()
            await self._public.serve(sockets=[listener])
            await self._linger()
        self._control.should_exit = True
        await asyncio.gather(*aside)

    def _listen_for_faults(self) -> list[asyncio.Future[None]]:
        if not self._settings.control_port:
            return []
        listener = _bind(self._settings.host, self._settings.control_port, "STUB_CONTROL_PORT")
        return [asyncio.ensure_future(self._control.serve(sockets=[listener]))]

    async def _load(self) -> None:
        """Pretend to load; the control port may make it longer or shorter meanwhile."""
        started, told = time.monotonic(), 0
        while not self._ended.is_set() and (share := self._share(started)) < 1:
            told = _tell(told, int(share * _SHARDS))
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ended.wait(), 0.05)
        if not self._ended.is_set() and told:
            _tell(told, _SHARDS)
        self._faults.loading = False

    def _share(self, started: float) -> float:
        """How much of the load is done."""
        passed_s, whole_s = time.monotonic() - started, self._faults.load_s
        if self._stuck:
            return 0.0
        return 1.0 if passed_s >= whole_s else passed_s / whole_s

    async def _linger(self) -> None:
        """The real process needs some seconds from its last stream to its end."""
        if not self._service.engine.dead:
            await asyncio.sleep(self._settings.exit_lag_s)

    def _on_signal(self) -> None:
        self._signals += 1
        if self._settings.sigterm == "swallow":
            say("SIGTERM: swallowed, as was asked for")
        elif self._faults.loading or self._stuck:
            self._on_signal_in_load()
        elif self._signals_serving == 0:
            self._signals_serving += 1
            {"drain": self._drain, "abort": self._abort, "error": self._fail, "hang": self._hang}[
                self._settings.sigterm
            ]()

    def _on_signal_in_load(self) -> None:
        if self._settings.sigterm_load == "die":
            self._end_with(signal.SIGTERM)
        if self._signals > 1:
            self._end_with(signal.SIGINT)  # as in the server stood in for
        say("SIGTERM during the load: swallowed, as in the server stood in for")
        self._stuck = self._settings.sigterm_load == "stuck"

    def _end_with(self, number: signal.Signals) -> None:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _drain(self) -> None:
        """With --shutdown-timeout: what runs may end; then 0.26.0 closes its port, later releases keep it open."""
        self._service.draining = True
        if self._settings.plays.drains_open:
            say("Shutting down: new requests are refused, running requests are finished")
            self._waiter = asyncio.ensure_future(self._close_when_idle())
        else:
            say("Shutting down: the port is closed, running requests are finished")
            self._public.should_exit = True
        at_end = self._hang if self._settings.drain_end == "hang" else self._give_up
        asyncio.get_running_loop().call_later(self._settings.shutdown_timeout_s, at_end)

    async def _close_when_idle(self) -> None:
        engine = self._service.engine
        while engine.running or engine.waiting:
            await asyncio.sleep(0.05)
        self._public.should_exit = True

    def _abort(self) -> None:
        say("Shutting down: running requests are cut short")
        self._service.engine.abort()
        self._public.should_exit = True

    def _fail(self) -> None:
        say("Shutting down: running requests are lost")
        self._public.should_exit = True
        self._give_up()

    def _hang(self) -> None:
        say("Waiting for connections to close. (CTRL+C to force quit)")
        self._service.engine.freeze(True)
        self._public.should_exit = True

    def _die(self) -> None:
        """The engine is lost: every request fails, and the process exits 0, as vLLM's does."""
        say("EngineCore encountered an issue (a fault that was asked for)")
        self._ended.set()
        self._give_up()

    def _give_up(self) -> None:
        self._service.engine.die()
        asyncio.get_running_loop().call_later(_LAST_WORDS_S, self._leave)

    def _leave(self) -> None:
        self._public.should_exit = True
        self._public.force_exit = True


def _tell(told: int, loaded: int) -> int:
    for shard in range(told + 1, loaded + 1):
        say(f"Loading safetensors checkpoint shards: {100 * shard // _SHARDS:3d}% Completed | {shard}/{_SHARDS}")
    return loaded


def say(text: str) -> None:
    """One line of the log."""
    print(f"(APIServer pid={os.getpid()}) INFO {time.strftime('%m-%d %H:%M:%S')} [stub] {text}", flush=True)


def _server(application: ASGIApp, level: str) -> _Uvicorn:
    config = uvicorn.Config(application, http="httptools", ws="none", lifespan="off", access_log=False, log_level=level)
    return _Uvicorn(config)


def _bind(host: str, port: int, variable: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise CannotListen(f"{variable}: cannot listen on {host}:{port}: {error.strerror}") from error
    return listener


def _raise_file_limit() -> None:
    """One file for each open stream; the usual 1024 are too few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
