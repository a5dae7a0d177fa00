"""SIGHUP: a new Envoy with the bootstrap as it is now, while the streams of the one before go on."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contract.gateway.harness import CHAT, KEY, SOON_S, Gateway, ask, free_port
from tests.eventually import eventually
from tests.load import Load, Target

NO_LIMITS = {"requests_per_second": 0, "requests_per_minute": 0}


@pytest.fixture
def gateway(new_gateway: Callable[..., Gateway]) -> Gateway:
    """Serves with two replicas; it would wait 2 s for streams when it stops, which is not what a hot restart does."""
    made = new_gateway(drain_s=2.0, limits=NO_LIMITS)
    made.write()
    made.start_replicas()
    made.start()
    return made


def target(gateway: Gateway) -> Target:
    return Target(f"http://127.0.0.1:{gateway.port}/v1", KEY)


def edit(gateway: Gateway, old: str, new: str, name: str = "bootstrap.yaml") -> None:
    """Replace text in a file that is read once, at the start."""
    path = gateway.dynamic.parent / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def restart(gateway: Gateway, epoch: int) -> None:
    gateway.signal(signal.SIGHUP)
    eventually(lambda: gateway.state()["epoch"] == epoch and gateway.state()["phase"] == "serving", SOON_S)


@contextmanager
def stream(gateway: Gateway) -> Iterator[http.client.HTTPResponse]:
    """A stream that goes on until the replica is told each step."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    try:
        body = json.dumps({"stream": True, "act": "step", "max_tokens": 3})
        connection.request("POST", CHAT, body, {"authorization": f"Bearer {KEY}"})
        eventually(lambda: gateway.stat("cluster.vllm.upstream_rq_active") == 1, SOON_S)
        for replica in gateway.replicas:
            replica.step()
        yield connection.getresponse()
    finally:
        connection.close()


def finish(gateway: Gateway, response: http.client.HTTPResponse) -> bytes:
    for replica in gateway.replicas:
        for _ in range(3):
            replica.step()
    return response.read()


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_hot_restart_cuts_none_of_twenty_streams_and_answers_every_request(gateway: Gateway) -> None:
    first = gateway.state()["pid"]
    with Load(target(gateway), streams=20, tokens=250, rate=50) as load:  # each stream takes 5 s
        load.wait_until_streaming()
        edit(gateway, "max_active_downstream_connections: 5000", "max_active_downstream_connections: 4999")
        restart(gateway, 1)
        assert gateway.state()["previous"]["pid"] == first
        eventually(lambda: gateway.state()["previous"]["requests"] >= 20, SOON_S)
        assert '"4999"' in gateway.admin("GET", "/config_dump")[1]
        eventually(lambda: gateway.stat("http.ingress_http.downstream_rq_total") > 20, SOON_S)
    assert load.outcomes.streams == {"ok": 20}
    assert set(load.outcomes.requests) == {"ok"}, load.outcomes.failures[:5]
    eventually(lambda: gateway.state()["previous"] is None, SOON_S)
    assert not exists(first)
    assert gateway.complete().status == 200


def test_a_second_hot_restart_is_refused_while_the_first_envoy_has_streams_and_done_afterwards(
    gateway: Gateway,
) -> None:
    with stream(gateway) as response:
        restart(gateway, 1)
        gateway.signal(signal.SIGHUP)
        state = eventually(lambda: (s := gateway.state())["refusals"] == 1 and s, SOON_S)
        assert "holds 1 streams" in state["refusal"]["reason"]
        assert (gateway.said("refused") or {})["reason"] == state["refusal"]["reason"]
        assert (state["epoch"], state["previous"]["requests"]) == (1, 1)
        assert finish(gateway, response).endswith(b"[DONE]\n\n")
    for epoch in (2, 3, 4):  # Envoy numbers its sockets modulo three
        eventually(lambda: (gateway.state()["previous"] or {"requests": 0})["requests"] == 0, SOON_S)
        restart(gateway, epoch)
        assert gateway.complete().status == 200
    assert gateway.state()["restarts"] == 4


def test_a_bootstrap_that_envoy_refuses_leaves_the_old_one_serving(gateway: Gateway) -> None:
    pid = gateway.state()["pid"]
    edit(gateway, "refresh_interval: 0.25s", "refresh_interval: soon")
    gateway.signal(signal.SIGHUP)
    state = eventually(lambda: (s := gateway.state())["refusals"] == 1 and s, SOON_S)
    assert "refuses its new bootstrap" in state["refusal"]["reason"]
    assert (state["pid"], state["epoch"], state["previous"]) == (pid, 0, None)
    assert gateway.complete().status == 200
    edit(gateway, "refresh_interval: soon", "refresh_interval: 0.5s")
    restart(gateway, 1)


def test_an_envoy_that_dies_while_it_starts_leaves_the_old_one_serving_and_can_be_tried_again(
    gateway: Gateway,
) -> None:
    good = str(gateway.socket)
    edit(gateway, good, "/no/such/folder/admin.sock")  # good as a text, impossible to open
    gateway.signal(signal.SIGHUP)
    eventually(lambda: gateway.state()["refusals"] == 1, SOON_S)
    assert gateway.complete().status == 200
    edit(gateway, "/no/such/folder/admin.sock", good)
    restart(gateway, 1)
    assert gateway.complete().status == 200


