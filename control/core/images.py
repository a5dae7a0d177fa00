"""The images of config/images.yaml: what they are called, and when one must be built again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence

from control.core import engine_cpu, engine_gpu, strict_yaml
from control.core.complaints import did_you_mean, found
from control.core.errors import UsageError
from control.core.model import ImageRef

PATH = "config/images.yaml"
_FIELDS = ("repository", "tag", "licence", "upstream", "build")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:[._:/-]+[a-z0-9]+)*")
_UPSTREAM = re.compile(r"(?:localhost|[a-z0-9-]+[.:][a-z0-9.:-]+)/[a-z0-9]+(?:[._/-]+[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
# The image that the replicas of a kind run.
KINDS: Mapping[str, str] = {"gpu": engine_gpu.IMAGE, "cpu": engine_cpu.IMAGE, "stub": "stub"}
# What a builder must be told, by kind of build; everything else in `build:` is optional.
_BUILD_FIELDS: Mapping[str, Mapping[str, type[str] | type[list[object]]]] = {
    "debootstrap": {"suite": str, "packages": list, "inputs": list},
    "dockerfile": {"context": str, "dockerfile": str, "inputs": list},
}


def parse(text: str, path: str = PATH) -> dict[str, ImageRef]:
    """Read the file; raises UsageError with everything that is wrong in it."""
    document = strict_yaml.read(text, path)
    if document.complaints:
        raise UsageError("\n".join(document.complaints))
    if not isinstance(document.value, Mapping):
        raise UsageError(f"{path}: expected a mapping of images, found {found(document.value)}")
    wrong = [f"{path}: {line}" for name, entry in document.value.items() for line in _faults(str(name), entry)]
    if wrong:
        raise UsageError("\n".join(wrong))
    refs = {str(name): _ref(str(name), entry) for name, entry in document.value.items()}
    _refuse_unknown_parents(refs, path)
    build_order(refs, tuple(refs))
    return refs


def _ref(name: str, entry: Mapping[str, object]) -> ImageRef:
    build = entry.get("build") or {}
    assert isinstance(build, Mapping)  # _faults has refused anything else
    upstream = str(entry.get("upstream", ""))
    return ImageRef(name, str(entry["repository"]), str(entry["tag"]), str(entry.get("licence", "")), build, upstream)


def _faults(name: str, entry: object) -> list[str]:
    if not isinstance(entry, Mapping):
        return [f"{name}: expected a mapping of {', '.join(_FIELDS)}, found {found(entry)}"]
    wrong = [f"{name}.{key}: unknown field{did_you_mean(str(key), _FIELDS)}" for key in entry if key not in _FIELDS]
    wrong += _text_fault(name, entry, "repository", _REPOSITORY, "a lower-case repository such as flashbox/base")
    wrong += _text_fault(name, entry, "tag", _TAG, "a tag such as 0.1.0, in quotes where it looks like a number")
    if "upstream" in entry:
        words = "a registry and a repository without a tag, such as docker.io/prom/prometheus"
        wrong += _text_fault(name, entry, "upstream", _UPSTREAM, words)
    if not isinstance(entry.get("licence", ""), str):
        wrong.append(f"{name}.licence: expected text, found {found(entry['licence'])}")
    return wrong + _build_faults(f"{name}.build", entry.get("build", {}))


def _text_fault(name: str, entry: Mapping[str, object], key: str, shape: re.Pattern[str], words: str) -> list[str]:
    value = entry.get(key)
    if isinstance(value, str) and shape.fullmatch(value):
        return []
    return [f"{name}.{key}: expected {words}, found {found(value) if key in entry else 'nothing'}"]


def _build_faults(path: str, build: object) -> list[str]:
    if build == {} or build is None:
        return []
    if not isinstance(build, Mapping):
        return [f"{path}: expected a mapping with kind, found {found(build)}"]
    kind = build.get("kind")
    fields = _BUILD_FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        return [f"{path}.kind: expected one of {', '.join(_BUILD_FIELDS)}, found {found(kind)}"]
    wrong = []
    for field, shape in fields.items():
        if not isinstance(build.get(field), shape):
            seen = found(build[field]) if field in build else "nothing"
            wrong.append(f"{path}.{field}: expected {'text' if shape is str else 'a list'}, found {seen}")
    return wrong


def _refuse_unknown_parents(refs: Mapping[str, ImageRef], path: str) -> None:
    wrong = [
        f"{path}: {ref.name}.build.from: no image is called {parent}{did_you_mean(parent, refs)}"
        for ref in refs.values()
        for parent in parents(ref)
        if parent not in refs
    ]
    if wrong:
        raise UsageError("\n".join(wrong), fix=f"Known: {', '.join(refs)}.")


def parents(ref: ImageRef) -> tuple[str, ...]:
    """Names of the images that this one is built on."""
    return _words(ref, "from")


def inputs(ref: ImageRef) -> tuple[str, ...]:
    """Folders and files of the clone that this image is made of."""
    return _words(ref, "inputs")


def packages(ref: ImageRef) -> tuple[str, ...]:
    """Debian packages of a base image."""
    return _words(ref, "packages")


def arguments(ref: ImageRef) -> dict[str, str]:
    """Values for the Dockerfile."""
    value = ref.build.get("arguments")
    return {str(name): str(word) for name, word in value.items()} if isinstance(value, Mapping) else {}


def optional(ref: ImageRef) -> bool:
    """Is it built only for the kind of engine that runs it, or by name?"""
    return ref.build.get("optional") is True


def for_kind(refs: Mapping[str, ImageRef], kind: str) -> tuple[str, ...]:
    """What a stack with this kind of engine runs: no other kind's engine, and none that is only built upon."""
    other = {image for name, image in KINDS.items() if name != kind}
    below = {parent for ref in refs.values() for parent in parents(ref)}
    return tuple(name for name in refs if name not in other | below)


def _words(ref: ImageRef, key: str) -> tuple[str, ...]:
    value = ref.build.get(key) or ()
    return tuple(str(word) for word in value) if isinstance(value, (list, tuple)) else (str(value),)


def build_order(refs: Mapping[str, ImageRef], names: Sequence[str] = ()) -> list[ImageRef]:
    """The images that we build, parents before children; with `names` those and what they need, else all but optional.

    A circle is an error that shows it, an unknown name one that names the likely one.
    """
    unknown = [
        f"{name}: no image of {PATH} is called so{did_you_mean(name, refs)}" for name in names if name not in refs
    ]
    if unknown:
        raise UsageError("\n".join(unknown), fix=f"Known: {', '.join(refs)}.")
    ordered: dict[str, ImageRef] = {}

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            circle = " -> ".join((*above[above.index(name) :], name))
            raise UsageError(f"{PATH}: images are built on each other in a circle: {circle}")
        for parent in parents(refs[name]):
            if parent not in ordered:
                visit(parent, (*above, name))
        ordered[name] = refs[name]

    for name in names or (ref.name for ref in refs.values() if not optional(ref)):
        if name not in ordered:
            visit(name, ())
    return [ref for ref in ordered.values() if ref.build]


def content_hash(ref: ImageRef, files: Mapping[str, str], parents: Sequence[str]) -> str:
    """SHA-256 over everything that the image is made of: how it is built, its files, its parents' hashes.

    Name and tag stay out: a new tag on the same content is no reason to build. `files`: path -> digest.
    """
    content = {"build": ref.build, "files": dict(files), "parents": list(parents)}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
