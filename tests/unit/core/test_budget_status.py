"""The budget service and the check, understood: what is left, and whether requests pass unchecked."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from control.core import budget_status as status
from control.core.budget_status import Seen

VERSION = "3f" * 32
SAID: dict[str, Any] = {
    "serving": True,
    "up_s": 5.0,
    "limits": {"version": VERSION, "error": None},
    "journal": {"error": None, "errors": 0, "bytes": 10},
    "ledger": {"error": None, "errors": 0, "waiting": 0, "lost": 0},
    "keys": [
        {"key": "alice", "tpm": 6000, "balance": -411, "wait_s": 4.12, "streams": 64, "leases": 3},
        {"key": "bob", "tpm": 0, "balance": None, "wait_s": 0.0, "streams": 0, "leases": 1},
        {"key": "carol", "tpm": 90, "balance": 45, "wait_s": 0.0, "streams": 2, "leases": 0},
    ],
}
GOOD = Seen("running", json.dumps(SAID), VERSION, (), {})
ALLOWED = "cluster.vllm.ratelimit.budget.failure_mode_allowed"


def saying(**more: object) -> Seen:
    return replace(GOOD, page=json.dumps({**SAID, **more}))


def test_a_service_that_is_well_is_said_to_be_and_nothing_fails_open() -> None:
    told = status.data(GOOD)
    assert (told["answers"], told["fails_open"], told["troubles"], told["unchecked"]) == (True, [], [], 0)
    assert list(status.lines(told)) == [
        "budget check: answers",
        "budget service: goes by the rendered limits (3f3f3f3f3f3f)",
    ]


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (replace(GOOD, container=None, page=None), "its container does not exist"),
        (replace(GOOD, container="exited", page=None), "its container is exited"),
        (replace(GOOD, page=None), "the service does not answer"),
        (replace(GOOD, page="no answer"), "the service does not answer"),
        (replace(GOOD, page="[]"), "the service does not answer"),
        (saying(serving=False), "the service starts or ends"),
        (replace(GOOD, grown=3, stats={ALLOWED: 9}), "3 requests passed unchecked while this looked"),
        (replace(GOOD, hosts=({"cluster": "budget", "health": "failed_active_hc"},)), "failed_active_hc"),
    ],
)
def test_a_check_that_fails_open_says_so_and_why(seen: Seen, why: str) -> None:
    told = status.data(seen)
    (reason,) = told["fails_open"]  # type: ignore[misc]
    assert why in reason
    first = next(status.lines(told))
    assert "FAILS OPEN" in first and why in first


def test_hosts_that_are_well_or_are_not_the_budgets_make_nothing_fail_open() -> None:
    hosts = ({"cluster": "budget", "health": "healthy"}, {"cluster": "vllm", "health": "failed_active_hc"})
    assert status.fails_open(replace(GOOD, hosts=hosts)) == []


def test_requests_that_once_passed_unchecked_are_told_and_are_no_alarm() -> None:
    told = status.data(replace(GOOD, stats={ALLOWED: 9, "cluster.budget_done.upstream_rq_retry": 4}))
    assert (told["unchecked"], told["repeated_ends"], told["fails_open"]) == (9, 4, [])
    assert "9 requests passed unchecked since Envoy started" in next(status.lines(told))


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (saying(journal={"error": "No space left on device"}), "No space left on device"),
        (saying(ledger={"error": "read-only", "waiting": 7, "lost": 0}), "7 lines wait in memory"),
        (saying(ledger={"error": None, "waiting": 0, "lost": 5}), "5 lines of the ledger were given up"),
        (saying(limits={"version": VERSION, "error": "not an object"}), "the last good limits hold"),
        (replace(GOOD, stats={"cluster.budget_done.upstream_rq_retry_limit_exceeded": 2}), "never charged"),
        (replace(GOOD, stats={"http.ingress_http.lua.usage.errors": 6}), "failed 6 times"),
    ],
)
def test_what_is_wrong_beside_the_check_is_told_with_what_it_leads_to(seen: Seen, words: str) -> None:
    told = status.data(seen)
    (trouble,) = told["troubles"]  # type: ignore[misc]
    assert words in trouble and told["fails_open"] == []
    assert any(words in line for line in status.lines(told))


@pytest.mark.parametrize("asks", ["ext_authz", "ratelimit"])
def test_a_request_that_passed_unchecked_counts_once_whichever_filter_asked(asks: str) -> None:
    at_cluster, at_listener = f"cluster.vllm.{asks}.budget", f"http.ingress_http.{asks}.budget"
    stats = {f"{at_cluster}.failure_mode_allowed": 9, f"{at_listener}.failure_mode_allowed": 9}
    assert status.unchecked({**stats, f"cluster.vllm.{asks}.charge.failure_mode_allowed": 4}) == 9


def test_limits_that_are_not_taken_up_yet_are_told_with_both_versions() -> None:
    told = status.data(replace(GOOD, published="ab" * 32))
    assert told["limits"] == {"version": "3f" * 6, "published": "ab" * 6, "applied": False}
    assert any("rendered are abababababab: not applied yet" in line for line in status.lines(told))


@pytest.mark.parametrize("seen", [replace(GOOD, page=None), replace(GOOD, published=None), saying(limits={})])
def test_whether_limits_are_applied_may_be_unknown(seen: Seen) -> None:
    assert status.limits(seen)["applied"] is None
    assert not any("limits" in line for line in status.lines(status.data(seen)))


def test_a_key_has_what_is_left_or_owed_when_it_may_ask_and_its_streams() -> None:
    alice, bob, carol = status.keys(SAID)
    assert alice == {
        "key": "alice",
        "tokens_per_minute": 6000,
        "tokens_left": -411,
        "refill_per_s": 100.0,
        "wait_s": 4.12,
        "streams": 3,
        "streams_limit": 64,
    }
    assert (bob["tokens_left"], bob["refill_per_s"]) == (None, None)
    rows = [dict(zip(status.COLUMNS, status.row(key), strict=True)) for key in (alice, bob, carol)]
    assert [row["left"] for row in rows] == ["owes 411", "", "45"]
    assert [row["may ask"] for row in rows] == ["in 4.1 s", "now", "now"]
    assert [row["refill/s"] for row in rows] == ["100", "", "1.5"]
    assert [(row["streams"], row["of"]) for row in rows] == [("3", "64"), ("1", "no limit"), ("0", "2")]


def test_a_key_whose_places_are_all_taken_may_ask_when_one_of_its_requests_ends() -> None:
    (key,) = status.keys({"keys": [{**SAID["keys"][2], "leases": 2}]})
    assert dict(zip(status.COLUMNS, status.row(key), strict=True))["may ask"] == "when one ends"
