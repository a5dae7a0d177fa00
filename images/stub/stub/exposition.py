"""Counters, gauges, histograms and summaries, written as the Python Prometheus client writes them."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Labels = tuple[str, ...]
Line = tuple[str, Mapping[str, str], float]


def number(value: float) -> str:
    """A value as the page writes it: 7.0, +Inf, and 1.79e+09 from ten million on."""
    value = float(value)
    if math.isinf(value) or math.isnan(value):
        return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}[str(value)]
    text = repr(value)
    whole, dot, rest = text.partition(".")
    if value > 0 and dot and len(whole) > 6 and "e" not in text:
        digits = (whole[1:] + rest).rstrip("0")
        return f"{whole[0]}.{digits}e+{len(whole) - 1:02d}" if digits else f"{whole[0]}e+{len(whole) - 1:02d}"
    return text


def sample(name: str, labels: Mapping[str, str], value: float) -> str:
    """One line of the page, labels in alphabetical order."""
    inside = ",".join(f'{key}="{_escaped(labels[key])}"' for key in sorted(labels))
    return f"{name}{{{inside}}} {number(value)}\n" if inside else f"{name} {number(value)}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


@dataclass(frozen=True)
class Family:
    """Name, type, help, label names and bucket bounds of one family."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    fixed: Mapping[str, str] = field(default_factory=dict)  # labels that every series of it carries


class Series:
    """What one label combination has counted so far."""

    __slots__ = ("bins", "count", "created", "total")

    def __init__(self, buckets: int) -> None:
        self.bins = [0] * (buckets + 1)
        self.count = 0
        self.total = 0.0
        self.created = time.time()


class Instrument:
    """All series of one family."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self._series: dict[Labels, Series] = {}
        if not family.labels:
            self.series()

    def series(self, *labels: str) -> Series:
        """The series of these label values, made on first use."""
        found = self._series.get(labels)
        if found is None:
            found = self._series[labels] = Series(len(self.family.buckets))
        return found

    def add(self, amount: float, *labels: str) -> None:
        """Count up."""
        self.series(*labels).total += amount

    def set(self, value: float, *labels: str) -> None:
        """Put a gauge to a value."""
        self.series(*labels).total = value

    def observe(self, value: float, *labels: str, times: int = 1) -> None:
        """Put a value into a histogram or summary."""
        series = self.series(*labels)
        series.count += times
        series.total += value * times
        series.bins[bisect_left(self.family.buckets, value)] += times

    def text(self) -> str:
        """The family's part of the page, with the family of its moments of creation."""
        family = self.family
        parts = [_header(family.name, family.help, family.kind)]
        created: list[str] = []
        base = family.name.removesuffix("_total") if family.kind == "counter" else family.name
        for values, series in self._series.items():
            labels = {**family.fixed, **dict(zip(family.labels, values, strict=True))}
            parts.extend(sample(*line) for line in self._lines(labels, series))
            created.append(sample(f"{base}_created", labels, series.created))
        if family.kind != "gauge" and not family.name.startswith(("python_", "process_")):
            parts += [_header(f"{base}_created", family.help, "gauge"), *created]
        return "".join(parts)

    def _lines(self, labels: Mapping[str, str], series: Series) -> Iterable[Line]:
        family = self.family
        if family.kind in ("counter", "gauge"):
            yield family.name, labels, series.total
            return
        if family.kind == "histogram":
            reached = 0
            for bound, inside in zip((*family.buckets, math.inf), series.bins, strict=True):
                reached += inside
                yield f"{family.name}_bucket", {**labels, "le": number(bound)}, reached
        yield f"{family.name}_count", labels, series.count
        yield f"{family.name}_sum", labels, series.total


def _header(name: str, text: str, kind: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def page(instruments: Sequence[Instrument]) -> bytes:
    """The whole metrics page."""
    return "".join(instrument.text() for instrument in instruments).encode()
