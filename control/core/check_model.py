"""What a preflight check is: a record with a pure test over one snapshot of the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from control.core.errors import PreflightRefused
from control.core.model import Host, Plan
from control.core.settings import Settings

Severity = Literal["fatal", "warning"]
Outcome = Literal["passed", "found", "unknown"]


@dataclass(frozen=True)
class Situation:
    """What is wanted, where, and what was planned (None: planning was refused, and why)."""

    settings: Settings
    host: Host
    plan: Plan | None
    refusal: PreflightRefused | None = None


@dataclass(frozen=True)
class Seen:
    """What a test saw. `fix` and `severity` override the check's own where the case allows better."""

    outcome: Outcome
    text: str
    fix: str = ""
    severity: Severity | None = None


def passed(text: str) -> Seen:
    return Seen("passed", text)


def found(text: str, fix: str = "", severity: Severity | None = None) -> Seen:
    return Seen("found", text, fix, severity)


def unknown(text: str) -> Seen:
    """Could not tell: neither fine nor a finding."""
    return Seen("unknown", text)


@dataclass(frozen=True)
class Check:
    """One thing that must hold before anything is touched. The title is the sentence that is true when it does."""

    id: str
    title: str
    why: str
    fix: str
    severity: Severity
    test: Callable[[Situation], Seen]


@dataclass(frozen=True)
class Finding:
    """One check that did not simply pass, or that did, with what was seen."""

    check: Check
    seen: Seen

    @property
    def severity(self) -> Severity:
        return self.seen.severity or self.check.severity

    @property
    def fix(self) -> str:
        return self.seen.fix or self.check.fix


@dataclass(frozen=True)
class Report:
    """All checks, in three groups."""

    findings: tuple[Finding, ...]
    could_not_tell: tuple[Finding, ...]
    passed: tuple[Finding, ...]

    @property
    def fatal(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "fatal")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "warning")

    def summary(self) -> str:
        """`9 passed, 1 warning`."""
        counts = (
            (len(self.passed), "passed", "passed"),
            (len(self.fatal), "failed", "failed"),
            (len(self.warnings), "warning", "warnings"),
            (len(self.could_not_tell), "could not tell", "could not tell"),
        )
        return ", ".join(f"{n} {one if n == 1 else many}" for n, one, many in counts if n) or "no checks"

    def as_data(self) -> list[dict[str, str]]:
        """For `doctor --json`."""
        return [
            {
                "id": finding.check.id,
                "outcome": finding.seen.outcome,
                "severity": finding.severity,
                "title": finding.check.title,
                "seen": finding.seen.text,
                "why": finding.check.why,
                "fix": finding.fix if finding.seen.outcome == "found" else "",
            }
            for finding in (*self.findings, *self.could_not_tell, *self.passed)
        ]
