"""PID 1 of the policy container: two workers, so that one may die; their metrics on one page."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from prometheus_client import multiprocess

from policy.config import Config
from policy.heart import HANDLE
from policy.log import say
from policy.scrape import Scrape

SILENT_S = 10.0  # a worker whose loop does not turn for so long is killed
STARTING_S = 30.0  # for the imports, on a busy machine
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
STEADY_S = 10.0  # after this time a death counts as the first again
END_MARGIN_S = 3.0


def main(arguments: list[str]) -> int:
    """Run until SIGTERM. It never ends by itself: a worker that cannot start is tried again for ever."""
    return asyncio.run(Supervisor(Config.read(os.environ)).run())


@dataclass
class Child:
    """One worker and what is known of it."""

    port: int
    process: asyncio.subprocess.Process | None = None
    state: str = "starting"
    heard: float = 0.0
    started: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    pipe: int | None = field(default=None, repr=False)

    def silent(self, now: float) -> bool:
        """Whether it has to be taken for hung."""
        return now - self.heard > (STARTING_S if self.state == "starting" else SILENT_S)

    def next_pause(self, now: float) -> float:
        """How long to wait after a death; twice as long each time, until one lived for a while."""
        if now - self.started >= STEADY_S:
            self.pause_s = FIRST_PAUSE_S
        pause, self.pause_s = self.pause_s, min(LONGEST_PAUSE_S, self.pause_s * 2)
        return pause


class Supervisor:
    """Starts workers, starts them again, and ends them."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._metrics = config.state / "metrics"
        self._children = [Child(port) for port in config.ports]
        self._stop = asyncio.Event()

    async def run(self) -> int:
        """Until SIGTERM or SIGINT."""
        self._metrics.mkdir(parents=True, exist_ok=True)
        for old in self._metrics.glob("*.db"):  # of a supervisor before this one
            old.unlink()
        loop = asyncio.get_running_loop()
        for wanted in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(wanted, self._stop.set)
        scrape = Scrape(self._config.host, self._config.metrics_port, self._metrics, self._ready)
        scrape.start()
        jobs = [asyncio.ensure_future(self._keep(child)) for child in self._children]
        jobs.append(asyncio.ensure_future(self._watch()))
        await self._stop.wait()
        jobs.pop().cancel()
        await self._end(jobs)
        scrape.stop()
        say("ended")
        return 0

    def _ready(self) -> bool:
        """One worker that serves is enough."""
        now = time.monotonic()
        return any(child.state == "serving" and now - child.heard < SILENT_S for child in self._children)

    async def _keep(self, child: Child) -> None:
        """Keep one worker running."""
        while not self._stop.is_set():
            await self._start(child)
            code = await child.process.wait() if child.process else None
            self._buried(child)
            if self._stop.is_set():
                return
            pause_s = child.next_pause(time.monotonic())
            say("worker ended", port=child.port, code=code, again_in_s=pause_s)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause_s)

    async def _start(self, child: Child) -> None:
        ours, theirs = os.pipe()
        environment = {
            **os.environ,
            HANDLE: str(theirs),
            "PROMETHEUS_MULTIPROC_DIR": str(self._metrics),
            "GRPC_ENABLE_FORK_SUPPORT": "0",  # workers start other programs, they do not fork
        }
        words = (sys.executable, "-m", "policy", "worker", str(child.port))
        child.process = await asyncio.create_subprocess_exec(
            *words, env=environment, pass_fds=(theirs,), stdin=asyncio.subprocess.DEVNULL
        )
        os.close(theirs)
        os.set_blocking(ours, False)
        child.pipe, child.state = ours, "starting"
        child.started = child.heard = time.monotonic()
        asyncio.get_running_loop().add_reader(ours, self._heard, child)

    def _heard(self, child: Child) -> None:
        said = os.read(child.pipe, 65536) if child.pipe is not None else b""
        if said:
            child.state, child.heard = said.decode().split("\n")[-2], time.monotonic()
        else:
            self._hang_up(child)

    def _hang_up(self, child: Child) -> None:
        if child.pipe is not None:
            asyncio.get_running_loop().remove_reader(child.pipe)
            os.close(child.pipe)
            child.pipe = None

    def _buried(self, child: Child) -> None:
        self._hang_up(child)
        child.state = "ended"
        multiprocess.mark_process_dead(child.port, str(self._metrics))  # what it held is gone; what it counted stays

    async def _watch(self) -> None:
        """Kill a worker that hangs: Envoy has left it already, and it will not come back by itself."""
        while True:
            await asyncio.sleep(1.0)
            for child in self._children:
                process = child.process
                if process and process.returncode is None and child.silent(time.monotonic()):
                    say("worker hangs", port=child.port)
                    process.kill()

    async def _end(self, jobs: Sequence[asyncio.Future[None]]) -> None:
        """SIGTERM, then the time that a worker needs to finish its calls, then SIGKILL."""
        self._signal(signal.SIGTERM)
        _, late = await asyncio.wait(jobs, timeout=self._config.notice_s + self._config.drain_s + END_MARGIN_S)
        if late:
            self._signal(signal.SIGKILL)
            await asyncio.wait(late)

    def _signal(self, number: signal.Signals) -> None:
        for child in self._children:
            if child.process and child.process.returncode is None:
                with suppress(ProcessLookupError):
                    child.process.send_signal(number)
