"""Decisions over all keys: what is refused and for how long, repeated and late messages, limits that change."""

from __future__ import annotations

import dataclasses

import pytest
from budget.core.counts import Counts
from budget.core.limits import Limit
from budget.core.recent import KEPT_MS, Recent
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.budget.said import charge, check, end, limits

TPM = Limit(tpm=6000)
FEW = Limit(streams=4)


def test_an_overshooting_request_is_paid_by_waiting_and_other_keys_do_not_notice() -> None:
    counts = Counts(limits(debt=TPM, other=TPM))
    assert counts.check(check("debt", "r1"), 0).refused == ""
    assert charge(counts, "debt", "r1", 6411, 0)
    refused = counts.check(check("debt", "r2"), 0)
    assert (refused.refused, refused.balance, refused.wait_ms) == ("tokens", -411, 4111)
    assert counts.check(check("other", "r3"), 0).refused == ""
    assert counts.check(check("debt", "r4"), 4110).refused == "tokens"
    assert counts.check(check("debt", "r5"), 4111).refused == ""


def test_a_refused_request_takes_no_place_and_costs_nothing() -> None:
    counts = Counts(limits(a=Limit(tpm=60, streams=2)))
    charge(counts, "a", "r0", 100, 0)
    before = counts.check(check("a", "r1"), 0)
    assert before.refused == "tokens" and counts.leases.counts() == {}
    assert counts.check(check("a", "r2"), 0).balance == before.balance


def test_forty_at_the_same_moment_and_a_limit_of_four_let_four_pass() -> None:
    counts = Counts(limits(few=FEW))
    answers = [counts.check(check("few", f"r{n}"), 0).refused for n in range(40)]
    assert answers.count("") == 4 and answers.count("streams") == 36


def test_a_key_without_limits_holds_nothing() -> None:
    counts = Counts(limits())
    for n in range(100):
        assert counts.check(check("free", f"r{n}"), 0).refused == ""
        charge(counts, "free", f"r{n}", 10**9, 0)
    assert counts.leases.counts() == {} and not list(counts.buckets())


def test_a_repeated_charge_counts_once() -> None:
    counts = Counts(limits(a=TPM))
    assert charge(counts, "a", "r", 100, 0)
    assert not charge(counts, "a", "r", 100, 5)
    assert counts.check(check("a", "s"), 5).balance == 5900


def test_a_check_that_comes_after_the_end_of_its_request_takes_no_place() -> None:
    counts = Counts(limits(few=FEW))
    end(counts, "few", "r", 0)
    assert counts.check(check("few", "r"), 1).refused == ""
    assert counts.leases.counts() == {}


def test_ends_are_not_remembered_for_ever() -> None:
    counts = Counts(limits(few=FEW))
    end(counts, "few", "r", 0)
    counts.sweep(KEPT_MS + 1)
    counts.check(check("few", "r"), KEPT_MS + 1)
    assert counts.leases.counts() == {"few": 1}


def test_a_check_of_a_gateway_that_is_gone_takes_no_place() -> None:
    counts = Counts(limits(few=FEW))
    counts.check(check("few", "r1", "g:1"), 0)
    counts.check(check("few", "r2", "g:2"), 0)
    counts.check(check("few", "r3", "g:1"), 0)
    assert counts.leases.counts() == {"few": 1}


def test_a_lease_ends_with_the_longest_stream() -> None:
    counts = Counts(limits(longest_s=10, few=FEW))
    counts.check(check("few", "r"), 0)
    counts.sweep(9_999)
    assert counts.leases.counts() == {"few": 1}
    counts.sweep(10_000)
    assert counts.leases.counts() == {}


@pytest.mark.parametrize(("tpm", "balance"), [(12_000, 7_000), (6_000, 1_000), (3_000, -2_000)])
def test_a_changed_budget_keeps_what_was_used(tpm: int, balance: int) -> None:
    counts = Counts(limits(a=TPM))
    charge(counts, "a", "r", 5000, 0)
    counts.retune(limits(a=Limit(tpm=tpm)), 0)
    assert counts.check(check("a", "s"), 0).balance == balance


def test_time_before_a_change_counts_at_the_rate_of_then() -> None:
    counts = Counts(limits(a=TPM))
    charge(counts, "a", "r", 6000, 0)
    counts.retune(limits(a=Limit(tpm=60_000)), 10_000)  # 1000 tokens came back until here
    assert counts.check(check("a", "s"), 10_000).balance == 55_000


def test_a_budget_taken_away_forgives_and_a_default_reaches_every_key() -> None:
    counts = Counts(limits(default=TPM))
    charge(counts, "anybody", "r", 9000, 0)
    assert counts.check(check("anybody", "s"), 0).refused == "tokens"
    counts.retune(limits(), 0)
    counts.retune(limits(default=TPM), 0)
    assert counts.check(check("anybody", "t"), 0).balance == 6000


