"""What the control program understands of the real service's words."""

from __future__ import annotations

from control.core import budget_status
from control.core.budget_status import Seen
from tests.contract.budget.process import SOON_S, Budget
from tests.eventually import eventually


def seen(budget: Budget, published: str = "v") -> Seen:
    page = budget.ask("state")
    return Seen("running", page.stdout if page.returncode == 0 else None, published, (), {})


def test_the_state_that_the_service_prints_is_understood(budget: Budget) -> None:
    budget.limit(debt={"tpm": 6000}, few={"streams": 4})
    eventually(lambda: {row["key"] for row in budget.state["keys"]} >= {"debt", "few"}, SOON_S)
    told = budget_status.data(seen(budget))
    assert (told["answers"], told["fails_open"], told["troubles"]) == (True, [], [])
    assert told["limits"] == {"version": "v", "published": "v", "applied": True}
    keys = {key["key"]: key for key in budget_status.keys(seen(budget).said)}
    assert (keys["debt"]["tokens_left"], keys["debt"]["refill_per_s"], keys["few"]["streams_limit"]) == (6000, 100, 4)


def test_limits_that_cannot_be_read_are_a_trouble_and_stay_in_force(budget: Budget) -> None:
    budget.publish("{")
    eventually(lambda: budget.state["limits"]["error"], SOON_S)
    told = budget_status.data(seen(budget))
    assert any("the last good limits hold" in trouble for trouble in budget_status.troubles(seen(budget)))
    assert told["fails_open"] == []


def test_a_service_that_is_dead_fails_open(budget: Budget) -> None:
    budget.end()
    assert budget_status.fails_open(seen(budget)) == ["the service does not answer"]
