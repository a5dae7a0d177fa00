"""Data goes to stdout, progress to stderr, one line a step."""

from __future__ import annotations

import pytest

from control.adapters.console import Console


def test_a_step_is_one_line_with_verb_first_and_seconds_last(capsys: pytest.CaptureFixture[str]) -> None:
    with Console().step("render") as step:
        step.text = "9 files, 3 changed"
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("render   9 files, 3 changed ") and err.endswith("s\n") and err.count("\n") == 1


def test_a_step_that_fails_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError), Console().step("render"):
        raise RuntimeError
    assert capsys.readouterr().err == ""


def test_details_are_shown_only_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    Console().detail("+ docker")
    Console(verbose=True).detail("+ docker ps")
    assert capsys.readouterr().err == "+ docker ps\n"


def test_a_table_without_a_terminal_has_one_row_a_line_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    Console().table(("name", "detail"), [("engine-0", "x" * 150), ("engine-1", "[bold]no markup[/]")])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and "\x1b" not in "".join(lines)
    assert "x" * 150 in lines[1] and "[bold]no markup[/]" in lines[2]
