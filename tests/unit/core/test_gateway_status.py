"""Envoy's own words, understood."""

from __future__ import annotations

from control.core import gateway_status as status

CLUSTERS = """\
admin::default_priority::max_connections::1024
admin::/run/a.sock::rq_active::0
vllm::default_priority::max_connections::256
vllm::default_priority::max_requests::128
vllm::high_priority::max_requests::1024
vllm::172.31.78.10:8000::rq_active::3
vllm::172.31.78.10:8000::rq_total::9
vllm::172.31.78.10:8000::hostname::engine-0
vllm::172.31.78.10:8000::health_flags::/failed_active_hc
vllm::172.31.78.11:8000::hostname::engine-1
vllm::172.31.78.11:8000::health_flags::healthy
"""
STATS = """\
cluster.vllm.circuit_breakers.default.remaining_cx: 253
cluster.vllm.circuit_breakers.default.remaining_rq: 125
limit_key_second.http_local_rate_limit.ok: 40
limit_key_second.http_local_rate_limit.rate_limited: 7
limit_key_second.http_local_rate_limit.enforced: 5
server.days_until_first_cert_expiring: 89
listener_manager.lds.version_text: "abc"
"""
PAGE = """\
# HELP policy_requests_total Requests by verdict: ok, would_refuse, refused.
policy_requests_total{route="/v1/chat/completions",rule="max_tokens",verdict="refused"} 4.0
policy_requests_total{route="/v1/chat/completions",rule="",verdict="ok"} 70.0
policy_rules_loaded{version="abc"} 2.0
"""


def test_breakers_show_limit_and_room_and_only_where_envoy_counts() -> None:
    assert status.breakers(status.numbers(STATS), CLUSTERS) == [
        {"cluster": "vllm", "what": "connections", "limit": 256, "left": 253},
        {"cluster": "vllm", "what": "requests", "limit": 128, "left": 125},
    ]


def test_hosts_show_health_and_what_they_do() -> None:
    first, second = status.hosts(CLUSTERS)
    assert first == {
        "cluster": "vllm",
        "address": "172.31.78.10:8000",
        "active": 3,
        "total": 9,
        "name": "engine-0",
        "health": "failed_active_hc",
    }
    assert (second["name"], second["health"]) == ("engine-1", "healthy")


def test_limits_tell_what_passed_what_was_over_and_what_was_refused() -> None:
    assert status.limits(status.numbers(STATS)) == [
        {"limit": "limit_key_second", "passed": 40, "over": 7, "refused": 5}
    ]


def test_verdicts_of_the_policy_service_are_told_with_their_labels() -> None:
    assert status.refusals(PAGE) == [
        {"verdict": "refused", "route": "/v1/chat/completions", "rule": "max_tokens", "count": 4}
    ]


def test_a_certificate_has_days_and_none_has_none() -> None:
    assert status.certificate_days(status.numbers(STATS)) == 89
    assert status.certificate_days({"server.days_until_first_cert_expiring": 4_294_967_295}) is None
    assert status.certificate_days({}) is None
