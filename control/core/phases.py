"""A replica's gate, in words: what `up` prints when it changes and what `status` shows.

The input is the JSON of the gate's /state. A gate that did not answer is None; a word that this
version does not know is shown as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from control.core.errors import NotHealthyInTime

READY = "ready"
FAILED = "failed"
# phase -> the verb that opens a line of `up`
_VERBS = {
    "starting": "start",
    "loading": "load",
    "compiling": "compile",
    "capturing": "capture",
    "warming": "warm",
    READY: "ready",
    "draining": "drain",
    FAILED: "failed",
}
_LAST_LINES = 20


@dataclass(frozen=True)
class GateState:
    """What one gate said. `loaded` is (shards there, shards in all); None where it said nothing."""

    phase: str
    phase_s: float | None = None
    loaded: tuple[int, int] | None = None
    last_error: str | None = None
    restarts: int | None = None


@dataclass(frozen=True)
class Line:
    """One line of `up`: verb, text, seconds so far."""

    verb: str
    text: str
    seconds: float | None = None


def parse_state(answer: object) -> GateState | None:
    """The gate's JSON; None for anything that names no phase."""
    if not isinstance(answer, Mapping):
        return None
    phase = answer.get("phase")
    if not isinstance(phase, str) or not phase:
        return None
    error = answer.get("last_error")
    restarts = _number(answer.get("restarts"))
    return GateState(
        phase=phase,
        phase_s=_number(answer.get("phase_s")),
        loaded=_loaded(answer.get("loaded")),
        last_error=error if isinstance(error, str) and error.strip() else None,
        restarts=None if restarts is None else int(restarts),
    )


def _number(value: object) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 else None


def _loaded(value: object) -> tuple[int, int] | None:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        return None
    there, of_all = value
    if not all(isinstance(n, int) and not isinstance(n, bool) for n in (there, of_all)):
        return None
    return (there, of_all) if 0 <= there <= of_all else None


def changes(before: Mapping[str, GateState | None], now: Mapping[str, GateState | None]) -> list[Line]:
    """A line for each replica whose phase, count or error changed; time that only passes is no change."""
    return [
        line_of(name, state)
        for name, state in now.items()
        if state is not None and _told(state) != _told(before.get(name))
    ]


def _told(state: GateState | None) -> object:
    return state and (state.phase, state.loaded, state.last_error)


def line_of(name: str, state: GateState) -> Line:
    """`load engine-0: weights, 31 of 46 shards`."""
    return Line(_VERBS.get(state.phase, state.phase), f"{name}: {_doing(state)}", state.phase_s)


def _doing(state: GateState) -> str:
    words = {
        "starting": "server process started",
        "loading": "weights",
        "compiling": "kernels",
        "capturing": "CUDA graphs",
        "warming": "first completion",
        READY: "answers",
        "draining": "finishes its requests",
        FAILED: "gave up",
    }
    text = words.get(state.phase, state.phase)
    if state.phase == "loading" and state.loaded:
        text += f", {state.loaded[0]} of {state.loaded[1]} shards"
    if state.last_error and state.phase != READY:
        text += f": {_first_line(state.last_error)}"
    return text


def describe(state: GateState | None) -> str:
    """One cell of `status`: `loading, 31 of 46 shards, 214 s`."""
    if state is None:
        return "gate does not answer"
    parts = [state.phase]
    if state.phase == "loading" and state.loaded:
        parts.append(f"{state.loaded[0]} of {state.loaded[1]} shards")
    if state.phase_s is not None:
        parts.append(f"{state.phase_s:.0f} s")
    if state.last_error:
        parts.append(_first_line(state.last_error))
    return ", ".join(parts)


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0]


def ready(states: Mapping[str, GateState | None]) -> tuple[str, ...]:
    """Names of the replicas whose gate says ready."""
    return tuple(name for name, state in states.items() if state is not None and state.phase == READY)


def failed(states: Mapping[str, GateState | None]) -> tuple[str, ...]:
    """Names of the replicas whose gate gave up: waiting longer is no use."""
    return tuple(name for name, state in states.items() if state is not None and state.phase == FAILED)


def never_ready(
    states: Mapping[str, GateState | None], waited_s: float, last_lines: Mapping[str, Sequence[str]]
) -> NotHealthyInTime:
    """The error for `up`: each replica that is not ready, its phase, and the end of its log."""
    late = [name for name in states if name not in ready(states)]
    what = f"{len(late)} of {len(states)} replicas not ready after {waited_s:.0f} s: {', '.join(late)}"
    why = []
    for name in late:
        why.append(f"{name}: {describe(states[name])}")
        why += [f"  {line.rstrip()}" for line in list(last_lines.get(name, ()))[-_LAST_LINES:]]
    return NotHealthyInTime(what, "\n".join(why), f"python ctl.py logs {late[0]}" if late else "")
