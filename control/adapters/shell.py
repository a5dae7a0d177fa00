"""Runs external commands: argument tuples in, text out; never a shell string."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from control.core.errors import FlashboxError

Say = Callable[[str], None]
LAST_LINES = 12  # of a failed command's output, shown as the reason


@dataclass(frozen=True)
class Completed:
    """What a command left behind. `code` is None when it was not there or did not end in time."""

    args: tuple[str, ...]
    code: int | None
    out: str = ""
    err: str = ""
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def complaint(self) -> str:
        """The last lines of what it said, errors first."""
        text = self.err.strip() or self.out.strip()
        return "\n".join(text.splitlines()[-LAST_LINES:])


class CommandFailed(FlashboxError):
    """An external command ended with an error."""

    def __init__(self, done: Completed, why: str = "", fix: str = "") -> None:
        ending = "could not be run" if done.code is None else f"failed (exit {done.code})"
        super().__init__(f"`{shlex.join(done.args)}` {ending}", why or done.complaint, fix)
        self.done = done


class Shell:
    """Runs argument tuples in one folder and environment; `echo` is told each one (ctl.py -v)."""

    def __init__(self, cwd: Path, env: Mapping[str, str], echo: Say | None = None) -> None:
        self.cwd = cwd
        self.env = dict(env)
        self._echo = echo

    def run(
        self,
        args: Sequence[str],
        *,
        timeout_s: float | None = None,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        """Run to the end; raise CommandFailed if it did not end well. `env` and `stdin` are never echoed."""
        done = self.probe(args, timeout_s=timeout_s, stdin=stdin, env=env)
        if not done.ok:
            raise CommandFailed(done)
        return done

    def probe(
        self,
        args: Sequence[str],
        *,
        timeout_s: float | None = 10.0,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        """Run to the end and report; a missing or hanging command is an answer, not an error."""
        try:
            process = self._start(
                args, env, subprocess.PIPE if stdin is not None else subprocess.DEVNULL, subprocess.PIPE
            )
        except OSError as error:
            return Completed(tuple(args), None, err=f"{args[0]}: {error.strerror or error}")
        try:
            out, err = process.communicate(stdin, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _kill(process)
            return Completed(tuple(args), None, err=f"{args[0]}: no end within {timeout_s:g} s", timed_out=True)
        except BaseException:
            _interrupt(process)
            raise
        return Completed(tuple(args), process.returncode, out, err)

    def stream(self, args: Sequence[str], say: Say, *, env: Mapping[str, str] | None = None) -> None:
        """Run to the end; `say` gets each line of output and errors as it comes."""
        try:
            process = self._start(args, env, subprocess.DEVNULL, subprocess.STDOUT)
        except OSError as error:
            raise CommandFailed(Completed(tuple(args), None, err=f"{args[0]}: {error.strerror or error}")) from None
        tail: list[str] = []
        try:
            assert process.stdout is not None
            for line in process.stdout:
                tail = [*tail[1 - LAST_LINES :], line.rstrip()]
                say(line.rstrip())
            process.wait()
        except BaseException:
            _interrupt(process)
            raise
        if process.returncode:
            raise CommandFailed(Completed(tuple(args), process.returncode, err="\n".join(tail)))

    def attach(self, args: Sequence[str]) -> int:
        """Run with the terminal as it is (logs): output and Ctrl-C go straight to the command."""
        self._say(args)
        try:
            return subprocess.run(
                list(args), cwd=self.cwd, env=self.env, stdin=subprocess.DEVNULL, check=False
            ).returncode
        except OSError as error:
            raise CommandFailed(Completed(tuple(args), None, err=f"{args[0]}: {error.strerror or error}")) from None

    def _say(self, args: Sequence[str]) -> None:
        if self._echo:
            self._echo(f"+ {shlex.join(args)}")

    def _start(
        self, args: Sequence[str], env: Mapping[str, str] | None, stdin: int, stderr: int
    ) -> subprocess.Popen[str]:
        self._say(args)
        # A session of its own: Ctrl-C reaches the command once, from _interrupt, and a kill reaches its children.
        return subprocess.Popen(
            list(args),
            cwd=self.cwd,
            env={**self.env, **(env or {})},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            errors="replace",
            start_new_session=True,
        )


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _kill(process: subprocess.Popen[str]) -> None:
    """End it and all it started. A process stuck in the kernel is left behind rather than waited for."""
    _signal(process, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=2.0)


def _interrupt(process: subprocess.Popen[str]) -> None:
    """Pass Ctrl-C on and give the command time to put its things in order."""
    _signal(process, signal.SIGINT)
    try:
        process.wait(timeout=10.0)
    except subprocess.TimeoutExpired:
        _kill(process)