def test_running_requests_stay_counted_when_their_limit_is_lowered() -> None:
    counts = Counts(limits(few=FEW))
    for n in range(4):
        counts.check(check("few", f"r{n}"), 0)
    counts.retune(limits(few=Limit(streams=2)), 0)
    end(counts, "few", "r0", 0)
    end(counts, "few", "r1", 0)
    assert counts.check(check("few", "s"), 0).refused == "streams"
    end(counts, "few", "r2", 0)
    assert counts.check(check("few", "s"), 0).refused == ""


def test_a_full_bucket_is_forgotten() -> None:
    counts = Counts(limits(a=TPM))
    charge(counts, "a", "r", 100, 0)
    counts.sweep(999)
    assert len(list(counts.buckets())) == 1
    counts.sweep(1000)
    assert not list(counts.buckets())


def test_states_show_limited_keys_and_those_that_run_or_owe() -> None:
    counts = Counts(limits(default=Limit(tpm=600, streams=2), vip=Limit()))
    counts.check(check("runs", "r"), 0)
    charge(counts, "owes", "s", 700, 0)
    shown = {state.key: dataclasses.astuple(state)[1:] for state in counts.states(0)}
    assert shown == {"owes": (600, -100, 10.001, 2, 0), "runs": (600, 600, 0, 2, 1), "vip": (0, 0, 0, 0, 0)}


def test_ids_are_kept_as_long_as_the_gateway_repeats_and_not_for_ever() -> None:
    recent: Recent[None] = Recent()
    recent.add("r", None, 0)
    recent.forget(KEPT_MS)
    assert "r" in recent and KEPT_MS > 2 * 60_000
    recent.forget(KEPT_MS + 1)
    assert "r" not in recent


def test_the_memory_for_ids_has_an_end() -> None:
    recent: Recent[None] = Recent(most=3)
    for n in range(5):
        recent.add(str(n), None, 0)
    assert [n for n in "01234" if n in recent] == ["2", "3", "4"]


MESSAGES = st.lists(st.tuples(st.sampled_from(["check", "charge", "release"]), st.sampled_from("rstuv")), max_size=40)


@given(MESSAGES, st.integers(1, 3))
def test_whatever_the_order_nothing_is_charged_twice_and_no_place_stays_when_all_have_ended(
    messages: list[tuple[str, str]], streams: int
) -> None:
    counts = Counts(limits(a=Limit(tpm=60_000, streams=streams)))
    charged = set()
    for kind, request in messages:
        if kind == "check":
            counts.check(check("a", request), 0)
        elif kind == "charge":
            assert charge(counts, "a", request, 7, 0) is (request not in charged)
            charged.add(request)
        else:
            end(counts, "a", request, 0)
        assert counts.leases.of("a") <= streams
    for request in "rstuv":
        end(counts, "a", request, 0)
    for request in "rstuv":  # late ones
        counts.check(check("a", request), 0)
    assert counts.leases.counts() == {}
    assert counts.check(check("a", "last"), 0).balance == 60_000 - 7 * len(charged)


# ---- limits that are only observed


def test_what_is_only_observed_is_decided_as_if_it_were_in_force() -> None:
    def decided(observe: bool) -> list[tuple[str, int]]:
        counts = Counts(dataclasses.replace(limits(a=Limit(tpm=6000, streams=3)), observe=observe))
        found = []
        for second in range(120):
            decision = counts.check(check("a", f"r{second}"), second * 1000)
            found.append((decision.refused or decision.would, decision.balance))
            if second % 5 == 4:
                for done in range(second - 4, second + 1):
                    if observe or found[done][0] == "":
                        charge(counts, "a", f"r{done}", 400, second * 1000)
                        end(counts, "a", f"r{done}", second * 1000)
            assert not (observe and decision.refused)
        return found

    in_force = decided(observe=False)
    assert {word for word, _ in in_force} == {"", "tokens", "streams"}
    assert decided(observe=True) == in_force


def test_an_observed_refusal_costs_nothing_once() -> None:
    counts = Counts(dataclasses.replace(limits(a=TPM), observe=True))
    charge(counts, "a", "r0", 6100, 0)
    assert counts.check(check("a", "r1"), 0).would == "tokens"
    assert charge(counts, "a", "r1", 999, 0) and not charge(counts, "a", "r1", 999, 0)
    assert counts.check(check("a", "r2"), 0).balance == -100


def test_a_refusal_that_is_in_force_has_no_other_name() -> None:
    counts = Counts(limits(few=Limit(streams=1)))
    counts.check(check("few", "r0"), 0)
    decision = counts.check(check("few", "r1"), 0)
    assert (decision.refused, decision.would) == ("streams", "")
