"""The gateway when too much comes, when something takes too long, and what its log then says (E01)."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.contract.gateway.harness import CHAT, KEY, SOON_S, Answer, Gateway
from tests.eventually import eventually

LIMIT = 3


def started(gateway: Gateway, ready: bool = True) -> Gateway:
    gateway.write()
    gateway.start_replicas(ready)
    gateway.start(None if ready else 0)
    return gateway


def logged(gateway: Gateway, **wanted: object) -> list[dict[str, Any]]:
    return [line for line in gateway.lines("access") if wanted.items() <= line.items()]


def begin(gateway: Gateway, content: dict[str, Any]) -> http.client.HTTPConnection:
    """A request whose answer is not waited for."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    connection.request("POST", CHAT, json.dumps(content), {"authorization": f"Bearer {KEY}"})
    return connection


def test_exactly_as_many_requests_run_as_the_limit_says_and_one_more_is_refused_at_once(
    new_gateway: Callable[..., Gateway],
) -> None:
    gateway = started(new_gateway(max_requests=LIMIT))
    running = [begin(gateway, {"act": "step", "stream": True, "max_tokens": 1}) for _ in range(LIMIT)]
    eventually(lambda: gateway.stat("cluster.vllm.upstream_rq_active") == LIMIT, SOON_S)
    assert gateway.stat("cluster.vllm.circuit_breakers.default.remaining_rq") == 0
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: gateway.complete(), range(24)))
    for answer in answers:
        assert (answer.status, answer.error["code"], answer.headers["retry-after"]) == (503, "over_capacity", "1")
    assert gateway.stat("cluster.vllm.upstream_rq_pending_active") == 0  # nobody waits
    eventually(lambda: len(logged(gateway, flags="UO", status=503)) == 24, SOON_S)  # E01
    for replica in gateway.replicas:
        for _ in range(LIMIT):
            replica.step()
    assert all(connection.getresponse().read().endswith(b"[DONE]\n\n") for connection in running)
    assert gateway.complete().status == 200
    assert sum(len(replica.requests) for replica in gateway.replicas) == LIMIT + 1


def test_strict_keeps_its_own_three_numbers(new_gateway: Callable[..., Gateway]) -> None:
    text = new_gateway(policy="strict").product()["cds.yaml"]
    for name, value in (("max_connections", 1000), ("max_pending_requests", 1000), ("max_requests", 10000)):
        assert f"          {name}: {value}\n" in text


def test_a_route_timeout_is_504_before_the_first_byte_and_a_visible_cut_after_it(
    new_gateway: Callable[..., Gateway],
) -> None:
    gateway = started(new_gateway(route_timeout_s=1))
    answer = gateway.ask("POST", CHAT, {"act": "hang"})
    assert (answer.status, answer.error["code"], answer.error["type"]) == (504, "timeout", "timeout_error")
    eventually(lambda: logged(gateway, flags="UT", status=504, details="response_timeout"), SOON_S)  # E01
    with pytest.raises(http.client.IncompleteRead) as cut:
        gateway.ask("POST", CHAT, {"stream": True, "max_tokens": 200})
    assert b"[DONE]" not in cut.value.partial and cut.value.partial
    eventually(lambda: logged(gateway, flags="UT", status=200), SOON_S)
    assert gateway.stat("cluster.vllm.upstream_rq_timeout") == 2
    assert gateway.ask("GET", "/v1/models").status == 200


def test_without_a_route_timeout_a_long_stream_ends_whole(new_gateway: Callable[..., Gateway]) -> None:  # E02
    gateway = started(new_gateway(idle_timeout_s=2))
    assert "timeout: 15" not in gateway.rendered()["rds.yaml"]
    answer = gateway.ask("POST", CHAT, {"stream": True, "max_tokens": 250})  # 5 s of events, 20 ms apart
    assert answer.status == 200 and answer.body.endswith(b"[DONE]\n\n")


def test_silence_beyond_the_idle_time_ends_the_request_at_the_replica_too(new_gateway: Callable[..., Gateway]) -> None:
    gateway = started(new_gateway(idle_timeout_s=1))  # E03
    assert gateway.ask("POST", CHAT, {"act": "hang"}).error["code"] == "timeout"
    eventually(lambda: logged(gateway, status=504, details="stream_idle_timeout"), SOON_S)
    eventually(lambda: gateway.stat("cluster.vllm.upstream_rq_active") == 0, SOON_S)
    with pytest.raises(http.client.IncompleteRead):
        gateway.ask("POST", CHAT, {"act": "stall", "stream": True})
    eventually(lambda: gateway.stat("cluster.vllm.upstream_rq_active") == 0, SOON_S)


