"""Commands are run as tuples, end in time, take Ctrl-C with them, and keep secrets to themselves."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from control.adapters.shell import CommandFailed, Shell
from tests.eventually import eventually


def shell(tmp_path: Path, echo: list[str] | None = None) -> Shell:
    return Shell(tmp_path, {"PATH": os.environ["PATH"]}, None if echo is None else echo.append)


def python(code: str, *args: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *args)


def test_output_folder_and_environment_are_the_shells(tmp_path: Path) -> None:
    done = shell(tmp_path).run(python("import os; print(os.getcwd(), os.environ['A'])"), env={"A": "b"})
    assert done.out.split() == [str(tmp_path), "b"]


def test_no_word_is_ever_interpreted(tmp_path: Path) -> None:
    words = ("$(id)", "a;b", "`x`", "*", "two words")
    done = shell(tmp_path).run(python("import sys; print(sys.argv[1:])", *words))
    assert done.out.strip() == str(list(words))


def test_a_failure_shows_the_command_its_code_and_its_last_lines(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed) as caught:
        shell(tmp_path).run(python("import sys; print('why not', file=sys.stderr); sys.exit(7)"))
    assert "exit 7" in caught.value.what and "why not" in caught.value.why


def test_a_missing_command_is_an_answer_to_a_probe_and_an_error_of_a_run(tmp_path: Path) -> None:
    done = shell(tmp_path).probe(("no-such-command",))
    assert done.code is None and "no-such-command" in done.err
    with pytest.raises(CommandFailed):
        shell(tmp_path).run(("no-such-command",))


def test_a_hanging_command_and_its_children_end_at_the_limit(tmp_path: Path) -> None:
    code = "import subprocess,sys,time\nc=subprocess.Popen([sys.executable,'-c','import time;time.sleep(600)'])\n"
    code += "open('pid','w').write(str(c.pid))\ntime.sleep(600)"
    done = shell(tmp_path).probe(python(code), timeout_s=3.0)
    assert done.code is None and "no end within 3 s" in done.err
    child = int((tmp_path / "pid").read_text())
    eventually(lambda: _is_gone(child), 5)


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_ctrl_c_is_passed_on_once_and_the_command_may_tidy_up(tmp_path: Path) -> None:
    code = (
        "import signal,sys,time\n"
        "def tidy(*_):\n open('tidied','a').write('x'); sys.exit(0)\n"
        "signal.signal(signal.SIGINT, tidy); open('ready','w').close(); time.sleep(60)"
    )

    def interrupt() -> None:
        eventually((tmp_path / "ready").exists, 10)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        shell(tmp_path).run(python(code))
    thread.join()
    assert (tmp_path / "tidied").read_text() == "x"


def test_echo_shows_words_and_no_environment_or_input(tmp_path: Path) -> None:
    echo: list[str] = []
    shell(tmp_path, echo).run(python("pass", "a b"), env={"TOKEN": "s3cret"}, stdin="s3cret")
    assert echo == [f"+ {sys.executable} -c pass 'a b'"]


def test_stream_hands_on_each_line_and_raises_with_the_last_ones(tmp_path: Path) -> None:
    lines: list[str] = []
    with pytest.raises(CommandFailed) as caught:
        shell(tmp_path).stream(python("print('one'); print('two'); raise SystemExit(3)"), lines.append)
    assert lines == ["one", "two"] and "two" in caught.value.why


def test_output_that_is_no_text_is_no_reason_to_fail(tmp_path: Path) -> None:
    assert shell(tmp_path).run(python("import sys; sys.stdout.buffer.write(b'\\xff\\xfe')")).ok
