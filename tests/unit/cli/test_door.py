"""The way in and every way out: help is quick, errors are words, codes are the documented ones."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control import cli, signals
from control.context import Control
from control.core.errors import FlashboxError, NotHealthyInTime, PreflightRefused, UsageError
from tests.unit.world import ROOT, Operator, World

HEAVY = ("docker", "pydantic", "requests", "rich", "yaml", "jinja2", "envoy")


def failing(error: BaseException) -> click.Command:
    @click.command("boom")
    def boom() -> None:
        raise error

    return boom


def leave(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    monkeypatch.setattr(cli.Door, "get_command", lambda *_: failing(error))
    result = CliRunner().invoke(cli.cli, ["status"])
    return result.exit_code, result.stderr


@pytest.mark.parametrize(
    ("error", "code"), [(FlashboxError, 1), (UsageError, 2), (PreflightRefused, 3), (NotHealthyInTime, 4)]
)
def test_an_error_says_what_why_and_fix_with_its_code(
    error: type[FlashboxError], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = leave(error("it broke", "line one\nline two", "mend it"), monkeypatch)
    assert seen == (code, "error: it broke\n  why: line one\n       line two\n  fix: mend it\n")


def test_ctrl_c_is_130_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = leave(KeyboardInterrupt(), monkeypatch)
    assert code == 130 and said.strip() == "interrupted"


def test_a_full_disk_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = leave(OSError(28, "No space left on device", "/srv/run"), monkeypatch)
    assert code == 1 and "No space left on device" in said and "/srv/run" in said and "Traceback" not in said


def test_a_fault_of_ours_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = leave(ZeroDivisionError("division by zero"), monkeypatch)
    assert code == 1 and "ZeroDivisionError" in said and "Traceback" not in said


def test_help_imports_nothing_heavy() -> None:
    code = "import contextlib, io, sys\nfrom control.cli import cli\n"
    code += (
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n    cli.main(['--help'])\n"
    )
    code += f"print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_takes_less_than_half_a_second_of_cpu() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "ctl.py", "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "up " in done.stdout
    assert (
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5
    )  # CPU time: load of others is not in it


def test_every_command_of_the_list_is_there_and_has_help() -> None:
    for name in cli.COMMANDS:
        result = CliRunner().invoke(cli.cli, [name, "--help"])
        assert result.exit_code == 0, (name, result.output)
        assert len(result.stdout.splitlines()) > 3


def test_every_module_of_commands_is_in_the_list() -> None:
    modules = {path.stem for path in (ROOT / "control/commands").glob("*.py")} - {"__init__"}
    assert modules == set(cli.COMMANDS)


@pytest.mark.parametrize(
    ("words", "expected"),
    [(("upp",), "Did you mean up?"), (("up", "--bogus"), "--bogus"), (("keys",), "add"), (("--nope",), "--nope")],
)
def test_words_that_are_not_ours_are_2_with_the_nearest(words: tuple[str, ...], expected: str) -> None:
    result = CliRunner().invoke(cli.cli, list(words))
    assert result.exit_code == 2
    assert expected in result.output


def test_a_wrong_setting_tells_path_expected_found_and_neighbour_all_at_once(tmp_path: Path) -> None:
    operator = Operator(tmp_path, World())
    operator.stack_yaml("gateway: {prot: 1}\n")
    operator.environ["FLASHBOX__GATEWAY__BIND"] = "nowhere"
    result = operator.types("up", "--profile", "stub", "--set", "engine.max_num_seqs=many")
    assert result.exit_code == 2
    for word in (
        "gateway.prot",
        "did you mean port?",
        "config/stack.yaml",
        "FLASHBOX__GATEWAY__BIND",
        "many",
        "integer",
    ):
        assert word in result.stderr, word


@pytest.mark.parametrize(
    "words", [("up", "--profile", "stub"), ("status",), ("down",), ("stop",), ("logs",), ("smoke",)]
)
def test_without_a_daemon_commands_are_3_and_name_the_socket(tmp_path: Path, words: tuple[str, ...]) -> None:
    for name in ("config", "compose"):
        __import__("shutil").copytree(ROOT / name, tmp_path / name)
    environ = {"PATH": "/usr/bin:/bin", "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    (tmp_path / "config/stack.yaml").write_text("engine: {kind: stub}\ngateway: {port: 0}\n")
    result = CliRunner().invoke(cli.cli, list(words), obj=Control(tmp_path, environ))
    assert result.exit_code == 3, result.output
    assert "none.sock" in result.stderr and "fix:" in result.stderr
    assert not (tmp_path / ".env").exists()


WORDS = st.lists(
    st.sampled_from([*cli.COMMANDS, "add", "list", "show", "build", "--json", "--set", "a.b=1", "gateway.port=0", "-v"])
    | st.sampled_from(["--profile", "stub", "gpu", "--tail", "-1", "--timeout", "nan", "--owner", "x", "--volumes"])
    | st.text(max_size=8),
    max_size=5,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=WORDS, text=st.sampled_from(["", "a: [", "engine: 3", "gateway: {port: no}", "\x00"]))
def test_no_words_and_no_stack_yaml_lead_to_a_traceback_or_a_fault_of_ours(
    tmp_path: Path, words: list[str], text: str
) -> None:
    operator = Operator(tmp_path, World(address=("127.0.0.1", 9)))
    operator.stack_yaml(text)
    if "up" in words or "build" in words:
        words = ["plan", *words]
    result = operator.types(*words)
    assert result.exit_code in (0, 1, 2, 3, 4), result.output
    assert "fault of flashbox" not in result.output, (words, text, result.output)


def test_a_reader_that_goes_away_is_no_error_to_talk_about() -> None:
    command = [sys.executable, "ctl.py", "config", "schema"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.wait()


def test_ctrl_c_at_the_whole_program_is_130() -> None:
    code = "import time; from control import cli; from control.steps import survey\n"
    code += "def slow(control):\n print('now', flush=True); time.sleep(60)\n"
    code += "survey.planned = slow; cli.cli.main(['plan'])"
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "now\n"
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130 and "Traceback" not in said


SLOW = """
import time
from control import cli, signals
from control.steps import survey
def slow(control):
    try:
        print('now', flush=True); time.sleep(60)
    finally:
        print('in order', flush=True)
survey.planned = slow
cli.cli.main(['plan'])
"""


def _slow(*words: str) -> subprocess.Popen[str]:
    command = [*words, sys.executable, "-c", SLOW]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "now\n"
    return process


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)], ids=str
)
def test_a_signal_ends_the_program_in_order_with_its_code(number: signal.Signals, code: int) -> None:
    process = _slow()
    os.kill(process.pid, number)
    out, said = process.communicate(timeout=20)
    assert (process.returncode, out) == (code, "in order\n")
    assert "interrupted" in said and "Traceback" not in said


def test_a_signal_that_the_parent_ignores_stays_ignored() -> None:
    process = _slow("sh", "-c", 'trap "" HUP; exec "$@"', "sh")
    os.kill(process.pid, signal.SIGHUP)
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 143  # of the two only SIGTERM counted, though SIGHUP has the lower number


def test_a_second_signal_does_not_disturb_what_the_first_put_in_order() -> None:
    with pytest.raises(signals.Ended) as ended, signals.raised():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            raise AssertionError("the signal did not arrive")
        finally:
            os.kill(os.getpid(), signal.SIGHUP)
    assert ended.value.exit_code == 143
