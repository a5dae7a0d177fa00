from __future__ import annotations

import pytest

from control.core.image_lock import Locked
from control.core.image_sources import Decision, LocalImage, Look
from control.core.image_verdict import judge
from control.core.model import ImageRef
from control.core.registry_faults import PullFailed, explain

ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64
GONE = explain("connection refused", "r.example/a:1", "a")
PULLED, LOADED = LocalImage("i", (ONE,)), LocalImage("i")


def look(local: LocalImage | None, locked: str | None = ONE, wanted: str | None = None, source: str = "pull") -> Look:
    entry = Locked(locked, "2030-01-02T03:04:05Z", "r.example/a:1") if locked else None
    ref = ImageRef("a", "x/a", "1", upstream="r.example/a")
    return Look(ref, source, local, entry, wanted, Decision("keep", ""), "r.example/a:1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "now", "outcome", "text"),
    [
        (look(None), ONE, "wrong", "not there"),
        (look(LocalImage("i", content="w"), None, "w"), None, "ok", "made of this clone's files"),
        (look(LocalImage("i", content="v"), None, "w"), None, "wrong", "expected the content w, found v"),
        (look(LOADED, None, "w", "build"), None, "wrong", "expected the content w, found None"),
        (look(PULLED), ONE, "ok", "has the locked digest; its tag still stands for it"),
        (look(PULLED), TWO, "ok", f"has the locked digest; its tag now stands for {TWO}"),
        (
            look(PULLED),
            GONE,
            "ok",
            "has the locked digest; the registry was asked in vain: a: r.example does not answer",
        ),
        (look(PULLED, TWO), TWO, "wrong", f"expected {TWO}, found {ONE}; its tag still stands for it"),
        (look(PULLED, None), ONE, "unknown", f"its digest was never learnt; the tag stands for {ONE}"),
        (
            look(LOADED),
            None,
            "unknown",
            "loaded from a file: there is no digest to compare; the registry was not asked",
        ),
    ],
)
def test_an_image_is_judged_by_its_files_or_its_digest(
    seen: Look, now: str | PullFailed | None, outcome: str, text: str
) -> None:
    verdict = judge(seen, now)
    assert (verdict.outcome, verdict.text) == (outcome, text)
    assert verdict.digest == (seen.locked.digest if seen.locked else None)
