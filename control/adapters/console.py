"""Says things: data to stdout, progress to stderr, one line a step (verb first, seconds last)."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

TEXT_WIDTH = 66


class Step:
    """A step that is being done; `text` is what its line will say."""

    def __init__(self, text: str) -> None:
        self.text = text


class Console:
    """The operator's terminal. `verbose` shows external commands and their output."""

    def __init__(self, verbose: bool = False) -> None:
        self.verbose = verbose
        self._begun = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._begun

    def data(self, text: str) -> None:
        print(text, flush=True)

    def json(self, value: object) -> None:
        self.data(json.dumps(value, indent=2, ensure_ascii=False))

    def piece(self, text: str) -> None:
        """Part of a line of data, shown at once."""
        print(text, end="", flush=True)

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def detail(self, text: str) -> None:
        """Shown with -v only."""
        if self.verbose:
            self.note(text)

    def say(self, verb: str, text: str, seconds: float | None = None) -> None:
        """One line of progress; further lines of the text are indented below it."""
        first, *rest = text.splitlines() or [""]
        timing = "" if seconds is None else f"{seconds:>8.1f}s"
        self.note(f"{verb:<8} {first:<{TEXT_WIDTH}}{timing}".rstrip())
        for line in rest:
            self.note(f"{'':<8} {line}")

    @contextmanager
    def step(self, verb: str, text: str = "") -> Iterator[Step]:
        """Say what was done once it is done, with the seconds it took; say nothing if it failed."""
        step, begun = Step(text), time.monotonic()
        yield step
        self.say(verb, step.text, time.monotonic() - begun)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], numbers_from: int | None = None) -> None:
        """A table on stdout; without a terminal it is as wide as it needs to be. From a column on: numbers."""
        from rich.console import Console as Rich
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for at, column in enumerate(columns):
            right = numbers_from is not None and at >= numbers_from
            table.add_column(column, overflow="fold", justify="right" if right else "left")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        Rich(file=sys.stdout, width=None if sys.stdout.isatty() else 240).print(table)
