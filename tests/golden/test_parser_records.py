"""Every rendered command was shown to the real parser of its release, which took it.

`make test-engine` asks the parsers and compares with the same records; `python -m tests.engine.record` rewrites them.
"""

from __future__ import annotations

import pytest

from tests.engine.rendered import CONTROLS, RELEASES, commands, cpu_release, recorded

RERECORD = "the real parser has not seen this command: make test-engine RECORD=1"


@pytest.mark.parametrize("release", RELEASES)
def test_every_rendered_command_was_taken_by_the_real_parser_of_its_release(release: str) -> None:
    record = recorded(release)
    assert record["release"] == release
    taken = {
        (tuple(entry["argv"]), tuple(entry["environment"]))
        for entry in record["commands"]
        if entry["ok"] and not entry["unknown_variables"]
    }
    unseen = [c for c in commands(release) if (c.argv, c.environment) not in taken]
    assert not unseen, f"{RERECORD}\n" + "\n".join(f"{c.sources}: {' '.join(c.argv)}" for c in unseen)


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_is_asked_about_plans_on_gpus(release: str) -> None:
    assert len(commands(release)) >= 3


def test_the_command_of_the_kind_cpu_is_among_them() -> None:
    assert any("--load-format" in command.argv for command in commands(cpu_release()))


@pytest.mark.parametrize("release", RELEASES)
def test_the_recorded_parser_refuses_what_is_wrong(release: str) -> None:
    controls = recorded(release)["controls"]
    assert [tuple(entry["argv"]) for entry in controls] == list(CONTROLS)
    assert [entry["ok"] for entry in controls] == [False] * len(CONTROLS)
