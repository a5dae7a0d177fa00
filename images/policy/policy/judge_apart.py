"""Bodies that take their time are judged in a process of their own: it stalls nobody, and it can be ended."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

from policy.body import Body, anonymous_file
from policy.config import MIB
from policy.judge_process import MESSAGE, memory_of
from policy.judgement import Judgement, Question
from policy.log import say
from policy.rulebook import Rulebook

LOOK_EVERY_S = 0.02


class TooComplex(Exception):
    """The body takes more memory, or more time, than a judgement may have."""


class Apart:
    """Asks one judge, one question at a time; starts another when that one has ended."""

    def __init__(self, memory: int, longest_s: float, alone: bool) -> None:
        """`alone`: only one such judgement at a time in the whole container."""
        self._memory, self._longest_s, self._alone = memory, longest_s, alone
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="judge")
        self._lock = Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._digest = ""

    async def judge(self, book: Rulebook, question: Question, body: Body) -> Judgement:
        """The judgement, or TooComplex. Who is cancelled before the turn came leaves the queue."""
        body.spill()
        queued = self._thread.submit(self._judge, book, question, body)
        judging = asyncio.wrap_future(queued)
        try:
            return await asyncio.shield(judging)
        except asyncio.CancelledError:
            if not queued.cancel():  # the judge reads the file: keep it, and its place, until it is done
                await asyncio.wait((judging,))
            raise

    def start(self) -> None:
        """Have a judge there before the first question."""
        self._thread.submit(self._have_child)

    def _have_child(self) -> None:
        with self._lock:
            if self._socket is None:
                self._start()

    def _judge(self, book: Rulebook, question: Question, body: Body) -> Judgement:
        with self._lock:
            fresh = self._digest == ""
            try:
                return self._ask(book, question, body)
            except TooComplex:
                if fresh:
                    raise
            return self._ask(book, question, body)  # what it had kept of earlier bodies may be the reason

    def _ask(self, book: Rulebook, question: Question, body: Body) -> Judgement:
        link = self._socket or self._start()
        asked: dict[str, Any] = {**question.dump(), "size": body.size, "alone": self._alone}
        handles = [body.handle()]
        if book.digest != self._digest:
            handles.append(anonymous_file())
            os.write(handles[1], book.data)
            asked["rules"] = len(book.data)
        said: dict[str, Any] = {"over": True}
        try:
            socket.send_fds(link, [json.dumps(asked).encode()], handles)
            said = json.loads(self._answer(link) or b'{"over": true}')
        except OSError as error:
            raise TooComplex(type(error).__name__) from None
        finally:
            if said.get("over") or said["last"]:
                self._end()  # whatever it may still say is no answer to the next question
            else:
                self._digest = book.digest
            for extra in handles[1:]:
                os.close(extra)
        if said.get("over"):
            raise TooComplex("memory")
        return Judgement.load(said)

    def _answer(self, link: socket.socket) -> bytes:
        """Wait, and look now and then at what the judge takes: TooComplex when it is more than it may."""
        begun = time.monotonic()
        while True:
            try:
                return link.recv(MESSAGE)
            except TimeoutError:
                taken, waited_s = memory_of(self._child.pid) if self._child else 0, time.monotonic() - begun
                if taken > self._memory or waited_s > self._longest_s:
                    say("judge ended", memory_mib=taken // MIB, waited_s=round(waited_s, 1))
                    raise TooComplex("limit") from None

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [sys.executable, "-m", "policy", "judge", str(theirs.fileno())]
            self._child = subprocess.Popen(words, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        ours.settimeout(LOOK_EVERY_S)
        self._socket, self._digest = ours, ""
        return ours

    def _end(self) -> None:
        """End the judge. The next question starts another."""
        if self._socket is not None:
            self._socket.close()
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        self._socket, self._child, self._digest = None, None, ""

    def close(self) -> None:
        """No more questions."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._end()
