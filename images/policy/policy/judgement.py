"""One question and its answer, wherever it is judged: at once, or in a process apart as JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from policy import onward
from policy.judge import Facts, Rules, Violation
from policy.onward import AS_IT_IS, Onward, Wishes


@dataclass(frozen=True)
class Question:
    """What has to be known besides the body."""

    path: str
    models: frozenset[str] | None  # that the caller may ask for; None: any
    wishes: Wishes

    def dump(self) -> dict[str, Any]:
        models = sorted(self.models) if self.models else None
        return {"path": self.path, "models": models, "wishes": dataclasses.asdict(self.wishes)}

    @classmethod
    def load(cls, said: dict[str, Any]) -> Question:
        models = frozenset(said["models"]) if said["models"] else None
        return cls(said["path"], models, Wishes(**said["wishes"]))


@dataclass(frozen=True)
class Judgement:
    """No violation: the body may pass, as `onward` says."""

    violation: Violation | None
    facts: Facts
    onward: Onward = AS_IT_IS

    def dump(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def load(cls, said: dict[str, Any]) -> Judgement:
        violation = Violation(**said["violation"]) if said["violation"] else None
        return cls(violation, Facts(**said["facts"]), Onward(**said["onward"]))


NOTHING = Judgement(None, Facts(None, None, None))


def judge(rules: Rules, question: Question, raw: bytes) -> Judgement:
    """The judgement on one body."""
    verdict = rules.judge(question.path, raw, question.models)
    if verdict.violation is not None and not rules.observe:
        return Judgement(verdict.violation, verdict.facts)
    further = onward.plan(question.wishes, question.path, raw, verdict.document)
    return Judgement(verdict.violation, verdict.facts, further)
