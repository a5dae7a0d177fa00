"""Images for a stack: kept, pulled or built, whichever the settings and what is there say."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from control.adapters import image_builder
from control.adapters.shell import CommandFailed
from control.context import Control
from control.core import availability, engine_gpu, image_lock, image_sources, image_verdict, registry_faults
from control.core.errors import FlashboxError, PreflightRefused
from control.core.image_lock import Locked
from control.core.image_sources import Look
from control.core.image_verdict import Verdict
from control.core.images import for_kind
from control.core.model import ImageRef, Plan
from control.core.pull_progress import Progress
from control.core.registry_faults import PullFailed

if TYPE_CHECKING:  # the SDK behind it is heavy
    from control.adapters.dockerd.registry import Registry

TELL_EVERY_S = 5.0


@dataclass(frozen=True)
class Obtained:
    """What was done, in words, and the optional images that are not to be had."""

    text: str
    missing: tuple[ImageRef, ...] = ()


def for_plan(control: Control, plan: Plan | None) -> list[ImageRef]:
    """What this stack runs; the engine's tag is the plan's, which knows the release and the driver."""
    names = for_kind(control.image_refs, control.settings.engine.kind)
    return [_of_plan(control.image_refs[name], plan) for name in names]


def _of_plan(ref: ImageRef, plan: Plan | None) -> ImageRef:
    if plan is None or ref.name != engine_gpu.IMAGE:
        return ref
    return replace(ref, tag=engine_gpu.image(ref, plan).rpartition(":")[2])


def look(control: Control, refs: Iterable[ImageRef]) -> list[Look]:
    """Ask Docker, the lock file and the settings; nothing is asked of a registry."""
    settings = control.settings.images
    image_sources.check_names(control.image_refs, settings)
    wanted, locked = image_builder.content_hashes(control.root, control.image_refs), known(control)
    seen = []
    for ref in refs:
        source, local = image_sources.source_of(ref, settings), control.dockerd.image(ref.reference)
        before = locked.get(image_sources.locked_name(ref))
        decision = image_sources.decide(ref, source, local, wanted.get(ref.name), before.digest if before else None)
        remote = image_sources.remote(ref, settings.mirror)
        seen.append(Look(ref, source, local, before, wanted.get(ref.name), decision, remote))
    return seen


def known(control: Control) -> dict[str, Locked]:
    return image_lock.parse(control.workspace.text(image_lock.PATH))


def obtain(control: Control, refs: Iterable[ImageRef], optional: Collection[str] = ()) -> Obtained:
    """Have every image, or refuse before anything is started. An optional one that is not to be had is set aside."""
    done: list[str] = []
    missing: list[ImageRef] = []
    for seen in look(control, refs):
        try:
            done += _had(control, seen)
        except PreflightRefused as refused:
            if seen.ref.name not in optional:
                raise
            control.console.say("note", f"{seen.ref.name} is left out: {refused.what}\n{refused.fix}")
            missing.append(seen.ref)
    return Obtained(", ".join(done) or "all there", tuple(missing))


def _had(control: Control, seen: Look) -> list[str]:
    """What was done to have this image, in words; nothing when it is there."""
    name, action = seen.ref.name, seen.decision.action
    if action == "keep":
        return []
    if action != "build" and _pulled(control, seen):
        return [f"{name} pulled"]
    return [f"{built} built" for built in build_all(control, [name])]


def build_all(control: Control, names: Sequence[str]) -> list[str]:
    """Build these and what they stand on."""
    try:
        return image_builder.build_all(
            control.root, control.settings, control.shell, lambda line: control.console.say("build", line), names
        )
    except CommandFailed as failed:
        fix = "mend what these lines name, then go on with `python ctl.py images build`"
        raise PreflightRefused("an image could not be built", f"{failed.what}\n{failed.why}", fix) from None


def _pulled(control: Control, seen: Look) -> bool:
    """Pull; where it may be built instead, a registry that does not deliver is told and answered with False."""
    try:
        pull(control, seen)
    except PullFailed as failed:
        if seen.decision.action == "try" and failed.kind != "digest":
            control.console.say("note", f"{failed.what}, so it is built here\n{failed.why}")
            return False
        if failed.kind == "digest":
            raise
        refused = availability.refusal({seen.ref.name: seen.ref.reference}, f"{failed.what}: {failed.why}")
        raise PreflightRefused(refused.what, refused.why, f"{failed.fix}\n{refused.fix}") from None
    return True


def pull(control: Control, seen: Look, renew: bool = False) -> str:
    """Fetch one image by its digest, give it its own name, and remember the digest. The digest."""
    ref, remote = seen.ref, _remote(seen)
    registry, locked = registry_of(control), None if renew else seen.locked
    digest = locked.digest if locked else registry.digest(remote, ref.name)
    pinned = f"{remote.rpartition(':')[0]}@{digest}"
    control.console.detail(f"+ pull {pinned}")
    try:
        registry.pull(pinned, ref.name, control.settings.images.pull_timeout_s, _teller(control, ref.name))
    except PullFailed as failed:
        raise _moved(registry, seen, failed) if locked else failed from None
    _check_content(control, seen, pinned)
    control.dockerd.name_image(pinned, ref.reference)
    if locked is None:
        _learn(control, ref, Locked(digest, _now(), remote))
    return digest


def registry_of(control: Control) -> Registry:
    """Registries, asked with the logins of the settings."""
    images = control.settings.images
    auth_file = control.root / Path(images.auth_file).expanduser() if images.auth_file else None
    return control.dockerd.registry(auth_file, images.silence_s)


def verified(control: Control, seen: Look) -> Verdict:
    """The image that is there against the lock file, and against what its tag stands for now."""
    if seen.remote is None or seen.source == "build":
        return image_verdict.judge(seen, None)
    try:
        return image_verdict.judge(seen, registry_of(control).digest(seen.remote, seen.ref.name))
    except PullFailed as failed:
        return image_verdict.judge(seen, failed)


def _remote(seen: Look) -> str:
    if seen.remote is None:
        raise FlashboxError(
            f"{seen.ref.name}: no registry has this image",
            "It is an image of our own, and images.mirror is not set.",
            "python ctl.py images build",
        )
    return seen.remote


def _moved(registry: Registry, seen: Look, failed: PullFailed) -> PullFailed:
    """A digest that is no longer there: what does the tag stand for now?"""
    if failed.kind != "missing" or seen.locked is None or seen.remote is None:
        return failed
    now, expected = registry.digest(seen.remote, seen.ref.name), seen.locked.digest
    if now == expected:
        return failed
    why = f"{image_lock.PATH}: expected {expected}, found {now}"
    return registry_faults.explain(why, seen.remote, seen.ref.name, "digest")


def _check_content(control: Control, seen: Look, pinned: str) -> None:
    """An image of ours that a mirror has must be made of the same files as this clone."""
    if seen.ref.upstream:
        return
    local = control.dockerd.image(pinned)
    if local is None or local.content != seen.wanted:
        raise FlashboxError(
            f"{seen.remote} is made of other files than this clone",
            f"expected {seen.wanted}, found {local.content if local else None}",
            f"push the image of this clone there, or build it: --set images.sources.{seen.ref.name}=build",
        )


def _learn(control: Control, ref: ImageRef, entry: Locked) -> None:
    with control.workspace.publishing("images pull"):
        control.workspace.write(
            image_lock.PATH, image_lock.dump({**known(control), image_sources.locked_name(ref): entry})
        )


def _teller(control: Control, name: str) -> Callable[[Progress], None]:
    """Says how far a pull is, now and then."""
    told = time.monotonic()

    def tell(progress: Progress) -> None:
        nonlocal told
        if time.monotonic() - told >= TELL_EVERY_S:
            told = time.monotonic()
            control.console.say("pull", f"{name}: {progress}")

    return tell


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def listed(control: Control) -> list[dict[str, Any]]:
    """Every image of config/images.yaml as data; `present` is None when the daemon does not answer."""
    settings, locked, rows = control.settings.images, known(control), []
    image_sources.check_names(control.image_refs, settings)
    for ref in control.image_refs.values():
        entry = locked.get(image_sources.locked_name(ref))
        present = None if control.host.images is None else control.dockerd.image(ref.reference) is not None
        rows.append(
            {
                "name": ref.name,
                "reference": ref.reference,
                "source": image_sources.source_of(ref, settings),
                "upstream": image_sources.remote(ref, settings.mirror),
                "digest": entry.digest if entry else None,
                "present": present,
                "licence": ref.licence,
            }
        )
    return rows
