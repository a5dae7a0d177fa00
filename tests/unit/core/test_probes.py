"""The list of probes, and when one counts as passed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from control.core import probes, wiring
from control.core.probes import Probe, Seen, Sent

CLOSED = Probe("routes", "GET /metrics", Sent("GET", "/metrics", key=True), (404,), ("unknown_url",))


def test_a_closed_route_passes_only_by_the_gateways_own_answer() -> None:
    assert probes.judge(CLOSED, Seen(404, "unknown_url")).passed
    by_the_engine = probes.judge(CLOSED, Seen(404, ""))  # {"detail": "Not Found"}: it got through
    assert not by_the_engine.passed and "no answer of the gateway" in by_the_engine.seen
    assert not probes.judge(CLOSED, Seen(200)).passed
    assert not probes.judge(CLOSED, Seen(None)).passed


def test_no_answer_passes_only_where_none_is_right() -> None:
    old = Probe("tls", "TLSv1 is refused", Sent("GET", "/health", scheme="TLSv1"), (None,))
    assert probes.judge(old, Seen(None, words="SSLError")).passed
    assert not probes.judge(old, Seen(200)).passed


def test_a_header_that_tells_something_fails_a_good_answer() -> None:
    probe = Probe("headers", "x", Sent("GET", "/"), (200,), (), ("x-envoy",), (("x-request-id", "mine"),))
    assert probes.judge(probe, Seen(200, headers={"x-request-id": "another"})).passed
    assert not probes.judge(probe, Seen(200, headers={"x-envoy-upstream-service-time": "1"})).passed
    assert not probes.judge(probe, Seen(200, headers={"x-request-id": "mine"})).passed


def test_the_table_says_what_was_sent_and_never_a_long_value() -> None:
    sent = Sent("GET", f"/{'x' * 9000}", (("authorization", f"Bearer {'k' * 50}"),), announced=7, key=True)
    told = probes.judge(replace(CLOSED, sent=sent), Seen(200)).sent
    assert len(told) < 200 and "k" * 20 not in told and "7 bytes" in told


def test_every_door_is_tried_and_none_twice() -> None:
    listed = probes.all_probes(1000, tls=True, foreign_origins=False)
    assert {probe.group for probe in listed} == {
        *("routes", "paths", "methods", "keys", "headers", "bodies", "cors", "tls"),
    }
    assert len({probe.what for probe in listed}) == len(listed) > 100
    sizes = [p.sent.announced or len(p.sent.body) + p.sent.filler for p in listed if p.group == "bodies"]
    assert all(size > 1000 for size in sizes)


def test_what_a_request_is_counted_under_is_never_the_callers_word() -> None:
    (probe,) = [p for p in probes.all_probes(1000, tls=False, foreign_origins=True) if "count for nothing" in p.what]
    assert probe.sent.target == probes.CHAT
    assert {"x-request-id", wiring.AFFINITY_HEADER} <= {name for name, _ in probe.sent.headers}
    chosen = dict(probe.sent.headers)["x-request-id"]
    assert probes.judge(probe, Seen(400, headers={"x-request-id": "another"})).passed
    assert not probes.judge(probe, Seen(400, headers={"x-request-id": chosen})).passed
    told = {"x-request-id": "another", wiring.AFFINITY_HEADER: "a"}
    assert not probes.judge(probe, Seen(400, headers=told)).passed


def test_doors_that_the_settings_open_are_not_tried() -> None:
    groups = {probe.group for probe in probes.all_probes(1000, tls=False, foreign_origins=True)}
    assert not groups & {"tls", "cors"}


@pytest.mark.parametrize(
    ("service", "port", "good"),
    [
        ("gateway", "127.0.0.1:8000->8000/tcp", True),
        ("gateway", "0.0.0.0:9901->9901/tcp", False),
        ("engine-0", "0.0.0.0:8001->8000/tcp", False),
        ("engine-0", "", True),
    ],
)
def test_only_the_gateway_may_publish_and_only_its_public_port(service: str, port: str, good: bool) -> None:
    assert [result.passed for result in probes.published([(service, port)])] == [good]


def test_codes_are_read_from_both_forms_of_error() -> None:
    assert probes.code_of(b'{"error": {"code": "a", "type": "b"}}') == "a"
    assert probes.code_of(b'{"type": "error", "error": {"type": "b"}}') == "b"
    assert [probes.code_of(body) for body in (b"", b"[]", b'{"error": "x"}', b'{"detail": "Not Found"}')] == [""] * 4
