"""What the engine has to be asked so that it reports its tokens, and how the response filter hides the answer again.

Answers that are no streams, /v1/responses and /v1/messages report usage anyway. Streams of the two other routes do so
only when asked, and only with both options after every token, so that a stream that is cut is charged right.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

ASKED_ONLY = ("/v1/chat/completions", "/v1/completions")
OPTIONS = ("include_usage", "continuous_usage_stats")
PROMPT = ("messages", "prompt", "input", "system", "instructions")
MEDIA = ("image_url", "input_audio", "audio_url", "video_url", "file", "source", "file_data")  # bytes, not text
BYTES_PER_TOKEN = 4  # of UTF-8: English 4.3, Chinese 4.8
PIECE = 64 << 10
MOST_OPTIONS, LONGEST_OPTION = 16, 64  # of a client's stream_options, and characters of one
_COMPACT = json.JSONEncoder(separators=(",", ":"))

# What the engine's own reader takes for a boolean.
_TRUE = frozenset(("1", "true", "t", "yes", "y", "on"))
_FALSE = frozenset(("0", "false", "f", "no", "n", "off"))


@dataclass(frozen=True)
class UsagePlan:
    """A change of the body, and what the response filter has to know of it."""

    strip: str  # "all": hide every usage; "chunks": all but the final event; "": the client asked for what it gets
    prompt_estimate: int  # tokens, until the engine says better
    at: int = 0  # where in the body `added` belongs
    added: bytes = b""

    def changed(self, raw: bytes) -> bytes:
        """The body for the engine."""
        return raw[: self.at] + self.added + raw[self.at :] if self.added else raw

    def facts(self) -> dict[str, Any]:
        """What goes into the metadata of the request."""
        return {"strip": self.strip, "prompt_estimate": self.prompt_estimate}


def plan(path: str, raw: bytes, document: Mapping[str, Any]) -> UsagePlan:
    """What to change in a body that was judged; `document` is the object in it."""
    estimate = -(-_prompt(document) // BYTES_PER_TOKEN)
    silent = path in ASKED_ONLY and truth(document.get("stream")) is True
    given = _options(document) if silent else None
    if given is None or json.detect_encoding(raw) not in ("utf-8", "utf-8-sig"):
        return UsagePlan("", estimate)
    asked = truth(given.get("include_usage")) is True
    continuous = asked and truth(given.get("continuous_usage_stats")) is True
    if continuous:
        return UsagePlan("", estimate)
    # Of two members with one name the last one counts. A streaming request has members, so there is one before it.
    wanted = _COMPACT.encode({**_repeated(given), **dict.fromkeys(OPTIONS, True)})
    return UsagePlan("chunks" if asked else "all", estimate, raw.rindex(b"}"), f',"stream_options":{wanted}'.encode())


def _repeated(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The client's options. What the engine does not know is no option: beyond a few short ones it is left out."""
    some = islice(given.items(), MOST_OPTIONS)
    return {name: value for name, value in some if len(name) <= LONGEST_OPTION and _short(value)}


def _short(value: object) -> bool:
    """Numbers of a body are never long: its reader takes none beyond 64 bits for a whole one."""
    if isinstance(value, str):
        return len(value) <= LONGEST_OPTION
    return value is None or isinstance(value, (bool, int, float))


def _options(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The client's stream_options; None if the engine will refuse them, so that it does."""
    given = document.get("stream_options")
    if given is None:
        return {}
    if not isinstance(given, dict):
        return None
    good = all(given.get(name) is None or truth(given[name]) is not None for name in OPTIONS)
    return given if good else None


def truth(value: object) -> bool | None:
    """A boolean as the engine reads one; None for what is none."""
    if isinstance(value, (bool, int, float)):
        return bool(value) if value in (0, 1) else None
    if isinstance(value, str):
        word = value.lower()
        return True if word in _TRUE else False if word in _FALSE else None
    return None


def _prompt(document: Mapping[str, Any]) -> int:
    """Bytes of a prompt. Tools are written into it as JSON."""
    tools = len(orjson.dumps(document["tools"])) if document.get("tools") else 0
    return tools + sum(_bytes(document.get(name)) for name in PROMPT)


def _bytes(value: object) -> int:
    """Of all texts in a value; a prompt may also be tokens."""
    if isinstance(value, str):
        return len(value) if value.isascii() else _encoded(value)
    if isinstance(value, dict):
        return sum(_bytes(item) for name, item in value.items() if name not in MEDIA)
    if isinstance(value, list):
        tokens = value and type(value[0]) is int  # millions of them: what is mixed the engine refuses
        return BYTES_PER_TOKEN * len(value) if tokens else sum(map(_bytes, value))
    return BYTES_PER_TOKEN if type(value) is int else 0


def _encoded(text: str) -> int:
    """Piece by piece: a large text is not held once more."""
    return sum(len(text[at : at + PIECE].encode(errors="replace")) for at in range(0, len(text), PIECE))