def test_the_log_tells_each_of_the_503s_from_the_others(new_gateway: Callable[..., Gateway]) -> None:  # E01
    gateway = started(new_gateway(count=1), ready=False)
    assert gateway.complete().error["code"] == "no_replica"
    eventually(lambda: logged(gateway, flags="UH", status=503, details="no_healthy_upstream"), SOON_S)
    gateway.replicas[0].set_ready(True)
    eventually(lambda: len(gateway.healthy()) == 1, SOON_S)
    gateway.ask("POST", CHAT, {"act": "lose"})
    eventually(lambda: logged(gateway, flags="UC", status=503), SOON_S)
    left = begin(gateway, {"act": "hang"})
    eventually(lambda: gateway.stat("cluster.vllm.upstream_rq_active") == 1, SOON_S)
    left.close()
    eventually(lambda: logged(gateway, flags="DC", status=0), SOON_S)  # the client left: no error of the service
    stream = begin(gateway, {"act": "stall", "stream": True}).getresponse()
    assert stream.status == 200 and stream.read(5)
    gateway.replicas[0].kill()
    # A cut stream, which no status shows; in HTTP/1.1 it is a chunked body that ends in the middle.
    eventually(lambda: [x for x in logged(gateway, status=200) if x["flags"] in ("UC", "UPE")], SOON_S)
    answer = gateway.complete()
    assert (answer.status, answer.error["code"]) in ((503, "replica_unreachable"), (503, "no_replica"))
    eventually(lambda: [x for x in gateway.lines("access") if x["flags"] in ("UF", "UF,URX", "UH")][-1:], SOON_S)


def test_ten_changes_of_the_replicas_in_two_seconds_lose_no_request(gateway: Gateway) -> None:  # E07
    answers: list[Answer] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            answers.append(gateway.complete())

    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(ask) for _ in range(2)]
        for number in range(10):
            slots = ([0, 1], [0], [0, 1], [1])[number % 4]
            gateway.publish_replicas(slots)
            wanted = {gateway.slots[slot].name for slot in slots}
            eventually(lambda wanted=wanted: gateway.healthy() == wanted, SOON_S)  # type: ignore[misc]
        over.set()
        for future in asking:
            future.result()
    assert answers and {answer.status for answer in answers} == {200}


@pytest.mark.parametrize("content", [{"act": "lose"}, {"act": "stall", "stream": True}])
def test_a_generation_that_may_have_begun_is_never_sent_twice(gateway: Gateway, content: dict[str, Any]) -> None:  # E09
    connection = begin(gateway, content)
    response = connection.getresponse()
    if response.status == 200:  # one event came: now its replica dies
        response.read(5)
        asked = [len(replica.requests) for replica in gateway.replicas]
        gateway.replicas[asked.index(1)].kill()
        with pytest.raises(http.client.HTTPException):
            response.read()
        assert sum(asked) == 1
        survivor = gateway.replicas[1 - asked.index(1)]
        assert survivor.requests == []
    else:
        assert response.status == 503
        assert sum(len(replica.requests) for replica in gateway.replicas) == 1
    connection.close()


def test_more_client_connections_than_allowed_are_closed_and_probes_still_answered(
    new_gateway: Callable[..., Gateway],
) -> None:
    gateway = started(new_gateway(count=1, max_connections=2))
    held = [begin(gateway, {"act": "hang"}) for _ in range(2)]
    eventually(lambda: gateway.stat("cluster.vllm.upstream_rq_active") == 2, SOON_S)
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        gateway.complete()
    probe = http.client.HTTPConnection("127.0.0.1", gateway.internal_port, timeout=20)
    probe.request("GET", "/ready")
    assert probe.getresponse().status == 200
    probe.close()
    for connection in held:
        connection.close()
    eventually(lambda: gateway.stat("http.ingress_http.downstream_cx_active") == 0, SOON_S)
    assert gateway.complete().status == 200
