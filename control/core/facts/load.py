"""Texts of config/ to facts, or every complaint about them at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from control.core import strict_yaml
from control.core.capacity.terms import GIB
from control.core.capacity.weights import file_bytes
from control.core.complaints import did_you_mean, found
from control.core.errors import UsageError
from control.core.facts import words
from control.core.facts.engines import EngineFacts
from control.core.facts.hardware import HardwareFacts
from control.core.facts.model import ModelFacts

MODELS_DIR = "config/models/"
HARDWARE_PATH = "config/hardware.yaml"
ENGINES_PATH = "config/engines.yaml"
LEAST_SHARE, MOST_SHARE = 0.9, 1.1  # computed weights over the bytes of the files
_FIX = "Correct the file; every number needs its source and the day it was looked at. `git diff config/` shows edits."
_WHY = "The plan rests on these facts: a wrong one would put more on a GPU than it holds."

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True)
class Facts:
    """Everything known, by model name."""

    models: Mapping[str, ModelFacts]
    hardware: HardwareFacts
    engines: EngineFacts

    def model(self, name: str) -> ModelFacts:
        """The manifest that weights.model names."""
        if name in self.models:
            return self.models[name]
        hint = did_you_mean(name, self.models) or f"; known: {', '.join(sorted(self.models))}"
        raise UsageError(
            f"weights.model: expected the name of a file in {MODELS_DIR}, found {found(name)}{hint}",
            "Without a manifest nothing is known of the model's size.",
            f"Choose one of the known models, or write {MODELS_DIR}{name}.yaml.",
        )


def load(files: Mapping[str, str]) -> Facts:
    """The files of config/ by path; complaints of all of them are told together."""
    wrong: list[str] = []
    hardware = _parse(files, HARDWARE_PATH, HardwareFacts, wrong)
    engines = _parse(files, ENGINES_PATH, EngineFacts, wrong)
    paths = sorted(path for path in files if path.startswith(MODELS_DIR) and path.endswith(".yaml"))
    models = {path: _parse(files, path, ModelFacts, wrong) for path in paths}
    if not paths:
        wrong.append(f"{MODELS_DIR}: expected at least one model manifest, found none")
    for path, model in models.items():
        wrong += _judge_model(model, path) if model else []
    wrong += _judge_hardware(hardware) if hardware else []
    wrong += _judge_engines(engines, hardware) if engines else []
    if wrong or hardware is None or engines is None:
        raise UsageError("\n".join(dict.fromkeys(wrong)), _WHY, _FIX)
    return Facts({model.name: model for model in models.values() if model}, hardware, engines)


def parse_model(text: str, path: str) -> ModelFacts:
    """One manifest by itself."""
    wrong: list[str] = []
    model = _parse({path: text}, path, ModelFacts, wrong)
    wrong += _judge_model(model, path) if model else []
    return _or_raise(model, wrong)


def parse_hardware(text: str, path: str = HARDWARE_PATH) -> HardwareFacts:
    """The GPUs by themselves."""
    wrong: list[str] = []
    hardware = _parse({path: text}, path, HardwareFacts, wrong)
    wrong += _judge_hardware(hardware) if hardware else []
    return _or_raise(hardware, wrong)


def parse_engines(text: str, path: str = ENGINES_PATH) -> EngineFacts:
    """The releases by themselves."""
    wrong: list[str] = []
    engines = _parse({path: text}, path, EngineFacts, wrong)
    wrong += _judge_engines(engines, None) if engines else []
    return _or_raise(engines, wrong)


def _or_raise(value: T | None, wrong: Iterable[str]) -> T:
    lines = list(dict.fromkeys(wrong))
    if lines or value is None:
        raise UsageError("\n".join(lines), _WHY, _FIX)
    return value


def _parse(files: Mapping[str, str], path: str, kind: type[T], wrong: list[str]) -> T | None:
    if path not in files:
        wrong.append(f"{path}: missing, expected a file of facts")
        return None
    document = strict_yaml.read(files[path], path)
    wrong += document.complaints
    if document.complaints:
        return None
    if not isinstance(document.value, Mapping):
        wrong.append(f"{path}: expected a mapping, found {found(document.value) if document.value else 'nothing'}")
        return None
    try:
        return kind.model_validate(document.value)
    except ValidationError as error:
        wrong += words.of(error, kind, path)
        return None


def _judge_model(model: ModelFacts, path: str) -> list[str]:
    wrong = []
    name = path.rpartition("/")[2].removesuffix(".yaml")
    if model.name != name:
        wrong.append(f"{path}: name: expected {name}, as the file is called, found {model.name}")
    known = set(model.kv_cache.state_page_tokens)
    odd = sorted({ratio for ratio in model.architecture.compress_ratios if ratio} - known)
    if odd:
        wrong.append(f"{path}: architecture.compress_ratios: expected 0 or one of {sorted(known)}, found {odd}")
    if model.parameters.active > model.parameters.total:
        most = model.parameters.total
        wrong.append(f"{path}: parameters.active: expected at most {most}, found {model.parameters.active}")
    return wrong + _judge_weights(model, path)


def _judge_weights(model: ModelFacts, path: str) -> list[str]:
    """An absurd width, layer count or format shows here: the weights would no longer fill the files."""
    computed, stored = file_bytes(model), model.files.safetensors_bytes
    if LEAST_SHARE <= computed / stored <= MOST_SHARE:
        return []
    return [
        f"{path}: files.safetensors_bytes: expected about {computed / GIB:.1f} GiB, which is what the widths, the "
        f"layers and the formats add up to, found {stored / GIB:.1f} GiB; one of these numbers is wrong"
    ]


def _judge_hardware(hardware: HardwareFacts) -> list[str]:
    names = [name for gpu in hardware.gpus for name in (gpu.id, *gpu.names, *filter(None, [gpu.pci_device_id]))]
    wrong = [f"{HARDWARE_PATH}: gpus: {name} is written {count} times; keep one" for name, count in _twice(names)]
    for number, gpu in enumerate(hardware.gpus):
        if gpu.reserved_mib is not None and gpu.reserved_mib >= gpu.memory_mib:
            wrong.append(
                f"{HARDWARE_PATH}: gpus[{number}].reserved_mib: expected less than memory_mib {gpu.memory_mib}, "
                f"found {gpu.reserved_mib}"
            )
    return wrong


def _judge_engines(engines: EngineFacts, hardware: HardwareFacts | None) -> list[str]:
    versions = [release.version for release in engines.releases]
    flags = [name for group in engines.flags for name in group.names]
    wrong = [f"{ENGINES_PATH}: releases: {name} is written {count} times; keep one" for name, count in _twice(versions)]
    wrong += [f"{ENGINES_PATH}: flags: {name} is written {count} times; keep one" for name, count in _twice(flags)]
    if engines.default_release not in versions:
        wrong.append(
            f"{ENGINES_PATH}: default_release: expected one of {', '.join(versions)}, found {engines.default_release}"
        )
    products = {gpu.id for gpu in hardware.gpus} if hardware else None
    for number, fault in enumerate(engines.faults):
        for name in fault.gpus if products is not None else ():
            if name not in (products or ()):
                hint = did_you_mean(name, products or ())
                wrong.append(f"{ENGINES_PATH}: faults[{number}].gpus: {name} is not in {HARDWARE_PATH}{hint}")
    return wrong


def _twice(names: Iterable[str]) -> list[tuple[str, int]]:
    return [(name, count) for name, count in Counter(names).items() if count > 1]
