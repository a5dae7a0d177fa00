"""The gateway's life: serve, hot restart on SIGHUP, drain on SIGTERM, exit code."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Callable

from envoy_run.admin import DRAIN_ORDERS, Admin, AdminSilent, Quiet, total
from envoy_run.launch import Config, say
from envoy_run.process import Envoy, spawn, unmark_starting

POLL_S = 0.2
START_S = 60.0  # for a new Envoy to be live; it needs a fraction of a second
IDLE_S = 10.0  # an Envoy before without a request for this long holds only connections that nobody uses
ENVOY_END_S = 5.0  # Envoy needs milliseconds to end; after this it is killed
EXIT_NOT_CONFIGURED = 78  # EX_CONFIG
EXIT_ENVOY_ENDED = 70  # Envoy ended by itself and said 0: still not what was wanted
AWAITED = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD})


class Refused(Exception):
    """A hot restart that is not done; the Envoy that serves goes on."""


class Gateway:
    """Envoy as a child, for moments two of them, from the start to the exit code of this process."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.admin = Admin(config.admin_socket)
        self.processes: list[Envoy] = []  # the newest last
        self.phase = "starting"
        self.stops = 0  # SIGTERM and SIGINT received
        self.wishes = 0  # SIGHUP received and not yet answered
        self.restarts = 0
        self.refusals = 0
        self.refusal: dict[str, object] | None = None
        self.checks: dict[int, int | None] = {}  # pid of a process that judges a bootstrap -> its exit code

    @property
    def newest(self) -> Envoy:
        return self.processes[-1]

    @property
    def before(self) -> Envoy | None:
        """The Envoy that finishes its streams after a hot restart."""
        return self.processes[-2] if len(self.processes) > 1 else None

    def run(self) -> int:
        """Serve until a signal or the newest Envoy's own end; the exit code."""
        lacking = self.config.missing()
        if lacking:
            say("failed", reason="missing or not readable", files=lacking, uid=os.getuid())
            return EXIT_NOT_CONFIGURED
        self.processes = [Envoy.start(self.config, 0)]
        say("starting", envoy_pid=self.newest.pid)
        served = self._until(self.admin.is_live)
        if served:
            say("serving")
            self._serve()
        if self.newest.alive and served:
            self._drain()
        if not self.newest.alive:
            return self._died()
        self._end_all()
        say("stopped", signals=self.stops)
        return 0

    def _serve(self) -> None:
        while not self.stops and self.newest.alive:
            if self.wishes:
                self._answer_wish()
            self._let_go()
            self._tell("serving")
            if self.newest.alive and not (self.wishes or self.stops):  # else it came while the above waited
                self._wait(POLL_S if self.before else 60.0)

    # ---- hot restart

    def _answer_wish(self) -> None:
        self.wishes = 0
        try:
            self._restart()
        except (Refused, AdminSilent) as reason:
            self.refusals += 1
            self.refusal = {"time": time.time(), "reason": str(reason)}
            say("refused", reason=str(reason))

    def _restart(self) -> None:
        """Start the next Envoy beside the one that serves; it takes the listeners, the older keeps its streams."""
        self._refuse_a_third()
        config = self._new_config()
        old = self.newest
        self._tell("restarting")
        if old.link is None:
            old.keep_link()
        new = Envoy.start(config, old.epoch + 1, old.oldest_stream_s)
        self.processes.append(new)
        say("restarting", epoch=new.epoch, envoy_pid=new.pid)
        if self._until(lambda: self.admin.serves_epoch(new.epoch), START_S):
            self.config = config
            self.restarts += 1
            say("restarted", epoch=new.epoch, envoy_pid=new.pid, before_pid=old.pid, requests_before=_requests(old))
            return
        self._take_back(new)
        raise Refused(f"the new Envoy did not start (exit code {new.status}); the old one serves on")

    def _refuse_a_third(self) -> None:
        """One at a time: a third Envoy makes the first one end and cuts its streams."""
        before = self.before
        if before is None:
            return
        if before.alive and not (before.quiet is not None and (before.quiet() or before.quiet())):
            held = "an unknown number of streams" if before.quiet is None else before.quiet.held
            raise Refused(f"the Envoy before still holds {held}; one hot restart at a time")
        self._end(before)
        self._let_go()

    def _new_config(self) -> Config:
        """What is rendered now, judged by Envoy: one that dies while it starts is best not started."""
        try:
            config = self.config.rendered()
        except (OSError, ValueError) as error:
            raise Refused(f"the rendered settings cannot be read: {error}") from error
        lacking = config.missing()
        if lacking:
            raise Refused(f"missing or not readable: {', '.join(lacking)}")
        pid = spawn(config.judge())
        self.checks[pid] = None
        self._until(lambda: self.checks[pid] is not None, START_S)
        code = self.checks.pop(pid)
        if code is None:
            os.kill(pid, signal.SIGKILL)
        if code != 0:
            raise Refused("Envoy refuses its new bootstrap (its reason is in the log above); the old one serves on")
        return config

    def _take_back(self, new: Envoy) -> None:
        """A new Envoy that never served is not the end of the gateway."""
        self._end(new, signal.SIGKILL)
        self.processes.remove(new)
        new.forget()
        unmark_starting(self.config)
        if self.admin.is_live():
            self.newest.drop_link()

    def _let_go(self) -> None:
        """End the Envoy before once nobody needs it, and keep its successor from missing it."""
        before = self.before
        if before is None:
            return
        if before.alive and before.quiet is not None:
            now = time.monotonic()
            if not before.quiet():
                before.quiet_since = None
            elif before.quiet_since is None:
                before.quiet_since = now
            unused = before.quiet_since is not None and now - before.quiet_since >= IDLE_S
            if before.quiet_since is not None and (unused or before.quiet.connections == 0):
                self._end(before)
        if not before.alive:
            self.newest.answer_for(before)
            before.forget()
            self.processes.remove(before)
            say("released", epoch=before.epoch, envoy_pid=before.pid, envoy_exit=before.status)

    # ---- stop

    def _drain(self) -> None:
        """Turn new requests away and wait for those in flight, in both Envoys if there are two."""
        began = time.monotonic()
        serving = [self.admin, *(envoy.link for envoy in self.processes[:-1] if envoy.link is not None)]
        if self.newest.link is not None:  # its socket is lost: a restart failed after it was taken
            serving.append(self.newest.link)
        for order in DRAIN_ORDERS:
            for admin in serving:
                try:
                    admin.ask("POST", order)
                except AdminSilent as error:  # what is left of the drain still saves streams
                    say("draining", problem=str(error))
        quiet = [Quiet(admin) for admin in serving]
        for each in quiet:
            each()
        left = total(each.left for each in quiet)
        say("draining", requests=left, limit_s=self.config.drain_s)
        self._tell("draining", left)
        self._until(lambda: all([each() for each in quiet]), self.config.drain_s)  # a list: each one looks
        seconds, lost = round(time.monotonic() - began, 1), total(each.charges for each in quiet)
        say("drained", seconds=seconds, requests_cut=total(each.left for each in quiet), charges_lost=lost)

    def _end_all(self) -> None:
        """The newest first: it must not miss the one before."""
        for envoy in reversed(self.processes):
            self._end(envoy)

    def _end(self, envoy: Envoy, first: signal.Signals = signal.SIGTERM) -> None:
        for signum in (first, signal.SIGKILL):
            end = time.monotonic() + ENVOY_END_S
            if envoy.alive:
                envoy.send(signum)
            while envoy.alive and time.monotonic() < end:
                self._wait(POLL_S)

    def _died(self) -> int:
        code = self.newest.status or 0
        say("failed", reason="Envoy ended by itself", envoy_exit=code)
        if code < 0:
            return 128 - code
        return code or EXIT_ENVOY_ENDED

    # ---- signals, children, state

    def _until(self, check: Callable[[], bool], within_s: float = math.inf, every_s: float = POLL_S) -> bool:
        """Whether `check` came true before a (further) stop signal, the newest Envoy's end or the time limit."""
        stops, end = self.stops, time.monotonic() + within_s
        while time.monotonic() < end and self.stops == stops and self.newest.alive:
            if check():
                return True
            self._wait(every_s)
        return False

    def _wait(self, seconds: float) -> None:
        """Sleep until a signal comes; PID 1 also collects what others left behind."""
        got = signal.sigtimedwait(AWAITED, seconds)
        if got is not None and got.si_signo == signal.SIGHUP:
            self.wishes += 1
        elif got is not None and got.si_signo != signal.SIGCHLD:
            self.stops += 1
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._collected(pid, os.waitstatus_to_exitcode(status))

    def _collected(self, pid: int, code: int) -> None:
        if pid in self.checks:
            self.checks[pid] = code
        for envoy in self.processes:
            if envoy.pid == pid:
                envoy.status = code

    def _tell(self, phase: str, draining: int | None = None) -> None:
        """Write down what `entry.py state` prints."""
        self.phase = phase
        before, newest = self.before, self.newest
        told = {
            **{"phase": phase, "epoch": newest.epoch, "pid": newest.pid, "since": newest.since, **newest.digests},
            "previous": before and {"epoch": before.epoch, "pid": before.pid, "requests": _requests(before)},
            **{"restarts": self.restarts, "refusals": self.refusals, "refusal": self.refusal},
            "draining": draining,
        }
        path = self.config.state_file
        try:
            aside = path.with_suffix(".part")
            aside.write_text(json.dumps(told))
            aside.replace(path)
        except OSError as error:
            say("state", problem=str(error))


def _requests(envoy: Envoy) -> int | None:
    """Requests that an Envoy before still holds, as far as known."""
    return envoy.quiet.left if envoy.quiet is not None else None
