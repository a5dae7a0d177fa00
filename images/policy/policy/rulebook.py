"""The rules in force: rules.json as the control program renders it, re-read when it is replaced."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from policy.affinity import MODES
from policy.judge import Rules, Violation
from policy.log import say
from policy.onward import Wishes

NAME = "rules.json"
LOOK_EVERY_S = 0.5


@dataclass(frozen=True)
class Rulebook:
    """One version of the rules, and the settings that travel with them."""

    rules: Rules
    data: bytes  # as read, for the process that judges large bodies
    digest: str
    version: str
    observe: bool
    max_body_bytes: int
    context: int
    truncate: bool
    served_model: str
    tokenize_url: str
    forms: dict[str, str]  # route -> form of its errors
    wishes: Wishes

    @classmethod
    def parse(cls, data: bytes) -> Rulebook:
        """Raises ValueError for anything that is not a complete set of rules."""
        try:
            given: dict[str, Any] = orjson.loads(data)
            return cls(
                rules=Rules.parse(data),
                data=data,
                digest=hashlib.sha256(data).hexdigest(),
                version=str(given["version"])[:12],
                observe=given["mode"] == "observe",
                max_body_bytes=int(given["max_body_bytes"]),
                context=int(given["context"]),
                truncate=bool(given["truncate"]),
                served_model=str(given["served_model"]),
                tokenize_url=str(given["tokenize_url"]),
                forms={path: str(route["form"]) for path, route in given["routes"].items()},
                wishes=Wishes(usage=given.get("usage") is True, affinity=_affinity(given)),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None

    def route(self, path: str) -> str:
        """The path as a label: one of the known ones."""
        return path if path in self.forms else "other"

    def error(self, violation: Violation, path: str, request_id: str) -> bytes:
        """The body of a refusal."""
        return violation.body(self.forms.get(path, "openai"), request_id)


def _affinity(given: dict[str, Any]) -> str:
    mode = given.get("affinity") or "none"
    if mode not in MODES:
        raise ValueError(f"affinity: {str(mode)[:40]!r} is none of {', '.join(MODES)}")
    return str(mode)


class Shelf:
    """Where the current rules are found."""

    def __init__(self, folder: Path, changed: Callable[[Rulebook | None], None]) -> None:
        """`changed` is told each new version, and None for a file that cannot be used."""
        self._path = folder / NAME
        self._changed = changed
        self._seen: tuple[int, ...] | None = None
        self._book: Rulebook | None = None

    @property
    def current(self) -> Rulebook:
        """The last good rules; only asked once there are some (see `loaded`)."""
        if self._book is None:
            raise RuntimeError("no rules are loaded")
        return self._book

    @property
    def loaded(self) -> bool:
        return self._book is not None

    def look(self) -> None:
        """Read the file if it is another than last time; a broken one leaves the last good rules in force."""
        try:
            stat = os.stat(self._path)
            seen = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            if seen == self._seen:
                return
            data = self._path.read_bytes()
            self._seen = seen
            book = Rulebook.parse(data)
        except FileNotFoundError:
            if self._seen != ():
                self._seen = ()
                self._failed("there is no rules.json")
            return
        except (OSError, ValueError) as error:
            self._failed(f"{type(error).__name__}: {str(error)[:300]}")  # rules are ours: their text may be said
            return
        if self._book is None or book.digest != self._book.digest:
            say("rules loaded", version=book.version, observe=book.observe)
        self._book = book
        self._changed(book)

    def _failed(self, why: str) -> None:
        kept = self._book.version if self._book else None
        say("rules not loaded", error=why, kept=kept)
        self._changed(None)

    async def watch(self) -> None:
        """Look for ever."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)
