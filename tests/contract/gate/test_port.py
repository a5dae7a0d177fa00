"""The gate's own port: two paths, GET and HEAD, and no client can hold it up."""

from __future__ import annotations

import signal
import socket

from tests.contract.gate.process import GateProcess


def test_head_answers_like_get_without_a_body(gate: GateProcess) -> None:
    gate.set("hold_load")
    gate.start()
    gate.in_phase("loading")
    assert gate.get("/ready", "HEAD")[0] == 503
    gate.unset("hold_load")
    gate.in_phase("ready")
    with socket.create_connection(("127.0.0.1", gate.port)) as client:
        client.sendall(b"HEAD /ready HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.0 200") and b"Content-Length: " in answer
    assert answer.endswith(b"\r\n\r\n") and answer.count(b"\r\n\r\n") == 1


def test_an_unknown_path_is_404(gate: GateProcess) -> None:
    gate.start()
    gate.in_phase("ready")
    assert gate.get("/health")[0] == 404
    assert gate.get("/ready?x=1")[0] == 200


def test_state_tells_when_the_phase_began(gate: GateProcess) -> None:
    gate.start()
    state = gate.in_phase("ready")
    assert set(state) == {"phase", "since", "phase_s", "loaded", "last_error", "pid"}
    assert state["since"] > 1_700_000_000 and state["phase_s"] >= 0


def test_slow_clients_hold_up_neither_answers_nor_the_stop(gate: GateProcess) -> None:
    gate.start()
    gate.in_phase("ready")
    slow = [socket.create_connection(("127.0.0.1", gate.port)) for _ in range(50)]
    for client in slow:
        client.sendall(b"GET /ready HT")
    assert gate.get("/ready")[0] == 200
    gate.signal(signal.SIGTERM)
    assert gate.exit_code() == 0
    for client in slow:
        client.close()


def test_a_port_in_use_is_told_and_the_server_is_not_started(gate: GateProcess) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", gate.port))
        holder.listen()
        gate.start()
        assert gate.exit_code() == 2
    (line,) = gate.log()
    assert line["what"] == f"GATE_PORT={gate.port}" and "in use" in line["why"] and line["fix"]
    assert not (gate.folder / "started").exists()
