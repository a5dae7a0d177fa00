"""The recorded requests and answers, and what it means that an answer is like a recorded one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parents[2] / "fixtures"
FOLDER = FIXTURES / "vllm-0.26.0"
RELEASES = ("0.26.0", "0.32.0", "0.33.0")
# Headers of the connection. Of a request's id only that there is one.
_NOT_COMPARED = {"content-length", "connection", "transfer-encoding", "location"}
_THERE = {"x-request-id"}
_ID = re.compile(r"^[0-9a-f]{32}$")
_CUT = re.compile(r"\.\.\. \((\d+) chars\)$")
Value = Any


@dataclass(frozen=True)
class Pair:
    """One recorded request with its answer."""

    server: str
    name: str
    method: str
    path: str
    request_headers: Mapping[str, str]
    body: bytes | None
    status: int
    headers: Mapping[str, str]
    answer: str

    @property
    def id(self) -> str:
        """How tests and tables call it."""
        return f"{self.server}/{self.name}"


def _filled(text: str) -> str:
    cut = _CUT.search(text)
    return text if cut is None else text[: cut.start()].ljust(int(cut[1]), "a")


def _body(line: Mapping[str, Any]) -> bytes | None:
    text = line["request_body"]
    if text is None:
        return None
    unit, times = line.get("repeat", ("", 0))
    if times:
        text = text.replace("@", unit * times)
    return text.encode().replace("\N{REPLACEMENT CHARACTER}".encode(), b"\xff")


def pairs() -> list[Pair]:
    """All recorded pairs; the letter of the server says which release it was."""
    return [pair for release in RELEASES for pair in _pairs(FIXTURES / f"vllm-{release}")]


def _pairs(folder: Path) -> list[Pair]:
    found = []
    for text in (folder / "responses.jsonl").read_text().splitlines():
        line = json.loads(text)
        headers = {name: _filled(value) for name, value in line["request_headers"].items()}
        answered = {name.lower(): value for name, value in line["headers"] if name.lower() not in _NOT_COMPARED}
        found.append(
            Pair(
                line["server"], line["name"], line["method"], _filled(line["path"]), headers,
                _body(line), line["status"], answered, line["body"],
            )
        )  # fmt: skip
    return found


def shape(value: Value) -> Value:
    """The tree of keys, in order, with the types of the leaves; a list is the set of its elements' shapes."""
    if isinstance(value, dict):
        return {"keys": [(key, shape(item)) for key, item in value.items()]}
    if isinstance(value, list):
        return {"items": _distinct(shape(item) for item in value)}
    return type(value).__name__


def _distinct(shapes: Iterable[Value]) -> list[Value]:
    found: list[Value] = []
    for item in shapes:
        if item not in found:
            found.append(item)
    return found


def events(text: str) -> list[Value]:
    """The events of a stream; `[DONE]` stays a text."""
    found = [_event(block) for block in text.split("\n\n") if block.strip("\n")]
    for event in found:
        _forget_free_keys(event)
    return found


def _event(block: str) -> Value:
    name, _, data = block.rpartition("data: ")
    value = data if data == "[DONE]" else json.loads(data)
    assert name in ("", f"event: {value['type']}\n" if isinstance(value, dict) and "type" in value else ""), block
    return value


def understood(text: str, content_type: str) -> Value:
    """An answer as something whose shape can be compared: distinct event shapes for a stream."""
    if content_type.startswith("text/event-stream"):
        return _distinct(event if event == "[DONE]" else shape(event) for event in events(text))
    if content_type.startswith("application/json") and text:
        value = json.loads(text)
        _forget_free_keys(value)
        error = value.get("error") if isinstance(value, dict) else None
        return {
            "shape": shape(value),
            "error": error if isinstance(error, dict) else None,
            "detail": value.get("detail"),
        }
    return text


def _forget_free_keys(value: Value) -> None:
    """Names and lengths that are data: a token's alternatives, the bytes of a token (may be none)."""
    if not isinstance(value, dict):
        return
    _forget_names(value)
    for choice in value.get("choices", []):
        _forget_names(choice)
        for token in (choice.get("logprobs") or {}).get("content", []):
            for part in (token, *token["top_logprobs"]):
                part["bytes"] = part["bytes"] or [0]
        if choice.get("text") is not None and choice.get("logprobs"):
            choice["logprobs"]["top_logprobs"] = [len(item or ()) > 0 for item in choice["logprobs"]["top_logprobs"]]


def _forget_names(value: Value) -> None:
    if value.get("prompt_logprobs"):
        value["prompt_logprobs"] = [list(item.values()) if item else item for item in value["prompt_logprobs"]]


def differences(pair: Pair, status: int, headers: Mapping[str, str], answer: str) -> list[str]:
    """How an answer differs from the recorded one: status, headers, shape; of errors also type, param and message."""
    if status != pair.status:
        return [f"status {status}, recorded {pair.status}: {answer[:300]}"]
    found = [
        f"header {name}: {headers.get(name)!r}, recorded {value!r}"
        for name, value in pair.headers.items()
        if not _same_header(name, headers.get(name), value)
    ]
    if pair.path == "/metrics" or pair.method == "HEAD":
        return found
    kind = pair.headers.get("content-type", "")
    if _CUT.search(pair.answer) and status >= 400:
        return found + _cut_differences(pair.answer, answer)
    ours, recorded = understood(answer, kind), understood(_mended(pair.answer, kind), kind)
    if _CUT.search(pair.answer) and isinstance(ours, list):  # events of the gap are not known
        ours = [shape for shape in ours if shape in recorded]
    return found if ours == recorded else [*found, f"answer {answer[:900]!r}\nrecorded {pair.answer[:900]!r}"]


def _same_header(name: str, ours: str | None, recorded: str) -> bool:
    """Of an id that the server made, only its form."""
    if name in _THERE and ours and _ID.match(recorded):
        return bool(_ID.match(ours))
    return ours == recorded


def _mended(recorded: str, kind: str) -> str:
    """A long answer without its middle, made whole again: its elements before and after the gap."""
    if not _CUT.search(recorded):
        return recorded
    text = _CUT.sub("", recorded)
    gaps = [match.start() for match in re.finditer(r"\.\.\.", text)] or [len(text)]
    gap = min(gaps, key=lambda place: abs(place - len(text) // 2))
    before, after = text[:gap], text[gap + 3 :]
    if kind.startswith("text/event-stream"):
        return (
            before[: before.rindex("\n\n")] + after[after.find("\n\n") :] if after else before[: before.rindex("\n\n")]
        )
    last = max(before.rfind(end) + len(end) for end in ("}},", "[null,") if end in before)
    return before[:last] + after[after.index('}},{"') + 3 :]


def _cut_differences(recorded: str, answer: str) -> list[str]:
    """The recording of a long error body lacks its middle: compare its end, which says type and param."""
    end = _CUT.sub("", recorded).rpartition('","type":')[2]
    return [] if answer.endswith(end) else [f"ends {answer[-200:]!r}, recorded {end!r}"]
