"""Subcommands, and what a wrong environment or command gets: one line with what, why and fix."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.contract.gate.process import KEY, GateProcess


def test_state_prints_the_json_of_the_running_gate(gate: GateProcess) -> None:
    gate.start()
    gate.in_phase("ready")
    answer = gate.run("state")
    assert answer.returncode == 0
    assert json.loads(answer.stdout)["phase"] == "ready"


def test_ready_exits_0_only_when_ready(gate: GateProcess) -> None:
    gate.set("hold_load")
    gate.start()
    gate.in_phase("loading")
    assert gate.run("ready").returncode == 1
    gate.unset("hold_load")
    gate.in_phase("ready")
    assert gate.run("ready").returncode == 0


@pytest.mark.parametrize("command", ["state", "ready"])
def test_a_gate_that_does_not_run_is_told(gate: GateProcess, command: str) -> None:
    answer = gate.run(command)
    assert answer.returncode == 1
    assert refusal(answer.stderr)["what"] == f"no gate answers on port {gate.port}"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("GATE_PORT", "91OO", "a port"),
        ("GATE_PORT", "70000", "port must be 0-65535"),
        ("GATE_UPSTREAM", "127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("GATE_UPSTREAM", "http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("GATE_UPSTREAM", "http://127.0.0.1:eighty", "http://127.0.0.1:8000"),
        ("GATE_MODEL", "", "served model name"),
        ("GATE_API_KEY_FILE", "", "a file with the key"),
        ("GATE_API_KEY_FILE", "/nonexistent/key", "No such file"),
        ("GATE_NOTICE_S", "-1", "seconds"),
        ("GATE_DRAIN_S", "nan", "seconds"),
        ("GATE_DRAIN_S", "5m", "seconds"),
        ("GATE_START_TIMEOUT_S", "", "seconds"),
        ("GATE_START_TIMEOUT_S", "inf", "seconds"),
        ("GATE_HANG_S", "", "seconds"),
        ("GATE_HANG_S", "0.0", "above 0"),
        ("GATE_PROBE_S", "0", "above 0"),
    ],
)
def test_a_wrong_variable_is_refused_by_name(gate: GateProcess, name: str, value: str, expected: str) -> None:
    gate.environment[name] = value
    answer = gate.run("run", "--", "/bin/true")
    assert answer.returncode == 2
    line = refusal(answer.stderr)
    assert line["what"] == f"{name}={value}" and expected in line["why"] and line["fix"]


@pytest.mark.parametrize("content", [b"", b"two words", b"two\nlines", b"schl\xfcssel"])
def test_a_key_file_that_holds_no_key_is_refused_without_showing_it(gate: GateProcess, content: bytes) -> None:
    Path(gate.environment["GATE_API_KEY_FILE"]).write_bytes(content)
    answer = gate.run("run", "--", "/bin/true")
    assert answer.returncode == 2
    assert "the key" in refusal(answer.stderr)["why"]
    assert not content or content.decode("latin-1").split()[0] not in answer.stderr


def test_a_missing_command_is_127_and_one_that_cannot_be_executed_126(gate: GateProcess, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    missing = gate.run("run", "--", "no-such-server", KEY)
    assert missing.returncode == 127
    assert refusal(missing.stderr)["what"] == "cannot run no-such-server"
    assert gate.run("run", "--", str(plain)).returncode == 126
    os.chmod(plain, 0o755)
    assert gate.run("run", "--", str(plain)).returncode == 126


@pytest.mark.parametrize("arguments", [[], ["run"], ["run", "--"], ["run", "server"], ["stop"]])
def test_an_unknown_command_line_is_refused_with_the_usage(gate: GateProcess, arguments: list[str]) -> None:
    answer = gate.run(*arguments)
    assert answer.returncode == 2
    assert "run -- SERVER" in refusal(answer.stderr)["fix"]


def refusal(stderr: str) -> dict[str, str]:
    """Return the one line that was printed."""
    (line,) = stderr.splitlines()
    answer: dict[str, str] = json.loads(line)
    assert answer["event"] == "refused"
    return answer
