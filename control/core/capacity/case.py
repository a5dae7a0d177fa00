"""What is to be planned: a model, a release and the numbers that the settings ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from control.core.capacity.kvmodel import KvModel, kv_model
from control.core.errors import UsageError

if TYPE_CHECKING:
    from control.core.facts import EngineFacts, ModelFacts, Release
    from control.core.settings import Engine

LEAST_REQUESTS = 8  # a replica that cannot hold so many requests of full length is not planned


@dataclass(frozen=True)
class Shape:
    """The numbers of one engine, each from a setting or from the preset."""

    preset: str
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    utilization: float
    speculation: bool


@dataclass(frozen=True)
class Case:
    """Everything the sum of one GPU needs, except the GPU."""

    model: ModelFacts
    release: Release
    engines: EngineFacts
    shape: Shape
    kv: KvModel

    @property
    def batches(self) -> int:
        """Batches whose tokens hold cache at the same time."""
        return self.release.batches_in_flight or self.engines.memory.batches_in_flight_allowance


def case(engine: Engine, model: ModelFacts, release: Release, engines: EngineFacts) -> Case:
    """Join settings and facts; settings that cannot go together are refused here."""
    shape = _shape(engine, engines)
    wrong = [*_too_long(shape, model), *_too_small_steps(shape)]
    if engine.speculation and model.speculation is None:
        wrong.append(f"engine.speculation: expected false, found true: the manifest of {model.name} has no drafts")
    if wrong:
        raise UsageError("\n".join(wrong), "The engine would refuse these numbers minutes after its start.", _FIX)
    return Case(model, release, engines, shape, kv_model(model))


_FIX = "Change the setting, or leave it out to take the default."


def _shape(engine: Engine, engines: EngineFacts) -> Shape:
    preset = getattr(engines.presets, engine.preset)
    return Shape(
        preset=engine.preset,
        max_model_len=engine.max_model_len,
        max_num_seqs=engine.max_num_seqs or preset.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens or preset.max_num_batched_tokens,
        utilization=engine.gpu_memory_utilization,
        speculation=engine.speculation,
    )


def _too_long(shape: Shape, model: ModelFacts) -> list[str]:
    most = model.context.max_tokens
    if shape.max_model_len <= most:
        return []
    return [f"engine.max_model_len: expected at most {most}, the context of {model.name}, found {shape.max_model_len}"]


def _too_small_steps(shape: Shape) -> list[str]:
    if shape.max_num_batched_tokens >= shape.max_num_seqs:
        return []
    return [
        f"engine.max_num_batched_tokens: expected at least engine.max_num_seqs {shape.max_num_seqs} (one token of "
        f"each running request), found {shape.max_num_batched_tokens}"
    ]
