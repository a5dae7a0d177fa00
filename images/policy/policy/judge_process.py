"""The process that judges for a worker: questions on a socket, one JSON object each, bodies and rules as handles."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import socket
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, TextIO

from policy.body import read_whole
from policy.config import MIB, Config
from policy.judge import Rules
from policy.judgement import Question, judge
from policy.log import say

MESSAGE = 200_000  # longest question or answer
KEPT_BYTES = 64 * MIB  # a judge that has grown by more ends after its answer; the next one starts small
LOCK = "judging.lock"  # held while a large body is judged: one at a time in the whole container


def main(arguments: list[str]) -> int:
    """Judge what comes until the socket is closed."""
    link = socket.socket(fileno=int(arguments[0]))
    lock = Config.read(os.environ).state / LOCK
    at_rest = memory_of(os.getpid())
    _offer_itself()
    rules: Rules | None = None
    while True:
        text, handles, _, _ = socket.recv_fds(link, MESSAGE, 2)
        if not text:
            return 0
        asked = json.loads(text)
        try:
            if "rules" in asked:
                rules = Rules.parse(read_whole(handles[1], asked["rules"]))
            answer = _answer(rules, asked, handles[0], lock)
        except (MemoryError, RecursionError) as error:
            say("judge over its memory", kind=type(error).__name__, size=asked["size"])
            answer = {"over": True}
        finally:
            for handle in handles:
                os.close(handle)
        answer["last"] = answer.get("over", False) or memory_of(os.getpid()) - at_rest > KEPT_BYTES
        link.send(json.dumps(answer).encode())
        if answer["last"]:
            return 0


def _answer(rules: Rules | None, asked: dict[str, Any], handle: int, lock: Path) -> dict[str, Any]:
    if rules is None:
        raise RuntimeError("asked before there were rules")
    with lock.open("w") if asked["alone"] else nullcontext() as turn:
        _wait_for(turn)
        return _said(rules, asked, handle)


def _wait_for(turn: TextIO | None) -> None:
    if turn is not None:
        fcntl.flock(turn, fcntl.LOCK_EX)


def _said(rules: Rules, asked: dict[str, Any], handle: int) -> dict[str, Any]:
    """In a function of its own, so that the document is gone before another judge begins."""
    return judge(rules, Question.load(asked), read_whole(handle, asked["size"])).dump()


def memory_of(pid: int) -> int:
    """Private bytes of a process that are in use; 0 if it is gone."""
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * resource.getpagesize()


def _offer_itself() -> None:
    """Should the container's memory run out all the same, the kernel ends this process and no other."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core would hold what a client sent
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
