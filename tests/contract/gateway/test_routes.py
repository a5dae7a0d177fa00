"""What the gateway lets through, and what each side sees of the other."""

from __future__ import annotations

import http.client
import json
import stat
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.gateway.harness import CHAT, COUNT, KEY, MESSAGES, SOON_S, UPSTREAM_KEY, Gateway, ask
from tests.eventually import eventually

ALLOWED = [
    ("POST", CHAT),
    ("POST", "/v1/completions"),
    ("POST", "/v1/responses"),
    ("POST", MESSAGES),
    ("POST", COUNT),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/v1/models"),
]
REFUSED = [
    *(("GET", path) for method, path in ALLOWED if method == "POST" and not path.startswith(MESSAGES)),
    *(("POST", path) for path in ("/v1/models", "/v1/embeddings", "/v1/messagesx", "/v1/v1/models")),
    *((method, "/v1/responses/resp_1") for method in ("GET", "POST", "DELETE")),
    ("POST", "/v1/responses/resp_1/cancel"),
    *(("POST", path) for path in ("/invocations", "/v1/load_lora_adapter", "/sleep", "/collective_rpc", "/health")),
    *(("GET", path) for path in ("/", "/metrics", "/version", "/ready", "/docs", "/v1/models/", "/v1", "/V1/models")),
    *((method, "/v1/models") for method in ("HEAD", "PUT", "DELETE", "OPTIONS", "TRACE")),
]


def last(gateway: Gateway) -> dict[str, Any]:
    """The youngest request that reached a replica."""
    return max((request for replica in gateway.replicas for request in replica.requests), key=lambda seen: seen["at"])


def reached(gateway: Gateway) -> int:
    return sum(len(replica.requests) for replica in gateway.replicas)


@pytest.mark.parametrize(("method", "path"), ALLOWED)
def test_an_allowed_route_reaches_a_replica(shared: Gateway, method: str, path: str) -> None:
    answer = shared.ask(method, path, {"model": "m"} if method == "POST" else None)
    assert (answer.status, answer.json["path"]) == (200, path)


@pytest.mark.parametrize(("method", "path"), REFUSED)
def test_everything_else_is_a_404_in_openai_form_and_reaches_no_replica(
    shared: Gateway, method: str, path: str
) -> None:
    before = reached(shared)
    answer = shared.ask(method, path)
    assert answer.status == 404
    if method != "HEAD":
        assert (answer.error["type"], answer.error["code"]) == ("not_found_error", "unknown_url")
        assert answer.error["message"] == f"Unknown URL: {method} {path}"
    assert reached(shared) == before


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", MESSAGES),
        ("GET", COUNT),
        ("POST", f"{MESSAGES}/"),
        ("POST", f"{MESSAGES}/batches"),
        ("GET", f"{MESSAGES}/batches?limit=3"),
        ("POST", "//v1//messages/batches"),
    ],
)
def test_a_404_among_anthropics_paths_has_its_form(shared: Gateway, method: str, path: str) -> None:
    before = reached(shared)
    answer = shared.ask(method, path)
    assert (answer.status, answer.messages_error["type"]) == (404, "not_found_error")
    assert answer.messages_error["message"].startswith(f"Unknown URL: {method} /v1/messages")
    assert reached(shared) == before


@pytest.mark.parametrize(("method", "path"), ALLOWED)
def test_a_key_in_x_api_key_opens_every_route_and_reaches_no_replica(shared: Gateway, method: str, path: str) -> None:
    body = {"model": "m"} if method == "POST" else None
    answer = shared.ask(method, path, body, key="", headers={"x-api-key": KEY, "anthropic-version": "2023-06-01"})
    assert (answer.status, answer.json["path"]) == (200, path)
    request = last(shared)
    assert KEY not in json.dumps(request)
    headers = [line.lower() for line in request["headers"]]
    assert [line for line in headers if "key" in line.partition(":")[0]] == []
    assert [line for line in headers if line.startswith("authorization:")] == [f"authorization: bearer {UPSTREAM_KEY}"]
    assert "anthropic-version: 2023-06-01" in headers


@pytest.mark.parametrize(("method", "path"), [*ALLOWED, *REFUSED])
def test_without_a_key_every_path_is_a_401_so_that_nobody_can_look_around(
    shared: Gateway, method: str, path: str
) -> None:
    before = reached(shared)
    answer = shared.ask(method, path, key="")
    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert reached(shared) == before