def test_a_missing_file_is_a_refusal_and_no_end(gateway: Gateway) -> None:
    (gateway.dynamic / "rds.yaml").rename(gateway.folder / "aside")
    gateway.signal(signal.SIGHUP)
    state = eventually(lambda: (s := gateway.state())["refusals"] == 1 and s, SOON_S)
    assert state["refusal"]["reason"].endswith("rds.yaml")
    assert gateway.complete().status == 200


def test_a_stop_while_two_run_waits_for_the_streams_of_both(new_gateway: Callable[..., Gateway]) -> None:
    gateway = new_gateway(drain_s=60.0, limits=NO_LIMITS)
    gateway.write()
    gateway.start_replicas()
    gateway.start()
    with Load(target(gateway), streams=10, tokens=300) as old:
        old.wait_until_streaming()
        restart(gateway, 1)
        with Load(target(gateway), streams=10, tokens=150) as new:
            new.wait_until_streaming()
            gateway.signal(signal.SIGTERM)
            answer = eventually(lambda: (a := gateway.complete()).status == 503 and a, SOON_S)
            assert answer.error["code"] == "gateway_draining"
    assert (old.outcomes.streams, new.outcomes.streams) == ({"ok": 10}, {"ok": 10})
    assert gateway.wait() == 0
    assert (gateway.said("draining") or {})["requests"] >= 20
    assert (gateway.said("drained") or {})["requests_cut"] == 0


def test_the_death_of_the_newer_envoy_is_the_end_and_its_code(gateway: Gateway) -> None:
    restart(gateway, 1)
    os.kill(gateway.state()["pid"], signal.SIGKILL)
    assert gateway.wait(SOON_S) == 128 + signal.SIGKILL


def test_the_death_of_the_older_envoy_is_collected_and_the_newer_serves_on_past_the_parents_time(
    new_gateway: Callable[..., Gateway],
) -> None:
    gateway = new_gateway(drain_s=2.0, max_stream_s=1.0, limits=NO_LIMITS)  # the newer ends the older after 7 s
    gateway.write()
    gateway.start_replicas()
    gateway.start()
    first = gateway.state()["pid"]
    gateway.signal(signal.SIGHUP)
    eventually(lambda: gateway.said("restarted"), SOON_S)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: gateway.said("released"), SOON_S)
    assert not exists(first)
    # Past the moment at which the newer tells the older to end: without its stand-in it would wait for it and abort.
    eventually(lambda: gateway.stat("server.uptime") > 9, SOON_S)
    assert "connection refused" not in gateway.log.read_text()
    restart(gateway, 2)
    assert gateway.complete().status == 200


def test_a_listener_that_is_new_after_a_hot_restart_is_opened_though_the_older_envoy_has_ended(
    gateway: Gateway,
) -> None:
    restart(gateway, 1)
    eventually(lambda: gateway.state()["previous"] is None, SOON_S)
    port = free_port()
    # The newer Envoy asks the older one for the socket of every listener that it does not know.
    lds = gateway.rendered()["lds.yaml"]
    more = lds[lds.index('  - "@type"', lds.index("name: public")) :]
    more = more.replace(f"port_value: {gateway.internal_port}", f"port_value: {port}")
    more = more.replace("name: internal\n    address", "name: another\n    address", 1)
    gateway.publish("lds.yaml", lds + more)
    eventually(lambda: answers(port), SOON_S)
    assert gateway.complete().status == 200


def answers(port: int) -> bool:
    try:
        return ask(port, "GET", "/ready", key="").status == 200
    except OSError:
        return False


def test_a_hot_restart_takes_up_the_longest_stream_and_the_number_of_workers(gateway: Gateway) -> None:
    edit(gateway, '"concurrency": 2', '"concurrency": 3', "entry.json")
    edit(gateway, '"max_stream_s": 14400.0', '"max_stream_s": 20000.0', "entry.json")
    restart(gateway, 1)
    options = json.loads(gateway.admin("GET", "/server_info")[1])["command_line_options"]
    assert (options["concurrency"], options["drain_time"]) == (3, "20001s")
    assert options["parent_shutdown_time"] == "20006s"


def test_state_names_the_digests_of_what_runs(gateway: Gateway, tmp_path: Path) -> None:
    before = gateway.state()
    edit(gateway, "refresh_interval: 0.25s", "refresh_interval: 0.5s")
    assert gateway.state()["bootstrap"] == before["bootstrap"]
    restart(gateway, 1)
    after = gateway.state()
    assert after["bootstrap"] != before["bootstrap"] and after["entry"] == before["entry"]
    assert after["since"] > before["since"]


def test_ask_prints_what_envoy_says_and_fails_when_nobody_answers(gateway: Gateway) -> None:
    done = gateway.entry("ask", "/stats?filter=^server.live$")
    assert (done.returncode, done.stdout) == (0, "server.live: 1\n")
    gateway.signal(signal.SIGTERM)
    gateway.wait()
    assert gateway.entry("ask", "/ready").returncode == 1


def test_keep_alive_connections_that_nobody_uses_do_not_hold_the_older_envoy(gateway: Gateway) -> None:
    idle = http.client.HTTPConnection("127.0.0.1", gateway.port)
    idle.request("GET", "/health")
    idle.getresponse().read()
    with ThreadPoolExecutor(1):
        restart(gateway, 1)
        eventually(lambda: gateway.state()["previous"] is None, 30)
    idle.close()
