"""The real Envoy asks the gate, not the server: no request before ready, none lost at a stop or a death."""

from __future__ import annotations

import http.client
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.gate.envoy import Envoy
from tests.contract.gate.process import LONG_S, GateProcess, Stream, dead
from tests.eventually import eventually

Pair = tuple[GateProcess, GateProcess]


class Load:
    """Clients that send one short request after the other until told to stop."""

    def __init__(self, envoy: Envoy, clients: int = 4) -> None:
        self._envoy = envoy
        self._stop = threading.Event()
        self.answers: list[tuple[int, str]] = []
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.answers.append(self._envoy.complete())
            except (OSError, http.client.HTTPException) as error:
                self.answers.append((0, str(error)))

    def goes_on(self, more: int = 100) -> None:
        """Wait until so many more answers are there."""
        goal = len(self.answers) + more
        eventually(lambda: len(self.answers) >= goal, LONG_S)

    def last_from(self, count: int) -> set[str]:
        """Return which replicas gave the last answers."""
        return {replica for _, replica in self.answers[-count:]}

    def end(self) -> list[tuple[int, str]]:
        """Stop and return every answer."""
        self._stop.set()
        for thread in self._threads:
            thread.join(LONG_S)
        return self.answers


@pytest.fixture
def pair(new_gate: Callable[[str], GateProcess]) -> Pair:
    """Two gates that are not started yet; the notice outlasts several health checks."""
    gates = new_gate("engine-0"), new_gate("engine-1")
    for gate in gates:
        gate.environment["GATE_NOTICE_S"] = "3"
    return gates


@pytest.fixture
def envoy(pair: Pair, tmp_path: Path) -> Iterator[Envoy]:
    """Envoy in front of both."""
    process = Envoy(tmp_path / "envoy", pair)
    yield process
    process.end()


@pytest.fixture
def both_ready(pair: Pair, envoy: Envoy) -> Pair:
    """Both serve, and Envoy knows it."""
    for gate in pair:
        gate.start()
    for gate in pair:
        eventually(lambda gate=gate: envoy.healthy(gate), LONG_S)  # type: ignore[misc]
    return pair


def test_no_request_reaches_a_server_before_its_gate_is_ready(pair: Pair, envoy: Envoy) -> None:
    steady, late = pair
    steady.start()
    late.set("hold_load")
    late.set("completion", "500")
    late.start()
    eventually(lambda: envoy.healthy(steady), LONG_S)
    load = Load(envoy)
    load.goes_on()  # engine-1 does not listen
    late.unset("hold_load")
    eventually(lambda: "500" in (late.state()["last_error"] or ""), LONG_S)
    load.goes_on()  # engine-1 says 200 on /health and cannot complete
    assert late.journal() == []
    late.set("completion", "ok")
    eventually(late.journal, LONG_S)
    answers = load.end()
    assert {status for status, _ in answers} == {200}
    assert all(request["ready"] for request in late.journal())


def test_without_a_ready_gate_envoy_answers_503_and_sends_nothing(pair: Pair, envoy: Envoy) -> None:
    for gate in pair:
        gate.set("completion", "500")
        gate.start()
        eventually(lambda gate=gate: gate.state()["phase"] == "warming", LONG_S)  # type: ignore[misc]
    eventually(lambda: len(envoy.health()) == 2, LONG_S)
    assert [envoy.complete()[0] for _ in range(20)] == [503] * 20
    assert pair[0].journal() == pair[1].journal() == []


def test_a_stop_under_load_loses_no_request_and_cuts_no_stream(both_ready: Pair, envoy: Envoy) -> None:
    leaving, staying = both_ready
    for gate in both_ready:
        gate.set("hold_streams")
    streams = [Stream(envoy.port) for _ in range(20)]
    eventually(lambda: all(stream.begun() for stream in streams), LONG_S)
    assert {stream.replica for stream in streams} == {leaving.name, staying.name}
    load = Load(envoy)
    load.goes_on()
    leaving.signal(signal.SIGTERM)
    eventually(lambda: not envoy.healthy(leaving), LONG_S)
    load.goes_on()
    leaving.unset("hold_streams")
    assert leaving.exit_code() == 0
    load.goes_on()
    staying.unset("hold_streams")
    assert all(stream.whole() for stream in streams)
    assert {status for status, _ in load.end()} == {200}