@pytest.mark.parametrize("path", ["/health", "/health?from=balancer", "//health"])
def test_health_needs_no_key_and_is_ok_while_a_replica_is_ready(shared: Gateway, path: str) -> None:
    answer = shared.ask("GET", path, key="")
    assert (answer.status, answer.json) == (200, {"status": "OK"})
    head = shared.ask("HEAD", path, key="")
    assert (head.status, head.body) == (200, b"")


def test_health_is_503_without_a_ready_replica_and_follows_the_gates(new_gateway: Callable[..., Gateway]) -> None:
    gateway = new_gateway(count=2)
    gateway.write()
    gateway.start_replicas(ready=False)
    gateway.start(healthy=0)
    answer = gateway.ask("GET", "/health", key="")
    assert (answer.status, answer.json) == (503, {"status": "unavailable"})
    assert gateway.ask("HEAD", "/health", key="").status == 503
    gateway.replicas[1].set_ready(True)
    eventually(lambda: gateway.ask("GET", "/health", key="").status == 200, SOON_S)
    gateway.replicas[1].set_ready(False)
    eventually(lambda: gateway.ask("GET", "/health", key="").status == 503, SOON_S)


def test_a_replica_sees_its_own_key_and_nothing_of_the_callers_credentials(shared: Gateway) -> None:
    secrets = {"cookie": "session=s3cret", "x-api-key": "s3cret", "api-key": "s3cret", "x-client-id": "s3cret"}
    path = "/v1/completions?api_key=s3cret&x=1"
    assert (
        shared.ask("POST", path, {"model": "seen"}, headers={**secrets, "proxy-authorization": "s3cret"}).status == 200
    )
    request = last(shared)
    assert request["target"] == "/v1/completions"
    text = json.dumps(request)
    assert "s3cret" not in text and KEY not in text
    headers = [line.lower() for line in request["headers"]]
    assert [line for line in headers if line.startswith("authorization:")] == [f"authorization: bearer {UPSTREAM_KEY}"]
    assert "host: vllm" in headers


def test_a_client_sees_nothing_that_a_replica_says_about_itself(shared: Gateway) -> None:
    answer = shared.complete()
    assert answer.headers["server"] == "flashbox"
    assert not {"x-powered-by", "via", "set-cookie"} & set(answer.headers)
    assert not [name for name in answer.headers if name.startswith("x-envoy")]


def test_every_answer_carries_a_request_id_of_the_gateways_own_and_the_replica_gets_the_same(shared: Gateway) -> None:
    ids = set()
    for path, key in (("/v1/models", KEY), ("/health", ""), ("/nothing", KEY), ("/v1/models", "")):
        given = shared.ask("GET", path, key=key, headers={"x-request-id": "chosen-by-the-client"}).headers[
            "x-request-id"
        ]
        ids.add(given)
    assert len(ids) == 4 and not ids & {"chosen-by-the-client", "own", ""}
    answer = shared.complete()
    assert f"x-request-id: {answer.headers['x-request-id']}" in last(shared)["headers"]
    assert "request-id" not in answer.headers
    for path in (MESSAGES, COUNT):  # Anthropic's clients look for it under this name
        answer = shared.ask("POST", path, {"model": "m"})
        assert answer.headers["request-id"] == answer.headers["x-request-id"]


def test_each_event_of_a_stream_is_passed_on_before_the_next_exists(gateway: Gateway) -> None:
    gateway.publish_replicas([0])
    eventually(lambda: gateway.healthy() == {"engine-0"}, SOON_S)
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    body = json.dumps({"stream": True, "max_tokens": 5, "act": "step"})
    connection.request("POST", CHAT, body, {"authorization": f"Bearer {KEY}"})
    seen = []
    gateway.replicas[0].step()
    response = connection.getresponse()
    for number in range(5):
        event = json.loads(response.readline().removeprefix(b"data: "))
        assert response.readline() == b"\n"
        seen.append(event["choices"][0]["delta"]["content"])
        if number < 4:
            gateway.replicas[0].step()
    assert seen == [f"{number} " for number in range(5)]
    assert response.read() == b"data: [DONE]\n\n"
    connection.close()


