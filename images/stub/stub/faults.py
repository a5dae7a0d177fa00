"""What can be made to go wrong while the stand-in runs, and what is set now."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stub.engine import Engine

Setter = Callable[[object], bool]  # True if the value was one
_LONGEST_S = 86_400


class Faults:
    """The faults; each has a value that means "off"."""

    def __init__(self, load_s: float, engine: Engine) -> None:
        self.load_s = load_s
        self.loading = True
        self.unavailable = False  # every request for an answer gets a 503
        self.unhealthy = False  # /health and /ping say 503
        self.cut_after: int | None = None  # a stream's connection is cut after so many events
        self.die: Callable[[], None] = lambda: None  # set by the process
        self._engine = engine
        self._setters: Mapping[str, Setter] = {
            "slow_load": self._slow_load,
            "hang": self._hang,
            "unavailable": lambda value: self._switch("unavailable", value),
            "unhealthy": lambda value: self._switch("unhealthy", value),
            "cut": self._cut,
            "jit_stall": self._jit_stall,
            "die": self._die,
            "clear": self._clear,
        }

    def apply(self, wanted: object) -> str | None:
        """Do what is wanted, in its order; a text says why not."""
        if not isinstance(wanted, dict) or not wanted:
            return f"expected an object with one or more of {', '.join(self._setters)}"
        for name, value in wanted.items():
            if name not in self._setters:
                return f"{name}: no such fault; there are {', '.join(self._setters)}"
            if name == "slow_load" and not self.loading:
                return "slow_load: the load is over; start the server with STUB_LOAD_S instead"
            if not self._setters[name](value):
                return f"{name}: no such value; expected {_EXPECTED[name]}"
        return None

    def state(self) -> dict[str, object]:
        """What is set."""
        return {
            "loading": self.loading,
            "slow_load": self.load_s,
            "hang": self._engine.frozen,
            "unavailable": self.unavailable,
            "unhealthy": self.unhealthy,
            "cut": self.cut_after,
            "jit_stall": self._engine.stall_s,
            "die": self._engine.dead,
        }

    def _switch(self, name: str, value: object) -> bool:
        if isinstance(value, bool):
            setattr(self, name, value)
        return isinstance(value, bool)

    def _slow_load(self, value: object) -> bool:
        seconds = _seconds(value)
        self.load_s = self.load_s if seconds is None else seconds
        return seconds is not None

    def _hang(self, value: object) -> bool:
        if isinstance(value, bool):
            self._engine.freeze(value)
        return isinstance(value, bool)

    def _cut(self, value: object) -> bool:
        good = value is None or (type(value) is int and value >= 0)
        if good:
            self.cut_after = value  # type: ignore[assignment]
        return good

    def _jit_stall(self, value: object) -> bool:
        seconds = _seconds(value)
        if seconds is not None:
            self._engine.stall_new_shapes(seconds)
        return seconds is not None

    def _die(self, value: object) -> bool:
        if value is True:
            self.die()
        return value is True

    def _clear(self, value: object) -> bool:
        if value is True:
            self.unavailable = self.unhealthy = False
            self.cut_after = None
            self._engine.freeze(False)
            self._engine.stall_new_shapes(0.0)
        return value is True


def _seconds(value: object) -> float | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and 0 <= value <= _LONGEST_S else None  # type: ignore[arg-type, operator]


_EXPECTED = {
    "slow_load": "seconds",
    "hang": "true or false",
    "unavailable": "true or false",
    "unhealthy": "true or false",
    "cut": "a number of events, or null",
    "jit_stall": "seconds, 0 for none",
    "die": "true",
    "clear": "true",
}
