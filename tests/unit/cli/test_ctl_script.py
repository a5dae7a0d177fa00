"""`python ctl.py` with and without its packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.world import ROOT


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose `control` only says that it was reached, and by which words."""
    root = tmp_path / "my clone"
    (root / "control").mkdir(parents=True)
    shutil.copy(ROOT / "ctl.py", root)
    (root / "control/__init__.py").touch()
    (root / "control/cli.py").write_text("import sys\ndef main(): print('reached', sys.argv[1:])\n")
    return root


def run(python: Sequence[str], clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*python, "ctl.py", *words]
    return subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False, timeout=30)


WITHOUT_PACKAGES = (sys.executable, "-S")  # no site-packages: as a fresh machine's Python


def venv(clone: Path, script: str) -> None:
    """A .venv whose python is a script."""
    python = clone / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)


def test_with_its_packages_it_goes_straight_on(clone: Path) -> None:
    venv(clone, "echo wrong; exit 9")
    done = run((sys.executable,), clone, "up", "a b")
    assert (done.returncode, done.stdout) == (0, "reached ['up', 'a b']\n")


def test_without_packages_and_venv_it_is_one_line_that_names_make_setup(clone: Path) -> None:
    done = run(WITHOUT_PACKAGES, clone, "--help")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "make setup" in done.stderr


def test_without_packages_the_venvs_python_goes_on_with_the_same_words(clone: Path) -> None:
    venv(clone, f'exec {sys.executable} "$@"')
    done = run(WITHOUT_PACKAGES, clone, "up", "a b")
    assert (done.returncode, done.stdout) == (0, "reached ['up', 'a b']\n"), done.stderr


def test_a_venv_without_packages_is_tried_once_and_never_again(clone: Path) -> None:
    venv(clone, f'echo tried >> tried; exec {sys.executable} -S "$@"')
    done = run(WITHOUT_PACKAGES, clone, "up")
    assert done.returncode == 2 and "make setup" in done.stderr
    assert (clone / "tried").read_text() == "tried\n"


def test_a_venv_that_points_nowhere_counts_as_none(clone: Path) -> None:
    (clone / ".venv/bin").mkdir(parents=True)
    (clone / ".venv/bin/python").symlink_to("/nowhere/python")
    assert run(WITHOUT_PACKAGES, clone, "up").returncode == 2


def test_it_is_at_most_15_lines() -> None:
    assert len((ROOT / "ctl.py").read_text().splitlines()) <= 15