@pytest.mark.parametrize("chunked", [False, True])
def test_the_body_limit_is_exact_and_says_its_number(shared: Gateway, chunked: bool) -> None:
    limit = 1024 * 1024
    before = reached(shared)
    for size, status in ((limit, 200), (limit + 1, 413)):
        body = b"x" * size
        data = iter([body[:70_000], body[70_000:]]) if chunked else body
        answer = shared.ask("POST", "/v1/completions", data)  # an iterator is sent in chunks
        assert answer.status == status
        if status == 200:
            assert answer.json["bytes"] == limit
    assert (answer.error["code"], answer.error["type"]) == ("request_too_large", "invalid_request_error")
    assert str(limit) in answer.error["message"]
    in_messages = shared.ask("POST", MESSAGES, iter([body]) if chunked else body)
    assert (in_messages.status, in_messages.messages_error["type"]) == (413, "request_too_large")
    assert in_messages.messages_error["message"] == answer.error["message"]
    assert reached(shared) - before >= 1
    assert last(shared)["bytes"] == limit


def test_the_access_log_names_key_request_and_replica_and_holds_no_secret(gateway: Gateway) -> None:
    body = {"model": "m", "prompt": "private words"}
    answer = gateway.ask("POST", "/v1/completions?api_key=s3cret", body, headers={"user-agent": "probe/1"})
    refused = gateway.ask("GET", "/v1/models", key="wrong-s3cret")
    other = gateway.ask("GET", "/v1/models", key="", headers={"x-api-key": "wrong-s3cret"})

    def line_of(request_id: str) -> dict[str, object] | None:
        return next((line for line in gateway.lines("access") if line["request_id"] == request_id), None)

    good = eventually(lambda: line_of(answer.headers["x-request-id"]), SOON_S)
    assert good["key_id"] == gateway.api_keys[0].key_id
    assert good["replica"] == answer.headers["x-replica"]
    wanted = {"method": "POST", "path": "/v1/completions", "status": 200, "flags": "-", "auth": "ok", "attempts": 1}
    assert {name: good[name] for name in wanted} == wanted
    assert good["user_agent"] == "probe/1" and good["client_address"] == "127.0.0.1"
    bad = eventually(lambda: line_of(refused.headers["x-request-id"]), SOON_S)
    assert (bad["status"], bad["auth"], bad["key_id"]) == (401, "invalid_api_key", None)
    assert eventually(lambda: line_of(other.headers["x-request-id"]), SOON_S)["auth"] == "invalid_api_key"
    text = gateway.log.read_text()
    for secret in (KEY, UPSTREAM_KEY, "s3cret", "private words"):
        assert secret not in text
    assert "/health" not in text


def test_the_internal_listener_has_ready_and_metrics_and_nothing_else(shared: Gateway) -> None:
    assert ask(shared.internal_port, "GET", "/ready").body.strip() == b"LIVE"
    metrics = ask(shared.internal_port, "GET", "/metrics").body.decode()
    assert 'envoy_cluster_membership_healthy{envoy_cluster_name="vllm"} 2' in metrics
    for method, path in (("POST", "/ready"), ("GET", "/config_dump"), ("GET", "/stats"), ("POST", "/healthcheck/fail")):
        assert ask(shared.internal_port, method, path).status == 404


def test_the_admin_interface_is_a_private_socket_with_few_paths(shared: Gateway) -> None:
    assert stat.S_IMODE(shared.socket.stat().st_mode) == 0o600
    assert shared.admin("GET", "/ready")[0] == 200
    for path in ("/quitquitquit", "/logging?level=debug", "/runtime_modify?x=1", "/drain_listeners", "/healthcheck/ok"):
        assert shared.admin("POST", path)[0] == 403, path
    assert KEY not in (dump := shared.admin("GET", "/config_dump")[1]) and UPSTREAM_KEY not in dump


def test_a_full_house_turns_connections_away_and_still_answers_probes(new_gateway: Callable[..., Gateway]) -> None:
    gateway = new_gateway(count=1, max_connections=2)
    gateway.write()
    gateway.start_replicas()
    gateway.start()
    held = [http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=10) for _ in range(2)]
    for connection in held:
        connection.request("GET", "/health")
        connection.getresponse().read()
    with pytest.raises((http.client.HTTPException, OSError)):
        gateway.ask("GET", "/health")
    assert ask(gateway.internal_port, "GET", "/ready").status == 200
    for connection in held:
        connection.close()
    eventually(lambda: gateway.ask("GET", "/health").status == 200, SOON_S)
