"""The real server's flags that change an answer; a flag that the release lacks ends the start, as there."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from stub.release import Release

_WITH_NUMBER = frozenset({"--max-num-queued-reqs", "--sse-keep-alive-interval"})


class UnknownFlag(Exception):
    """A flag that this release (or the stand-in) does not have."""


def parse(arguments: Sequence[str] | str, release: Release) -> Mapping[str, int]:
    """Flags with their number; 1 for those that are only there."""
    words = shlex.split(arguments) if isinstance(arguments, str) else list(arguments)
    found: dict[str, int] = {}
    while words:
        name, equals, value = words.pop(0).partition("=")
        if name not in release.flags or (equals and name not in _WITH_NUMBER):
            raise UnknownFlag(f"error: unrecognized arguments: {name}{equals}{value}")
        if name in _WITH_NUMBER:
            value = value if equals else (words.pop(0) if words else "")
            if not value.isdigit():
                raise UnknownFlag(f"error: argument {name}: invalid int value: {value!r}")
        found[name] = int(value or 1)
    return found
