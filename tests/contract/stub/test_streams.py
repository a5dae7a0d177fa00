"""The bytes of a stream: one event a chunk, the recorded fields in the recorded order, the recorded ends."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.contract.stub.conftest import Servers
from tests.contract.stub.process import Stub
from tests.contract.stub.recordings import FOLDER

_TEXTS = re.compile(r':"(?:[^"\\]|\\.)*"')
_NUMBERS = re.compile(r":-?\d[\d.]*")
_BYTES = re.compile(r'"bytes":\[[\d,]*\]')


# Files of the fixtures, each with the letter of its server.
FILES = {"sse.txt": "C", "sse-deepseek-v4.txt": "D"}


@dataclass(frozen=True)
class Recorded:
    """One recorded exchange."""

    server: str
    title: str
    path: str
    body: str
    raw: bytes

    @property
    def id(self) -> str:
        """How the test calls it."""
        return f"{self.server}/{self.title}"


def exchanges() -> Iterator[Recorded]:
    """What the files hold."""
    for name, server in FILES.items():
        for part in re.split(r"\n(?=##### [a-z])", "\n" + (FOLDER / name).read_text()):
            asked = re.search(r"##### > POST (\S+) (.*)\n", part)
            if asked is None:
                continue
            title = part.strip().splitlines()[0].removeprefix("##### ")
            received = re.split(r"##### \+[\d.]+s recv \d+ bytes\n", part)[1:]
            text = "".join(received).split("\n##### closed by server")[0].replace("\\r\n", "\r\n")
            yield Recorded(server, title, asked[1], asked[2], text.encode())


EXCHANGES = list(exchanges())


def exchange(stub: Stub, path: str, body: str) -> bytes:
    """All bytes of an answer on a connection that the server closes."""
    with socket.create_connection(("127.0.0.1", stub.port), timeout=30) as connection:
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
        head += "authorization: Bearer k-two\r\n"
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
        return b"".join(parts)


def chunks(body: bytes) -> list[str]:
    """The chunks of a chunked body."""
    found = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        assert rest[length : length + 2] == b"\r\n"
        found.append(rest[:length].decode())
        body = rest[length + 2 :]
    return found


def skeleton(text: str) -> str:
    """An event with its texts, numbers and bytes blanked out: what is left is form."""
    return _BYTES.sub('"bytes":[]', _NUMBERS.sub(":0", _TEXTS.sub(':"~"', text)))


def runs(texts: list[str]) -> list[str]:
    """Skeletons without repetitions: how many events the text came in is the model's doing."""
    found: list[str] = []
    for text in map(skeleton, texts):
        if not found or found[-1] != text:
            found.append(text)
    return found


def head_and_body(raw: bytes) -> tuple[list[str], bytes]:
    """Header lines without date, order of the request's id, and the body."""
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = [line for line in head.decode().split("\r\n") if not line.startswith("date: ")]
    return sorted("x-request-id: *" if line.startswith("x-request-id: ") else line for line in lines), body


def facts(chunk: str) -> Any:
    """What must be equal and not only alike: why it ended, the token counts, the kind of object, the role."""
    text = chunk.rpartition("data: ")[2].strip()
    if not text.startswith("{"):
        return text
    event = json.loads(text)
    inner = event.get("response", event)
    ends = event.get("delta", {}) if isinstance(event.get("delta"), dict) else {}
    choices = [(choice["finish_reason"], choice.get("delta", {}).get("role")) for choice in event.get("choices", [])]
    names = ("object", "model", "usage", "status", "incomplete_details", "max_output_tokens", "reasoning")
    return choices, ends.get("stop_reason"), [inner.get(name) for name in names]


@pytest.mark.parametrize("recorded", EXCHANGES, ids=[recorded.id for recorded in EXCHANGES])
def test_a_recorded_stream_has_the_recorded_bytes_but_for_its_text(recorded: Recorded, servers: Servers) -> None:
    our_head, our_body = head_and_body(exchange(servers(recorded.server), recorded.path, recorded.body))
    head, body = head_and_body(recorded.raw)
    assert our_head == head
    if body.startswith(b"{"):
        assert our_body == body
        return
    ours, theirs = chunks(our_body), chunks(body)
    if recorded.server == "C" and "completions" in recorded.path:  # one event for each token, with text or without
        assert [skeleton(chunk) for chunk in ours] == [skeleton(chunk) for chunk in theirs]
        assert [facts(chunk) for chunk in ours] == [facts(chunk) for chunk in theirs]
    else:
        assert_alike(ours, theirs)


def assert_alike(ours: list[str], theirs: list[str]) -> None:
    """The same events in the same order; only text that the recorded model did not have may come between them."""
    our_runs, their_runs = runs(ours), runs(theirs)
    extra = [text for text in our_runs if text not in their_runs]
    assert [text for text in our_runs if text in their_runs] == their_runs
    assert all('"delta":{"content":"~"}' in text for text in extra), extra
    assert [facts(chunk) for chunk in ends(ours)] == [facts(chunk) for chunk in ends(theirs)]


def ends(found: list[str]) -> list[str]:
    """The first event and the last ones: the end of the answer and its usage."""
    return [found[0], *found[-2:]]


def test_all_recorded_exchanges_are_compared() -> None:
    counts = {server: sum(recorded.server == server for recorded in EXCHANGES) for server in "CD"}
    assert (counts, sum(b"[DONE]" in recorded.raw for recorded in EXCHANGES)) == ({"C": 8, "D": 12}, 12)
