"""How many GPUs make a replica, and which. TP is the smallest that fits; replicas are GPUs of one kind / TP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from control.core.capacity.case import Case
from control.core.capacity.choose import Candidate
from control.core.capacity.groups import Group, groups
from control.core.capacity.memory import Budget, budget, held
from control.core.errors import UsageError
from control.core.facts import ModelFacts
from control.core.gpus import Links
from control.core.settings import Engine


@dataclass(frozen=True)
class Attempt:
    """One kind of GPU, the TPs that were tried, and the groups when one fits and there are enough GPUs."""

    kind: str
    candidates: tuple[Candidate, ...]
    tried: tuple[Budget, ...]
    groups: tuple[Group, ...]

    @property
    def chosen(self) -> Budget | None:
        """The sum of the TP that fits."""
        return self.tried[-1] if self.tried and self.tried[-1].fits else None

    def worth(self, case: Case) -> tuple[int, int]:
        """Requests of full length on all replicas, then cache rows: the better kind has more."""
        if self.chosen is None or not self.groups:
            return (0, 0)
        longest = held(case, self.chosen)[-1].requests
        return (len(self.groups) * longest, len(self.groups) * self.chosen.rows)


def tensor_parallels(engine: Engine, model: ModelFacts) -> tuple[int, ...]:
    """The TPs to try, smallest first; the setting leaves one."""
    known = tuple(sorted(model.support.tensor_parallel))
    if engine.tensor_parallel is None:
        return known
    if engine.tensor_parallel not in known:
        raise UsageError(
            f"engine.tensor_parallel: expected one of {', '.join(map(str, known))}, found {engine.tensor_parallel}",
            f"It must divide the {model.architecture.num_attention_heads} heads, and the slices of block-quantised "
            f"weights must stay multiples of 128 ({model.support.source}).",
            "Leave engine.tensor_parallel out to take the smallest that fits.",
        )
    return (engine.tensor_parallel,)


def attempts(
    case: Case, candidates: Sequence[Candidate], options: Sequence[int], links: Links | None
) -> tuple[Attempt, ...]:
    """One attempt for each kind of GPU, the best first; kinds are never mixed."""
    kinds = dict.fromkeys(one.kind for one in candidates)
    made = [_attempt(case, kind, [one for one in candidates if one.kind == kind], options, links) for kind in kinds]
    return tuple(sorted(made, key=lambda one: one.worth(case), reverse=True))


def _attempt(
    case: Case, kind: str, candidates: Sequence[Candidate], options: Sequence[int], links: Links | None
) -> Attempt:
    """The GPU with the least memory decides for its kind: a replica is as large as its smallest member."""
    least = min(one.usable_bytes for one in candidates)
    tried: list[Budget] = []
    for tensor_parallel in options:
        tried.append(budget(case, least, tensor_parallel))
        if tried[-1].fits:
            break
    made = groups(candidates, tried[-1].tensor_parallel, links) if tried[-1].fits else ()
    return Attempt(kind, tuple(candidates), tuple(tried), made)
