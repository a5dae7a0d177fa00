"""Leases: never more than the limit, and none that stays when its request has ended, whatever the order."""

from __future__ import annotations

from budget.core.leases import Lease, Leases
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

LONG = 10_000


def lease(expires: int = LONG, gateway: str = "g") -> Lease:
    return Lease(expires, gateway)


def test_the_limit_is_exact_and_a_place_given_back_is_free_at_once() -> None:
    leases = Leases()
    assert [leases.take("a", f"r{n}", 4, lease(), 0) for n in range(5)] == [True] * 4 + [False]
    leases.give_back("a", "r0")
    assert leases.take("a", "r4", 4, lease(), 0)
    assert leases.of("a") == 4


def test_keys_do_not_share_places() -> None:
    leases = Leases()
    assert leases.take("a", "r", 1, lease(), 0) and leases.take("b", "r2", 1, lease(), 0)
    assert leases.counts() == {"a": 1, "b": 1}


def test_a_repeated_check_takes_one_place() -> None:
    leases = Leases()
    assert leases.take("a", "r", 1, lease(), 0) and leases.take("a", "r", 1, lease(), 0)
    assert leases.of("a") == 1


def test_an_expired_lease_makes_room_before_anybody_sweeps() -> None:
    leases = Leases()
    assert leases.take("a", "old", 1, lease(expires=5), 0)
    assert not leases.take("a", "new", 1, lease(), 4)
    assert leases.take("a", "new", 1, lease(), 5)
    assert leases.of("a") == 1


def test_a_longer_lease_before_it_does_not_keep_an_expired_one() -> None:
    leases = Leases()
    leases.take("a", "long", 2, lease(expires=100), 0)
    leases.take("a", "short", 2, lease(expires=10), 0)
    leases.sweep(50)
    assert leases.of("a") == 1


def test_a_gateway_that_was_started_again_holds_nothing_any_more() -> None:
    leases = Leases()
    leases.seen("g1", "b1")
    leases.seen("g2", "b1")
    leases.take("a", "r1", 9, lease(gateway="g1"), 0)
    leases.take("a", "r2", 9, lease(gateway="g2"), 0)
    assert leases.seen("g1", "b1") and leases.of("a") == 2, "the same boot id, as after a hot restart, clears nothing"
    assert leases.seen("g1", "b2") and leases.of("a") == 1


def test_a_late_message_of_a_gateway_that_is_gone_clears_nothing() -> None:
    leases = Leases()
    leases.seen("g", "b1")
    leases.seen("g", "b2")
    leases.take("a", "r", 9, lease(), 0)
    assert not leases.seen("g", "b1"), "and it takes no place"
    assert leases.seen("g", "b2") and leases.of("a") == 1


class AnyOrder(RuleBasedStateMachine):
    """Against a model that keeps (key, request, expiry, gateway) in a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.leases, self.model, self.now, self.boot = Leases(), dict[tuple[str, str], Lease](), 0, {"g": 0, "h": 0}
        for gateway in self.boot:
            self.leases.seen(gateway, "0")

    @rule(
        key=st.sampled_from("ab"), request=st.sampled_from("rstuvw"), lasts=st.integers(1, 50), at=st.sampled_from("gh")
    )
    def check(self, key: str, request: str, lasts: int, at: str) -> None:
        held = (key, request) in self.model
        expected = held or sum(1 for who in self.model if who[0] == key) < 3
        new = Lease(self.now + lasts, at)
        assert self.leases.take(key, request, 3, new, self.now) is expected
        if expected and not held:
            self.model[key, request] = new

    @rule(key=st.sampled_from("ab"), request=st.sampled_from("rstuvwx"))
    def release(self, key: str, request: str) -> None:
        self.leases.give_back(key, request)
        self.model.pop((key, request), None)

    @rule(passed=st.integers(0, 30))
    def time(self, passed: int) -> None:
        self.now += passed
        self.model = {who: one for who, one in self.model.items() if one.expires > self.now}

    @rule(at=st.sampled_from("gh"))
    def crash(self, at: str) -> None:
        self.boot[at] += 1
        assert self.leases.seen(at, str(self.boot[at]))
        self.model = {who: one for who, one in self.model.items() if one.gateway != at}

    @rule(at=st.sampled_from("gh"))
    def late(self, at: str) -> None:
        if self.boot[at]:
            assert not self.leases.seen(at, str(self.boot[at] - 1))

    @invariant()
    def as_many_as_run(self) -> None:
        counts: dict[str, int] = {}
        for key, _ in self.model:
            counts[key] = counts.get(key, 0) + 1
        for key, most in counts.items():
            assert most <= self.leases.of(key)  # expired ones may still be there: they are in nobody's way

    @rule()
    def sweep(self) -> None:
        counts: dict[str, int] = {}
        for key, _ in self.model:
            counts[key] = counts.get(key, 0) + 1
        self.leases.sweep(self.now)
        assert self.leases.counts() == counts


AnyOrder.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestLeasesInAnyOrder = AnyOrder.TestCase
