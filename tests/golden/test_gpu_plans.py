"""The golden plans are what the code makes today."""

from __future__ import annotations

import pytest

from tests.golden.gpu_plans import CASES, HERE, build


def test_there_is_one_file_for_each_golden_plan_and_no_other() -> None:
    assert sorted(path.stem for path in HERE.glob("*.json")) == sorted(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_golden_plan_is_what_the_planner_makes_today(name: str) -> None:
    assert build(name) == (HERE / f"{name}.json").read_text(encoding="utf-8"), (
        "If this change is meant: python -m tests.golden.gpu_plans"
    )
