"""entry.py: start, drain on SIGTERM, and the exit codes."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.contract.gateway.harness import CHAT, ENTRY, KEY, MESSAGES, SOON_S, Gateway
from tests.eventually import eventually
from tests.load import Load, Target

STREAM = {"stream": True, "max_tokens": 150}


def target(gateway: Gateway) -> Target:
    return Target(f"http://127.0.0.1:{gateway.port}/v1", KEY)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_finishes_twenty_streams_and_turns_new_requests_away(gateway: Gateway, signum: signal.Signals) -> None:
    with Load(target(gateway), streams=20, tokens=150) as load:
        load.wait_until_streaming()
        gateway.signal(signum)
        eventually(lambda: gateway.ask("GET", "/health", key="").status == 503, SOON_S)
        answer = eventually(lambda: (a := gateway.complete()).status == 503 and a, SOON_S)
        assert (answer.error["type"], answer.error["code"]) == ("service_unavailable_error", "gateway_draining")
        assert answer.headers["retry-after"] == "5"
        assert answer.headers["connection"] == "close"
        assert not [name for name in answer.headers if name.startswith("x-envoy")]
        assert gateway.ask("POST", "/v1/nothing").status == 503
        in_messages = gateway.ask("POST", MESSAGES, {})
        assert (in_messages.status, in_messages.messages_error["type"]) == (503, "overloaded_error")
        assert in_messages.headers["retry-after"] == "5"
        assert gateway.ask("GET", "/v1/models", key="").status == 401
    assert load.outcomes.streams == {"ok": 20}
    assert gateway.wait() == 0
    phases = [line["phase"] for line in gateway.lines("entry")]
    assert phases == ["starting", "serving", "draining", "drained", "stopped"]
    assert (gateway.said("draining") or {})["requests"] >= 20  # a probe of this test may be in flight too
    assert (gateway.said("drained") or {})["requests_cut"] == 0
    with pytest.raises(ConnectionRefusedError):
        gateway.complete()


def test_a_stop_without_requests_ends_though_clients_keep_idle_connections(gateway: Gateway) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port)
    connection.request("GET", "/health")
    connection.getresponse().read()
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0
    assert (gateway.said("drained") or {})["requests_cut"] == 0
    connection.close()


def test_an_answer_that_a_slow_reader_has_not_taken_yet_counts_as_in_flight(gateway: Gateway) -> None:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(30)
        connection.connect(("127.0.0.1", gateway.port))
        body = (
            b'{"stream": true, "act": "flood", "max_tokens": 400}'  # 400 events of 16 KiB: more than the kernel takes
        )
        head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        eventually(lambda: gateway.stat("http.ingress_http.downstream_cx_tx_bytes_buffered") > 0, SOON_S)
        gateway.signal(signal.SIGTERM)
        eventually(lambda: gateway.said("draining"), SOON_S)
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            piece = connection.recv(1 << 16)
            assert piece, f"cut after {len(received)} bytes"
            received += piece
        assert received.count(b"data: ") == 401
    assert gateway.wait() == 0


def test_streams_longer_than_the_drain_time_are_cut_and_counted(new_gateway: Callable[..., Gateway]) -> None:
    gateway = new_gateway(drain_s=1.0)
    gateway.write()
    gateway.start_replicas()
    gateway.start()
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(gateway.ask, "POST", CHAT, {**STREAM, "act": "stall"})
        eventually(lambda: gateway.stat("cluster.vllm.upstream_rq_active") == 1, SOON_S)
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0
        with pytest.raises((http.client.HTTPException, OSError)):
            stream.result()
    assert (gateway.said("drained") or {})["requests_cut"] == 1


def test_a_second_signal_ends_it_at_once(gateway: Gateway) -> None:
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(gateway.ask, "POST", CHAT, {**STREAM, "act": "stall"})
        eventually(lambda: gateway.stat("cluster.vllm.upstream_rq_active") == 1, SOON_S)
        gateway.signal(signal.SIGTERM)
        eventually(lambda: gateway.said("draining"), SOON_S)
        gateway.signal(signal.SIGTERM)
        assert gateway.wait(SOON_S) == 0  # the stream would hold it for 60 s
        with pytest.raises((http.client.HTTPException, OSError)):
            stream.result()
    assert (gateway.said("stopped") or {})["signals"] == 2


def test_the_death_of_envoy_is_an_exit_code_that_is_not_zero(gateway: Gateway) -> None:
    os.kill((gateway.said("starting") or {})["envoy_pid"], signal.SIGKILL)
    assert gateway.wait(SOON_S) == 128 + signal.SIGKILL
    assert (gateway.said("failed") or {})["reason"] == "Envoy ended by itself"


def test_a_bootstrap_that_envoy_refuses_is_an_exit_code_that_is_not_zero(new_gateway: Callable[..., Gateway]) -> None:
    gateway = new_gateway()
    gateway.write(bootstrap=("refresh_interval: 0.25s", "refresh_interval: soon"))
    gateway.launch()
    assert gateway.wait(SOON_S) == 1
    assert "duration must start with" in " ".join(gateway.log.read_text().split())


@pytest.mark.parametrize("name", ["bootstrap.yaml", "dynamic/eds.yaml", "dynamic/ecds_auth.yaml", "../upstream_key"])
def test_a_missing_file_is_named_before_envoy_starts(new_gateway: Callable[..., Gateway], name: str) -> None:
    gateway = new_gateway()
    gateway.write()
    (gateway.dynamic.parent / name).unlink()
    gateway.launch()
    assert gateway.wait(SOON_S) == 78
    (named,) = (gateway.said("failed") or {})["files"]
    assert named.endswith(name.removeprefix("../"))


def test_a_gateway_that_was_killed_starts_again_in_the_same_place(gateway: Gateway) -> None:
    os.kill((gateway.said("starting") or {})["envoy_pid"], signal.SIGKILL)
    gateway.wait(SOON_S)
    assert gateway.socket.exists()  # left behind
    gateway.log.unlink()
    gateway.start()
    assert gateway.complete().status == 200


def test_ready_is_true_while_it_serves_and_false_while_it_drains(gateway: Gateway) -> None:
    def ready() -> int:
        environment = {**os.environ, "GATEWAY_ADMIN_SOCKET": str(gateway.socket)}
        return subprocess.run([sys.executable, str(ENTRY), "ready"], env=environment, check=False).returncode

    assert ready() == 0
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(gateway.ask, "POST", CHAT, STREAM)
        eventually(lambda: gateway.stat("cluster.vllm.upstream_rq_active") == 1, SOON_S)
        gateway.signal(signal.SIGTERM)
        eventually(lambda: ready() == 1, SOON_S)
        assert stream.result().body.endswith(b"[DONE]\n\n")
    gateway.wait()
    assert ready() == 1
