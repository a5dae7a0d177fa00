"""Web pages that may call the API, and what every answer says to browsers."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator

import pytest

from tests.contract.gateway import wire
from tests.contract.gateway.harness import CHAT, KEY, MESSAGES, Answer, Gateway, gateway_settings

PAGE, OTHER = "https://chat.example.com", "https://evil.example.com"
SENT = "authorization,content-type,x-api-key,anthropic-version,anthropic-dangerous-direct-browser-access,x-stainless-os"
READ = (
    "x-request-id",
    "request-id",
    "retry-after",
    "x-ratelimit-limit",
    "x-ratelimit-reset-tokens",
    "x-flashbox-truncated",
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Lets one page in, and has limits."""
    limits = {"requests_per_second": 1000, "requests_per_minute": 0}
    made = Gateway(tmp_path_factory.mktemp("cors"), gateway_settings(cors={"origins": [PAGE]}, limits=limits), count=1)
    with made.serving():
        yield made


def preflight(gateway: Gateway, origin: str, path: str = CHAT) -> Answer:
    asked = {"origin": origin, "access-control-request-method": "POST", "access-control-request-headers": SENT}
    return gateway.ask("OPTIONS", path, headers=asked, key="")


@pytest.mark.parametrize("path", [CHAT, MESSAGES, "/v1/completions", "/v1/models"])
def test_a_preflight_of_a_listed_page_is_answered_without_a_key(served: Gateway, path: str) -> None:
    answer = preflight(served, PAGE, path)
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    allowed = {name.strip() for name in answer.headers["access-control-allow-headers"].split(",")}
    assert set(SENT.split(",")) <= allowed and "*" not in allowed
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in answer.headers


def test_a_preflight_of_another_page_gives_no_leave(served: Gateway) -> None:
    assert "access-control-allow-origin" not in preflight(served, OTHER).headers
    assert "access-control-allow-origin" not in preflight(served, f"{PAGE}.evil.example").headers


def test_an_answer_to_a_listed_page_may_be_read_with_its_headers(served: Gateway) -> None:
    answer = served.complete(headers={"origin": PAGE})
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, PAGE)
    assert set(READ) <= {name.strip() for name in answer.headers["access-control-expose-headers"].split(",")}
    assert answer.headers["x-ratelimit-limit"] == "1000"
    refused = served.complete(headers={"origin": PAGE}, key="wrong")
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, PAGE)
    assert "access-control-allow-origin" not in served.complete(headers={"origin": OTHER}).headers


def test_options_that_is_no_preflight_is_like_any_closed_door(served: Gateway) -> None:
    assert served.ask("OPTIONS", CHAT, key="").error["code"] == "missing_api_key"
    assert served.ask("OPTIONS", CHAT).error["code"] == "unknown_url"


def test_a_star_lets_every_page_in(new_gateway: Callable[..., Gateway]) -> None:
    gateway = new_gateway(count=1, cors={"origins": ["*"]})
    gateway.write()
    gateway.start_replicas()
    gateway.start()
    assert preflight(gateway, OTHER).headers["access-control-allow-origin"] in (OTHER, "*")


def test_without_pages_a_preflight_is_a_request_without_a_key(shared: Gateway) -> None:
    answer = preflight(shared, PAGE)
    assert answer.status == 401 and "access-control-allow-origin" not in answer.headers


AUTH = f"authorization: Bearer {KEY}\r\n".encode()
REFUSED = [
    b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n",  # 401
    b"GET /v1/nothing HTTP/1.1\r\nhost: a\r\n" + AUTH + b"\r\n",  # 404
    b"GET /v1/models HTTP/1.1\r\nhost: a\r\nx_y: 1\r\n" + AUTH + b"\r\n",  # 400
    b"GET /v1/models HTTP/1.1\r\nhost: a\r\nx: " + b"a" * 70_000 + b"\r\n\r\n",  # 431
    b"GET /%2fv1 HTTP/1.1\r\nhost: a\r\n" + AUTH + b"\r\n",  # 400
    b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n",
]


@pytest.mark.parametrize("data", REFUSED)
def test_every_answer_of_the_gateway_says_that_it_is_not_to_be_guessed_or_kept(shared: Gateway, data: bytes) -> None:
    check_headers(wire.send(shared.port, data))


def test_answers_of_replicas_say_it_too_and_name_no_server(shared: Gateway) -> None:
    check_headers(shared.complete())
    connection = http.client.HTTPConnection("127.0.0.1", shared.port, timeout=20)
    connection.request("POST", CHAT, json.dumps({"stream": True}), {"authorization": f"Bearer {KEY}"})
    response = connection.getresponse()
    check_headers(Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()))
    connection.close()


def check_headers(answer: Answer) -> None:
    assert answer.headers["x-content-type-options"] == "nosniff", answer
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["server"] == "flashbox"
    assert "strict-transport-security" not in answer.headers  # not over TLS
