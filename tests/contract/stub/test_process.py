"""Starting, stopping and dying, as vLLM 0.26.0 does them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

from tests.contract.stub.conftest import StartStub
from tests.contract.stub.process import ROOT, Stub, free_port
from tests.eventually import eventually

ENGINE_LOST = "EngineCore encountered an issue. See stack trace (above) for the root cause."


def ended(stub: Stub) -> bool:
    return stub.process.poll() is not None


def run_with(**environment: str) -> subprocess.CompletedProcess[str]:
    """A stand-in that must not start."""
    command = [sys.executable, "-m", "stub"]
    variables = {"PYTHONPATH": str(ROOT / "images/stub"), "PATH": "/usr/bin:/bin", **environment}
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=30)


def test_a_wrong_setting_ends_the_start_with_status_2_and_one_line_that_names_it() -> None:
    cases = {
        "STUB_MAX_NUM_SEQS": ("0", "STUB_MAX_NUM_SEQS: expected an integer of at least 1, found '0'"),
        "STUB_LOAD_S": ("nan", "STUB_LOAD_S: expected seconds, at least 0, found 'nan'"),
        "STUB_PORT": ("http", "STUB_PORT: expected a port, 0 to 65535, found 'http'"),
        "STUB_PROT": ("80", "STUB_PROT: unknown setting (did you mean STUB_PORT?)"),
        "STUB_TOKENIZER": ("gpt", "STUB_TOKENIZER: expected pieces or bytes, found 'gpt'"),
    }
    for variable, (value, line) in cases.items():
        result = run_with(**{variable: value})
        assert (result.returncode, result.stdout, result.stderr) == (2, "", f"stub: {line}\n")


def test_a_port_that_is_taken_ends_the_start_with_status_1_and_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        for variable, other in (("STUB_PORT", "STUB_CONTROL_PORT"), ("STUB_CONTROL_PORT", "STUB_PORT")):
            result = run_with(STUB_HOST="127.0.0.1", **{variable: str(port), other: str(free_port())})
            assert result.returncode == 1
            assert result.stderr == f"stub: {variable}: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_while_it_loads_connections_are_refused_and_a_first_sigterm_is_swallowed(start_stub: StartStub) -> None:
    stub = start_stub(wait=False, STUB_LOAD_S=1.5)
    assert eventually(lambda: "shards" in stub.log.read_text(), 10)
    assert stub.refuses_connections()
    stub.terminate()
    assert eventually(lambda: "swallowed" in stub.log.read_text(), 5)
    assert eventually(lambda: stub.request("GET", "/health")[0] == 200, 10)
    assert "100% Completed | 46/46" in stub.log.read_text()
    stub.terminate()
    assert stub.process.wait(10) == 0


def test_a_second_sigterm_ends_the_load(start_stub: StartStub) -> None:
    stub = start_stub(wait=False, STUB_LOAD_S=60)
    assert eventually(lambda: "shards" in stub.log.read_text(), 10)
    stub.terminate()
    assert eventually(lambda: "swallowed" in stub.log.read_text(), 5)
    stub.terminate()
    assert stub.process.wait(10) == -2


def test_sigterm_closes_port_and_idle_connections_and_lets_streams_end_whole(start_stub: StartStub) -> None:
    stub = start_stub(STUB_DECODE_TOKENS_PER_S=20, STUB_MAX_NUM_SEQS=2)
    streams = [stub.stream(max_tokens=40) for _ in range(3)]  # the third one waits in the queue
    idle = socket.create_connection(("127.0.0.1", stub.port), timeout=10)
    assert eventually(lambda: stub.metric("vllm:num_requests_waiting") == 1, 5)
    stub.terminate()
    assert eventually(stub.refuses_connections, 2)
    assert idle.recv(1) == b""
    stub.terminate()  # ignored while it drains
    bodies = [answer.read() for _, answer in streams]
    assert [body.count(b"\n\n") for body in bodies] == [42] * 3
    assert all(b'"finish_reason":"length"' in body and body.endswith(b"data: [DONE]\n\n") for body in bodies)
    assert stub.process.wait(10) == 0


def test_sigterm_without_work_ends_it_with_status_0(start_stub: StartStub) -> None:
    stub = start_stub()
    stub.terminate()
    assert stub.process.wait(10) == 0


def test_when_the_drain_time_is_over_streams_end_with_an_error_event_and_the_status_is_0(start_stub: StartStub) -> None:
    stub = start_stub(STUB_DECODE_TOKENS_PER_S=5, STUB_SHUTDOWN_TIMEOUT_S=0.5)
    _, answer = stub.stream(max_tokens=5000)
    assert eventually(lambda: stub.metric("vllm:num_requests_running") == 1, 5)
    stub.terminate()
    assert_lost(answer.read())
    assert stub.process.wait(10) == 0


def test_a_client_that_reads_nothing_cannot_hold_the_drain_up(start_stub: StartStub) -> None:
    stub = start_stub(STUB_DECODE_TOKENS_PER_S=1_000_000, STUB_SHUTDOWN_TIMEOUT_S=0.5)
    connection, _ = stub.stream(max_tokens=100_000)
    stub.terminate()
    assert stub.process.wait(10) == 0
    connection.close()


def test_a_death_on_demand_fails_what_runs_and_ends_with_status_0(start_stub: StartStub) -> None:
    stub = start_stub(STUB_DECODE_TOKENS_PER_S=5)
    _, answer = stub.stream(max_tokens=5000)
    whole = stub.connection()
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], "max_tokens": 5000})
    whole.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
    assert eventually(lambda: stub.metric("vllm:num_requests_running") == 2, 5)
    assert stub.fault({"die": True}) == 200
    assert_lost(answer.read())
    refusal = whole.getresponse()
    assert refusal.status == 500
    error = {"message": ENGINE_LOST, "type": "InternalServerError", "param": None, "code": 500}
    assert json.loads(refusal.read()) == {"error": error}
    assert stub.process.wait(10) == 0


def test_a_load_can_be_made_longer_only_while_it_lasts_and_unknown_faults_are_refused(start_stub: StartStub) -> None:
    stub = start_stub(wait=False, STUB_LOAD_S=60)
    assert eventually(lambda: stub.fault({"slow_load": 0.2}) == 200, 10)
    assert eventually(lambda: stub.request("GET", "/health")[0] == 200, 10)
    assert [stub.fault(fault) for fault in ({"slow_load": 5}, {"explode": True}, {}, {"die": 1})] == [400] * 4
    assert not ended(stub)


def assert_lost(body: bytes) -> None:
    """A stream that ended because the engine was lost: an error object as vLLM writes it, then [DONE]."""
    error, done = body.rstrip(b"\n").split(b"\n\n")[-2:]
    detail = f'{{"message": "{ENGINE_LOST}", "type": "InternalServerError", "param": null, "code": 500}}'
    assert (error.decode(), done) == (f'data: {{"error": {detail}}}', b"data: [DONE]")
