"""Where an image comes from: built here, or pulled from its own registry or a mirror. Which of the two, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from control.core.complaints import did_you_mean
from control.core.errors import UsageError
from control.core.image_lock import Locked
from control.core.model import ImageRef
from control.core.settings import Images, ImageSource

REGISTRY_FIELD = "{registry}"  # in images.mirror: the registry that the image's own project uses
Action = Literal["keep", "build", "pull", "try"]  # try: pull it, and build it when that does not work


@dataclass(frozen=True)
class LocalImage:
    """An image that Docker has."""

    id: str
    digests: tuple[str, ...] = ()  # by which registries know it; none: built here, or loaded from a file
    content: str | None = None  # the label of what we build


@dataclass(frozen=True)
class Decision:
    """What is to be done for an image, and why."""

    action: Action
    why: str


@dataclass(frozen=True)
class Look:
    """One image: what is there, what was learnt of it before, where it comes from and what is to be done."""

    ref: ImageRef
    source: ImageSource
    local: LocalImage | None
    locked: Locked | None
    wanted: str | None  # the content label of this clone, of images that we build
    decision: Decision
    remote: str | None  # the full name under which a registry is asked


def named(refs: Mapping[str, ImageRef], names: Iterable[str]) -> list[ImageRef]:
    """Images by name; `engine:v0.26.0-cu129` is another tag of one that only a registry has."""
    found = []
    for text in names:
        name, _, tag = text.partition(":")
        if name not in refs:
            raise UsageError(
                f"{name}: no image is called so{did_you_mean(name, refs)}", fix=f"Known: {', '.join(refs)}."
            )
        ref = refs[name]
        if tag and ref.build:
            raise UsageError(f"{text}: expected no tag, found {tag}: {name} has the one tag that Compose runs")
        found.append(replace(ref, tag=tag) if tag else ref)
    return found


def check_names(refs: Mapping[str, ImageRef], settings: Images) -> None:
    """Refuse a source for an image that does not exist."""
    wrong = [
        f"images.sources.{name}: no image is called so{did_you_mean(name, refs)}"
        for name in settings.sources
        if name not in refs
    ]
    if wrong:
        raise UsageError("\n".join(wrong), fix=f"Known: {', '.join(refs)}.")


def locked_name(ref: ImageRef) -> str:
    """The image's name in the lock file: its project's, whatever mirror it comes through."""
    return f"{ref.upstream or ref.repository}:{ref.tag}"


def remote(ref: ImageRef, mirror: str | None) -> str | None:
    """The name under which a registry is asked for the image; None when no registry has it."""
    registry, _, path = ref.upstream.partition("/")
    if not ref.upstream:
        registry, path = "", ref.repository
    if mirror is None:
        return f"{ref.upstream}:{ref.tag}" if ref.upstream else None
    prefix = "/".join(part for part in mirror.replace(REGISTRY_FIELD, registry).split("/") if part)
    return f"{prefix}/{path}:{ref.tag}"


def source_of(ref: ImageRef, settings: Images) -> ImageSource:
    """`build` or `pull` where only one of them is possible, else what the settings say.

    An image of our own is never looked for by itself: in a public registry its name may be anybody's.
    """
    asked = settings.sources.get(ref.name, settings.source)
    setting = f"images.sources.{ref.name}" if ref.name in settings.sources else "images.source"
    if asked == "auto":
        return "pull" if not ref.build else "auto" if ref.upstream else "build"
    if asked == "build" and not ref.build:
        raise UsageError(
            f"{setting}: expected pull or auto for the image {ref.name}, found build",
            "It is its own project's image, and there is no recipe for it here.",
            f"--set images.sources.{ref.name}=pull",
        )
    if asked == "pull" and remote(ref, settings.mirror) is None:
        raise UsageError(
            f"{setting}: expected build or auto for the image {ref.name}, found pull",
            "It is an image of our own, so that only a mirror of yours can have it, and images.mirror is not set.",
            f"--set images.sources.{ref.name}=build, or name the registry you pushed it to in images.mirror",
        )
    return asked


def decide(
    ref: ImageRef, source: ImageSource, local: LocalImage | None, wanted: str | None, locked: str | None
) -> Decision:
    """What to do. `wanted`: the content label of this clone; `locked`: the digest that was learnt before."""
    if source != "pull" and local is not None and wanted is not None and local.content == wanted:
        return Decision("keep", "built from this clone")
    get: Action = "build" if source == "build" else "pull" if source == "pull" else "try"
    if local is None:
        return Decision(get, "not there yet")
    if source == "build":
        return Decision("build", "inputs changed")
    if not ref.upstream and local.content != wanted:
        return Decision(get, "made of other files than this clone's")
    if ref.upstream and local.content is not None:
        return Decision(get, "an earlier build of ours")
    return _by_digest(get, local, locked)


def _by_digest(get: Action, local: LocalImage, locked: str | None) -> Decision:
    if locked is None:
        return Decision("keep", "there; its digest was never learnt (python ctl.py images pull learns it)")
    if locked in local.digests:
        return Decision("keep", "has the locked digest")
    if not local.digests:
        return Decision("keep", "loaded from a file or built: there is no digest to compare")
    return Decision(get, "has another digest than the lock file")