def test_a_gate_that_was_told_to_stop_gets_no_new_request_while_its_server_still_serves(
    both_ready: Pair, envoy: Envoy
) -> None:
    stopped, staying = both_ready
    stopped.signal(signal.SIGTERM)
    stopped.exit_code()
    stopped.start(GATE_NOTICE_S="3600")
    eventually(lambda: envoy.complete() == (200, stopped.name), LONG_S)
    load = Load(envoy)
    load.goes_on()
    stopped.signal(signal.SIGTERM)
    # Envoy's main thread knows of it before its workers do, and on a busy machine many requests fit in between.
    eventually(lambda: load.last_from(100) == {staying.name}, LONG_S)
    assert {status for status, _ in load.end()} == {200}
    assert Stream(stopped.server_port).whole()
    assert stopped.state()["phase"] == "draining"


def test_requests_sent_after_the_death_of_a_server_all_succeed(both_ready: Pair, envoy: Envoy) -> None:
    dying, staying = both_ready
    server = dying.state()["pid"]
    load = Load(envoy)
    load.goes_on()
    os.kill(server, signal.SIGKILL)
    eventually(lambda: dead(server), LONG_S)
    sent_after = Load(envoy)
    sent_after.goes_on(200)
    assert set(sent_after.end()) == {(200, staying.name)}
    load.end()
    assert dying.exit_code() == 128 + signal.SIGKILL


def test_a_server_that_swallows_sigterm_while_it_starts_is_killed_and_no_client_notices(
    pair: Pair, envoy: Envoy
) -> None:
    staying, starting = pair
    staying.start()
    starting.set("hold_load")
    starting.start("--deaf", GATE_NOTICE_S="3600", GATE_DRAIN_S="3600")
    server = starting.number("started")
    eventually(lambda: envoy.healthy(staying), LONG_S)
    load = Load(envoy)
    load.goes_on()
    starting.signal(signal.SIGTERM)
    assert starting.exit_code() == 0
    assert dead(server)
    load.goes_on()
    assert set(load.end()) == {(200, staying.name)}
    assert starting.journal() == []


def test_a_server_that_hangs_is_killed_and_every_later_request_goes_to_the_other(
    both_ready: Pair, envoy: Envoy
) -> None:
    hanging, staying = both_ready
    for gate in both_ready:
        gate.signal(signal.SIGTERM)
    for gate in both_ready:
        gate.exit_code()
    hanging.start(GATE_HANG_S="2", GATE_PROBE_S="3600")
    staying.start()
    for gate in both_ready:
        gate.in_phase("ready")
        # Not what Envoy's main thread says of its health: its workers learn of it a moment later.
        eventually(lambda gate=gate: envoy.complete() == (200, gate.name), LONG_S)  # type: ignore[misc]
    hanging.set("hold_streams")
    streams = [Stream(envoy.port) for _ in range(20)]
    assert hanging.exit_code() == 70  # its /health said 200 all the time
    later = Load(envoy)
    later.goes_on()
    assert set(later.end()) == {(200, staying.name)}
    ended = {stream.replica: stream.whole() for stream in streams}
    assert ended == {hanging.name: False, staying.name: True}
    hanging.unset("hold_streams")
    hanging.start()
    eventually(lambda: envoy.complete() == (200, hanging.name), LONG_S)


def test_a_replica_that_comes_back_gets_requests_again(both_ready: Pair, envoy: Envoy) -> None:
    returning, _ = both_ready
    returning.signal(signal.SIGTERM)
    assert returning.exit_code() == 0
    eventually(lambda: not envoy.healthy(returning), LONG_S)
    returning.start()
    eventually(lambda: envoy.complete() == (200, returning.name), LONG_S)
