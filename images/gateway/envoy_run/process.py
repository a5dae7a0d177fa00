"""One Envoy as a process, and what a hot restart leaves behind that Envoy does not mend itself."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from envoy_run.admin import Link, Quiet
from envoy_run.launch import Config
from envoy_run.stand_in import StandIn

SHARED_MEMORY = "/dev/shm/envoy_shared_memory_{}"
SHARED_BYTES, FLAGS_AT, FLAGS_BYTES = 104, 96, 8  # the whole, and the word that says "a process is starting"


def spawn(command: Sequence[str]) -> int:
    """Start a program with no signal blocked; its process id."""
    return os.posix_spawn(command[0], list(command), os.environ, setsigmask=())


@dataclass
class Envoy:
    """A process that we started, from its start to its exit code."""

    config: Config
    epoch: int
    pid: int
    since: float
    digests: dict[str, str]
    oldest_stream_s: float  # how long streams may be that it holds, or that the one before held
    status: int | None = None  # its exit code, once it has ended
    link: Link | None = None  # kept when the next one takes the admin socket over
    quiet: Quiet | None = None
    quiet_since: float | None = None  # monotonic; of the Envoy before
    stand_in: StandIn | None = None

    @classmethod
    def start(cls, config: Config, epoch: int, oldest_stream_s: float = 0.0) -> Envoy:
        digests = config.digests()  # before the start: what it reads is at least as new
        oldest = max(config.max_stream_s, oldest_stream_s)
        return cls(config, epoch, spawn(config.command(epoch, oldest_stream_s)), time.time(), digests, oldest)

    @property
    def alive(self) -> bool:
        return self.status is None

    def keep_link(self) -> None:
        """Hold on to its admin interface before the next Envoy takes the socket."""
        self.link = Link(self.config.admin_socket)
        self.quiet = Quiet(self.link)

    def drop_link(self) -> None:
        if self.link is not None:
            self.link.close()
        self.link, self.quiet, self.quiet_since = None, None, None

    def send(self, signum: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signum)

    def answer_for(self, before: Envoy) -> None:
        """Have somebody answer in place of the Envoy before, which has ended: this one still counts on it."""
        with suppress(OSError):  # the name is taken: it has not ended then
            self.stand_in = StandIn(before.config.base_id, before.epoch)

    def forget(self) -> None:
        """Free what was held for it."""
        self.drop_link()
        if self.stand_in is not None:
            self.stand_in.close()
            self.stand_in = None


def unmark_starting(config: Config) -> bool:
    """Take back the mark of a process that died while it started; with it no other would ever start."""
    path = Path(SHARED_MEMORY.format(config.base_id * 10))
    try:
        if path.stat().st_size != SHARED_BYTES:  # another release of Envoy: leave it alone
            return False
        with path.open("r+b", buffering=0) as memory:
            memory.seek(FLAGS_AT)
            memory.write(bytes(FLAGS_BYTES))
    except OSError:
        return False
    return True
