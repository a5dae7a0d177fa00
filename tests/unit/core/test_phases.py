from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.core import phases
from control.core.phases import GateState, Line

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(["phase", "phase_s", "loaded", "last_error", "restarts", "since", "pid"])


def state(**fields: object) -> GateState:
    found = phases.parse_state(fields)
    assert found is not None
    return found


def test_the_gates_answer_is_read_whole() -> None:
    answer = {
        "phase": "loading",
        "since": 1.0,
        "phase_s": 214.2,
        "loaded": [31, 46],
        "last_error": None,
        "restarts": 0,
        "pid": 7,
    }
    assert phases.parse_state(answer) == GateState("loading", 214.2, (31, 46), None, 0)


@pytest.mark.parametrize("answer", [None, [], "ready", {}, {"phase": None}, {"phase": ""}, {"phase": 1}])
def test_an_answer_without_a_phase_is_no_state(answer: object) -> None:
    assert phases.parse_state(answer) is None


@given(st.dictionaries(FIELDS, JSON))
def test_no_answer_of_a_gate_breaks_the_words(answer: dict[str, object]) -> None:
    found = phases.parse_state(answer)
    assert phases.describe(found)
    if found:
        assert phases.line_of("engine-0", found).text.startswith("engine-0: ")


@pytest.mark.parametrize("loaded", [None, [], [1], [1, 2, 3], [47, 46], [-1, 46], ["1", 46], [True, 2], "12", 5])
def test_a_count_that_makes_no_sense_is_left_out(loaded: object) -> None:
    assert state(phase="loading", loaded=loaded).loaded is None


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"phase": "starting", "phase_s": 0.1}, Line("start", "engine-0: server process started", 0.1)),
        (
            {"phase": "loading", "loaded": [31, 46], "phase_s": 214},
            Line("load", "engine-0: weights, 31 of 46 shards", 214),
        ),
        ({"phase": "loading"}, Line("load", "engine-0: weights")),
        ({"phase": "compiling", "loaded": [46, 46]}, Line("compile", "engine-0: kernels")),
        ({"phase": "capturing", "loaded": [46, 46]}, Line("capture", "engine-0: CUDA graphs")),
        ({"phase": "warming", "loaded": [46, 46]}, Line("warm", "engine-0: first completion")),
        ({"phase": "ready", "last_error": "old"}, Line("ready", "engine-0: answers")),
        ({"phase": "draining"}, Line("drain", "engine-0: finishes its requests")),
        ({"phase": "failed", "last_error": "exit 1\nmore"}, Line("failed", "engine-0: gave up: exit 1")),
        ({"phase": "dreaming"}, Line("dreaming", "engine-0: dreaming")),
    ],
)
def test_each_phase_has_its_line(fields: dict[str, object], line: Line) -> None:
    assert phases.line_of("engine-0", state(**fields)) == line


def test_a_line_is_told_when_phase_count_or_error_changes_and_not_when_time_passes() -> None:
    before = {"engine-0": state(phase="loading", loaded=[1, 46], phase_s=1), "engine-1": None}
    assert phases.changes(before, {**before, "engine-0": state(phase="loading", loaded=[1, 46], phase_s=9)}) == []
    told = phases.changes(
        before, {"engine-0": state(phase="loading", loaded=[2, 46]), "engine-1": state(phase="starting")}
    )
    assert [line.text for line in told] == ["engine-0: weights, 2 of 46 shards", "engine-1: server process started"]
    error = state(phase="loading", loaded=[1, 46], last_error="no space left")
    assert [line.text for line in phases.changes(before, {"engine-0": error})] == [
        "engine-0: weights, 1 of 46 shards: no space left"
    ]
    assert phases.changes({}, {"engine-0": None}) == []
    assert phases.changes(before, {"engine-0": None}) == []


def test_status_says_phase_count_seconds_and_error() -> None:
    assert phases.describe(state(phase="loading", loaded=[31, 46], phase_s=214.4)) == "loading, 31 of 46 shards, 214 s"
    assert phases.describe(state(phase="failed", last_error="exit 137\nx")) == "failed, exit 137"
    assert phases.describe(None) == "gate does not answer"


def test_a_replica_that_never_gets_ready_is_told_with_phase_and_last_lines_of_its_log() -> None:
    states = {"engine-0": state(phase="ready"), "engine-1": state(phase="loading", phase_s=60), "engine-2": None}
    error = phases.never_ready(states, 61.4, {"engine-1": [f"line {n}" for n in range(50)]})
    assert error.exit_code == 4
    assert error.what == "2 of 3 replicas not ready after 61 s: engine-1, engine-2"
    lines = error.why.split("\n")
    assert lines[0] == "engine-1: loading, 60 s"
    assert lines[1:21] == [f"  line {n}" for n in range(30, 50)]
    assert lines[21:] == ["engine-2: gate does not answer"]
    assert error.fix == "python ctl.py logs engine-1"
    assert phases.ready(states) == ("engine-0",)
    assert phases.failed({**states, "engine-2": state(phase="failed")}) == ("engine-2",)
