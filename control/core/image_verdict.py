"""Is an image what it should be? Against this clone's files, the lock file, and what its tag stands for now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from control.core.image_sources import LocalImage, Look
from control.core.registry_faults import PullFailed

Outcome = Literal["ok", "wrong", "unknown"]


@dataclass(frozen=True)
class Verdict:
    """One image, judged."""

    name: str
    reference: str
    source: str
    digest: str | None  # that was learnt; None: none was
    outcome: Outcome
    text: str


def judge(seen: Look, now: str | PullFailed | None) -> Verdict:
    """`now`: what the registry says the tag stands for, why it did not say, or None when it was not asked."""
    outcome, text = _judge(seen, now)
    return Verdict(
        seen.ref.name, seen.ref.reference, seen.source, seen.locked.digest if seen.locked else None, outcome, text
    )


def _judge(seen: Look, now: str | PullFailed | None) -> tuple[Outcome, str]:
    local = seen.local
    if local is None:
        return "wrong", "not there"
    if seen.wanted is not None and local.content == seen.wanted:
        return "ok", "made of this clone's files"
    if local.content is not None or seen.source == "build":
        return "wrong", f"expected the content {seen.wanted}, found {local.content}"
    outcome, text = _by_digest(seen, local)
    return outcome, f"{text}; {_tag(seen, now)}"


def _by_digest(seen: Look, local: LocalImage) -> tuple[Outcome, str]:
    if seen.locked is None:
        return "unknown", "its digest was never learnt"
    if seen.locked.digest in local.digests:
        return "ok", "has the locked digest"
    if not local.digests:
        return "unknown", "loaded from a file: there is no digest to compare"
    return "wrong", f"expected {seen.locked.digest}, found {', '.join(local.digests)}"


def _tag(seen: Look, now: str | PullFailed | None) -> str:
    if isinstance(now, PullFailed):
        return f"the registry was asked in vain: {now.what}"
    if now is None or seen.locked is None:
        return f"the tag stands for {now}" if now else "the registry was not asked"
    return "its tag still stands for it" if now == seen.locked.digest else f"its tag now stands for {now}"
