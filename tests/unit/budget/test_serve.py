"""What the process does by the clock."""

from __future__ import annotations

import asyncio
from pathlib import Path

from budget.config import Config
from budget.core.limits import Limit
from budget.serve import NOT_HEARD_MS, STOOD_STILL_MS, Service

from tests.unit.budget.said import check, limits


def test_after_a_long_standstill_running_requests_are_forgotten_since_their_ends_may_never_be_said(
    tmp_path: Path,
) -> None:
    async def work() -> tuple[int, int]:
        service = Service(Config(folder=tmp_path, state=tmp_path))
        counts = service._counts
        counts.limits = limits(few=Limit(streams=4))
        counts.check(check("few", "r"), 0)
        service._look_after(0, STOOD_STILL_MS)
        before = counts.leases.of("few")
        service._look_after(0, STOOD_STILL_MS + 1)
        return before, counts.leases.of("few")

    assert asyncio.run(work()) == (1, 0)


def test_after_a_short_standstill_no_place_is_refused_until_the_ends_that_waited_are_read(tmp_path: Path) -> None:
    async def work() -> list[str]:
        service = Service(Config(folder=tmp_path, state=tmp_path))
        counts = service._counts
        counts.limits = limits(few=Limit(streams=1))
        counts.check(check("few", "r"), 0)
        refused = []
        for now, passed in ((600, 600), (2_600, NOT_HEARD_MS + 1), (12_599, 500), (12_600, 500)):
            service._look_after(now, passed)
            refused.append(counts.check(check("few", f"r{now}"), now).refused)
        assert counts.leases.of("few") == 1  # and those that it let pass hold none
        return refused

    assert asyncio.run(work()) == ["streams", "", "", "streams"]


def test_settings_come_from_the_environment_with_their_types() -> None:
    config = Config.read({"BUDGET_PORT": "7", "BUDGET_STATE": "/x", "BUDGET_DRAIN_S": "0.5", "BUDGET_LEDGER_DAYS": ""})
    assert config == Config(port=7, state=Path("/x"), drain_s=0.5)
