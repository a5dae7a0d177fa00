"""Settings from several places, merged in order of strength, with the place of each value kept.

Every layer is judged by itself, so that a mistake in a file is told even when a stronger layer
hides it, and all complaints of all layers are told at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from control.core import complaints, schema, settings_rules, strict_yaml
from control.core.errors import UsageError
from control.core.settings import Settings

DEFAULT = "default"
ENVIRONMENT_PREFIX = "FLASHBOX__"


@dataclass(frozen=True)
class Layer:
    """Values from one place. `origins` names a closer place than `origin` for some paths."""

    origin: str
    values: Mapping[str, object]
    origins: Mapping[str, str] = field(default_factory=dict)
    complaints: tuple[str, ...] = ()  # found while reading; told by `resolve` with all others

    def origin_of(self, path: str) -> str:
        """The place that set `path`: it, something inside it, or the section around it."""
        inside = (place for known, place in self.origins.items() if f"{known}.".startswith(f"{path}."))
        nearest = next(inside, None)
        while path and nearest is None:
            nearest = self.origins.get(path)
            path = path.rpartition(".")[0]
        return nearest or self.origin


@dataclass(frozen=True)
class Resolved:
    """The settings that count, and the place of each: path -> origin."""

    settings: Settings
    origins: Mapping[str, str]


def yaml_layer(text: str, path: str) -> Layer:
    """A file of settings. An empty file, and a section with nothing in it, override nothing."""
    document = strict_yaml.read(text, path)
    if document.complaints:
        return Layer(path, {}, complaints=document.complaints)
    if document.value is None:
        return Layer(path, {})
    if not isinstance(document.value, Mapping):
        found = complaints.found(document.value)
        return Layer(path, {}, complaints=(f"{path}: expected a mapping of settings, such as gateway:, found {found}",))
    return Layer(path, _without_empty_sections(document.value, ""))


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """Variables such as FLASHBOX__GATEWAY__PORT=9000; every other name is somebody else's."""
    mine = sorted(name for name in environ if name.startswith(ENVIRONMENT_PREFIX))
    named = [(name, name[len(ENVIRONMENT_PREFIX) :].lower().replace("__", "."), environ[name]) for name in mine]
    return _single_values("environment", named, example="FLASHBOX__GATEWAY__PORT=9000")


def assignment_layer(assignments: Sequence[str]) -> Layer:
    """`--set gateway.port=9000`; of two that name the same setting the last counts."""
    named, wrong = [], []
    for text in assignments:
        path, equals, value = text.partition("=")
        if equals:
            named.append((f"--set {text}", path.strip(), value))
        else:
            wrong.append(f"--set {text}: expected NAME=VALUE, such as gateway.port=9000, found no =")
    layer = _single_values("--set", named, example="gateway.port=9000")
    return Layer(layer.origin, layer.values, layer.origins, (*wrong, *layer.complaints))


def resolve(layers: Sequence[Layer]) -> Resolved:
    """Merge weakest first; raises UsageError with every complaint of every layer, one per line."""
    found = [complaint for layer in layers for complaint in (*layer.complaints, *_judge(layer))]
    if found:
        raise _wrong(found)
    values: dict[str, object] = {}
    origins = {path: DEFAULT for path in schema.leaves()}
    for layer in layers:
        for path, value in _settings_of(layer.values, ""):
            _put(values, path, value)
            origins[path] = layer.origin_of(path)
    settings = Settings.model_validate(values, strict=True)  # each layer is right alone, so all of them are
    against = [found.line(origins, DEFAULT) for found in settings_rules.contradictions(settings)]
    if against:
        raise _wrong(against)
    return Resolved(settings, origins)


def _wrong(lines: Sequence[str]) -> UsageError:
    unique = dict.fromkeys(lines)
    return UsageError("\n".join(unique), fix="docs/settings.md names every setting and what it accepts.")


def _judge(layer: Layer) -> list[str]:
    wrong: list[str] = []
    try:
        Settings.model_validate(layer.values, strict=True)
    except ValidationError as error:
        wrong = complaints.of(error, layer.origin_of)
    for path, value in _settings_of(layer.values, ""):
        place = f"{layer.origin_of(path)}: {path}: "
        endless = isinstance(value, float) and not math.isfinite(value)
        if endless and not any(line.startswith(place) for line in wrong):
            wrong.append(f"{place}expected a finite number, found {value}")
    return wrong


def _single_values(origin: str, named: Sequence[tuple[str, str, str]], example: str) -> Layer:
    """One setting per text; (place, path, text) each."""
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    wrong: list[str] = []
    for place, path, text in named:
        document = strict_yaml.read(text, place)
        problem = _problem(path, document.value, example) or _clash(values, path, origins, place)
        wrong += [f"{complaint}; quote the value" for complaint in document.complaints]
        wrong += [f"{place}: {problem}"] if problem and not document.complaints else []
        if not document.complaints and not problem:
            _put(values, path, document.value)
            origins[path] = place
    return Layer(origin, values, origins, tuple(wrong))


def _problem(path: str, value: object, example: str) -> str | None:
    if not all(path.split(".")):
        return f"expected the path of a setting, such as {example}, found an empty name in {path!r}"
    section = schema.groups().get(path)
    if section is not None:
        first = section.names[0]
        return f"{path}: expected one setting, found the section; name one inside it, such as {path}.{first}"
    if isinstance(value, Mapping):
        return f"{path}: expected one value, found a mapping; name each setting by itself, such as {example}"
    return None


def _clash(values: Mapping[str, object], path: str, origins: Mapping[str, str], place: str) -> str | None:
    if place.startswith(ENVIRONMENT_PREFIX) and path in origins:
        return f"{path}: already set by {origins[path]}; unset one of the two"
    here: object = values
    for part in path.split(".")[:-1]:
        if not isinstance(here, Mapping) or part not in here:
            return None
        here = here[part]
    return (
        None if isinstance(here, Mapping) else f"{path}: expected a setting inside a section, found one inside a value"
    )


def _put(values: MutableMapping[str, object], path: str, value: object) -> None:
    *sections, name = path.split(".")
    for section in sections:
        inner = values.setdefault(section, {})
        assert isinstance(inner, dict)  # the callers refuse paths through a value
        values = inner
    before = values.get(name)
    # A setting that is a mapping, such as images.sources, is added to name by name.
    values[name] = {**before, **value} if isinstance(before, Mapping) and isinstance(value, Mapping) else value


def _settings_of(values: Mapping[str, object], path: str) -> Iterator[tuple[str, object]]:
    """Every setting that the values name: sections are entered, anything else is a value."""
    for name, value in values.items():
        here = f"{path}.{name}" if path else str(name)
        if here in schema.groups() and isinstance(value, Mapping):
            yield from _settings_of(value, here)
        else:
            yield here, value


def _without_empty_sections(values: Mapping[object, object], path: str) -> dict[str, object]:
    """Names become text, and `gateway:` with every line under it commented out goes."""
    kept: dict[str, object] = {}
    for key, value in values.items():
        name = key if isinstance(key, str) else complaints.found(key)
        here = f"{path}.{name}" if path else name
        if here not in schema.groups():
            kept[name] = value
        elif isinstance(value, Mapping):
            kept[name] = _without_empty_sections(value, here)
        elif value is not None:
            kept[name] = value
    return kept
