"""Parts of the gate without a server: what it calls a hang, and how it listens."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from control.core import phases

PATH = Path(__file__).parents[3] / "images" / "gate" / "gate.py"
RECORDING = Path(__file__).parents[2] / "fixtures" / "vllm-0.26.0" / "start-cold.log"
METRICS = RECORDING.with_name("metrics.txt")


@pytest.fixture(scope="module")
def gate() -> ModuleType:
    """The script as a module; it stands in no package."""
    spec = importlib.util.spec_from_file_location("replica_gate", PATH)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Server:
    """A server under the watch, and the clock: what it says is set, what it was asked is kept."""

    def __init__(self, gate: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.tokens, self.requests = 1000.0, 0.0, 0.0
        self.silent = self.unreadable = False
        self.probes: list[float] = []
        self.compiled_at = 0.0
        self._gate = gate
        monkeypatch.setattr(gate.time, "monotonic", lambda: self.now)
        config = gate.Config(9100, "a:1", "m", "k", 2, 300, 1800, hang_s=300, probe_s=60)
        self.watch: Any = gate.Watch(config, self, self)

    def work(self, within_s: float) -> tuple[float, float]:
        if self.unreadable:
            raise self._gate.NotYet("GET /metrics: 404")
        return self.tokens, self.requests

    def complete(self, within_s: float) -> None:
        self.probes.append(within_s)
        if self.silent:
            self.now += within_s
            raise self._gate.NotYet("POST /v1/completions: timed out")
        self.tokens += 1

    def looks(self, seconds: float, every_s: float = 5.0) -> bool:
        """Look for so long; say whether it was called a hang."""
        end = self.now + seconds
        while self.now < end:
            self.now += every_s
            if self.watch.hung(self.watch.owed_s()):
                return True
        return False


@pytest.fixture
def server(gate: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server that was just found ready."""
    return Server(gate, monkeypatch)


def test_requests_without_a_token_are_a_hang_after_the_limit_and_not_before(server: Server) -> None:
    server.looks(50)
    server.requests = 3
    assert not server.looks(295)
    assert server.looks(15)
    assert server.probes == [] and "3" in server.watch.why


def test_any_movement_of_the_tokens_starts_the_limit_anew(server: Server) -> None:
    server.requests = 1
    assert not server.looks(290)
    server.tokens = 1
    assert not server.looks(290)
    server.tokens = 0  # even backwards: then they were counted anew
    assert not server.looks(290)
    assert server.looks(30)


def test_requests_that_end_without_a_token_owe_nothing_any_more(server: Server) -> None:
    for _ in range(10):
        server.requests = 1
        assert not server.looks(50)
        server.requests = 0
        assert not server.looks(10)


def test_an_idle_server_is_probed_at_the_interval_and_a_busy_one_never(server: Server) -> None:
    assert not server.looks(600)
    assert 8 <= len(server.probes) <= 10
    server.probes.clear()
    server.requests = 1
    for _ in range(100):
        server.tokens += 1
        assert not server.looks(5)
    assert server.probes == []


@pytest.mark.parametrize("unreadable", [False, True])
def test_a_probe_without_an_answer_is_given_what_is_left_of_the_limit(server: Server, unreadable: bool) -> None:
    server.silent, server.unreadable = True, unreadable
    begin = server.now
    assert server.looks(1000)
    assert server.probes[0] == 300
    assert server.now - begin < 60 + 300 + 50


def test_an_unanswered_probe_of_a_server_whose_tokens_move_is_no_hang(server: Server) -> None:
    server.silent = True
    server.looks(65)
    assert server.probes
    server.tokens += 1  # of a client that came meanwhile
    assert not server.looks(10)


def test_a_pause_of_the_whole_container_is_no_hang(server: Server) -> None:
    server.requests = 1
    server.looks(20)
    server.now += 10_000
    assert not server.looks(5)
    server.tokens += 1  # it had no time to move before
    assert not server.looks(200)


def test_kernels_that_are_compiled_pay_for_a_while(server: Server) -> None:
    server.requests = 1
    for _ in range(20):
        server.compiled_at = server.now
        assert not server.looks(50)
    assert server.looks(350)


def test_the_counts_are_read_from_a_real_page(gate: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    page = METRICS.read_bytes()
    upstream = gate.Upstream(None)
    monkeypatch.setattr(upstream, "_ask", lambda *_: page)
    tokens, requests = upstream.work(1)
    assert tokens > 0 and requests >= 0
    monkeypatch.setattr(upstream, "_ask", lambda *_: page.replace(b"num_requests_running", b"requests"))
    with pytest.raises(gate.NotYet):
        upstream.work(1)


@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 20])
def test_a_recorded_start_is_understood_in_pieces_of_any_size(gate: ModuleType, size: int) -> None:
    told: list[str] = []
    listener = gate.Listener(gate.Status(), lambda event: told.append(event.value))
    hear = listener.ear()
    content = RECORDING.read_bytes()
    for start in range(0, len(content), size):
        hear(content[start : start + size])
    assert told == ["compiling", "capturing"]
    assert set(told) <= set(phases._VERBS)


def test_a_listener_that_breaks_is_told_and_the_bytes_flow_on(gate: ModuleType) -> None:
    outside, ours = os.pipe()
    tap = gate.Tap(ours)

    def breaks(data: bytes) -> None:
        raise ValueError("broken")

    tap.start(breaks)
    os.write(ours, b"one\n")
    taken = b""
    while b"broken" not in taken:
        taken += os.read(outside, 1 << 16)
    os.write(ours, b"two\n")
    tap.stop()
    os.close(ours)
    os.close(tap._outside)
    while piece := os.read(outside, 1 << 16):
        taken += piece
    lines = taken.splitlines()
    assert (lines[0], lines[2:]) == (b"one", [b"two"])
    assert b'"event": "deaf"' in lines[1]
