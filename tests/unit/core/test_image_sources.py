from __future__ import annotations

import pytest

from control.core import image_sources, layers
from control.core.errors import UsageError
from control.core.image_sources import LocalImage, decide, locked_name, remote, source_of
from control.core.model import ImageRef
from control.core.settings import Images

BUILD = {"kind": "dockerfile"}
OURS = ImageRef("gateway", "flashbox/gateway", "0.1.0", build=BUILD)
THEIRS = ImageRef("engine", "vllm/vllm-openai", "v1", upstream="docker.io/vllm/vllm-openai")
EITHER = ImageRef("prometheus", "flashbox/prometheus", "3", build=BUILD, upstream="docker.io/prom/prometheus")
REFS = {ref.name: ref for ref in (OURS, THEIRS, EITHER)}
ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64


@pytest.mark.parametrize(
    ("ref", "mirror", "asked"),
    [
        (THEIRS, None, "docker.io/vllm/vllm-openai:v1"),
        (THEIRS, "r.example:5000", "r.example:5000/vllm/vllm-openai:v1"),
        (THEIRS, "r.example/hub", "r.example/hub/vllm/vllm-openai:v1"),
        (THEIRS, "r.example/{registry}", "r.example/docker.io/vllm/vllm-openai:v1"),
        (EITHER, None, "docker.io/prom/prometheus:3"),
        (OURS, None, None),
        (OURS, "r.example/hub", "r.example/hub/flashbox/gateway:0.1.0"),
        (OURS, "r.example/{registry}", "r.example/flashbox/gateway:0.1.0"),
    ],
)
def test_a_mirror_takes_the_place_of_the_registry(ref: ImageRef, mirror: str | None, asked: str | None) -> None:
    assert remote(ref, mirror) == asked


def test_the_lock_knows_an_image_by_its_project_s_own_name() -> None:
    assert locked_name(THEIRS) == "docker.io/vllm/vllm-openai:v1"
    assert locked_name(OURS) == "flashbox/gateway:0.1.0"


@pytest.mark.parametrize(
    ("ref", "settings", "source"),
    [
        (OURS, Images(), "build"),
        (THEIRS, Images(), "pull"),
        (EITHER, Images(), "auto"),
        (EITHER, Images(source="build"), "build"),
        (EITHER, Images(source="build", sources={"prometheus": "pull"}), "pull"),
        # Our own names may be anybody's in a public registry: a mirror alone does not make us look there.
        (OURS, Images(mirror="r.example"), "build"),
        (OURS, Images(mirror="r.example", sources={"gateway": "pull"}), "pull"),
        (THEIRS, Images(source="pull"), "pull"),
    ],
)
def test_auto_is_what_is_possible_and_a_single_image_s_setting_is_stronger(
    ref: ImageRef, settings: Images, source: str
) -> None:
    assert source_of(ref, settings) == source


@pytest.mark.parametrize(
    ("ref", "settings", "words"),
    [
        (THEIRS, Images(source="build"), "images.source: expected pull or auto for the image engine, found build"),
        (THEIRS, Images(sources={"engine": "build"}), "images.sources.engine: expected pull or auto"),
        (OURS, Images(source="pull"), "images.source: expected build or auto for the image gateway, found pull"),
    ],
)
def test_a_source_that_cannot_be_is_refused_with_the_setting_s_name(
    ref: ImageRef, settings: Images, words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        source_of(ref, settings)
    assert words in caught.value.what and f"--set images.sources.{ref.name}=" in caught.value.fix


def test_a_source_for_an_image_that_does_not_exist_is_told_with_the_likely_one() -> None:
    with pytest.raises(UsageError, match=r"images.sources.gatewy: no image .* \(did you mean gateway\?\)"):
        image_sources.check_names(REFS, Images(sources={"gatewy": "pull"}))


def test_another_tag_may_be_named_of_what_only_a_registry_has() -> None:
    (found,) = image_sources.named(REFS, ["engine:v1-cu129"])
    assert found.reference == "vllm/vllm-openai:v1-cu129"
    for text, words in (("gateway:2", "expected no tag, found 2"), ("engin", "did you mean engine?")):
        with pytest.raises(UsageError) as caught:
            image_sources.named(REFS, [text])
        assert words in caught.value.what


LOADED = LocalImage("sha256:i")
BUILT, STALE = LocalImage("sha256:i", content="w"), LocalImage("sha256:i", content="old")
PULLED = LocalImage("sha256:i", digests=(ONE,))


@pytest.mark.parametrize(
    ("ref", "source", "local", "locked", "action"),
    [
        (OURS, "build", None, None, "build"),
        (OURS, "build", BUILT, None, "keep"),
        (OURS, "build", STALE, None, "build"),
        (OURS, "build", PULLED, ONE, "build"),
        (OURS, "pull", None, None, "pull"),
        (OURS, "pull", STALE, ONE, "pull"),
        (OURS, "pull", LocalImage("i", (ONE,), "w"), ONE, "keep"),
        (THEIRS, "pull", None, ONE, "pull"),
        (THEIRS, "pull", PULLED, ONE, "keep"),
        (THEIRS, "pull", PULLED, None, "keep"),
        (THEIRS, "pull", PULLED, TWO, "pull"),
        (THEIRS, "pull", LOADED, TWO, "keep"),
        (EITHER, "auto", None, None, "try"),
        (EITHER, "auto", BUILT, ONE, "keep"),
        (EITHER, "auto", STALE, None, "try"),
        (EITHER, "auto", PULLED, ONE, "keep"),
        (EITHER, "auto", PULLED, TWO, "try"),
        (EITHER, "pull", BUILT, None, "pull"),
        (EITHER, "build", PULLED, ONE, "build"),
    ],
)
def test_what_is_there_is_kept_if_it_is_what_was_asked_for(
    ref: ImageRef, source: str, local: LocalImage | None, locked: str | None, action: str
) -> None:
    wanted = "w" if ref.build else None
    decision = decide(ref, source, local, wanted, locked)  # type: ignore[arg-type]
    assert (decision.action, bool(decision.why)) == (action, True)


def resolved(stack: str, *assignments: str) -> Images:
    found = layers.resolve([layers.yaml_layer(stack, "stack.yaml"), layers.assignment_layer(list(assignments))])
    return found.settings.images


def test_sources_of_single_images_add_up_over_the_places_that_set_them() -> None:
    stack = "images: {sources: {gateway: build, engine: pull}}"
    assert resolved(stack, "images.sources.gateway=pull").sources == {"gateway": "pull", "engine": "pull"}


@pytest.mark.parametrize(
    ("stack", "words"),
    [
        (
            "images: {sources: {gateway: bild}}",
            'images.sources.gateway: expected a mapping of names, each one of auto, build, pull, found "bild"',
        ),
        ("images: {mirror: hub}", "images.mirror: expected a registry with a dot or a port in its name"),
        ("images: {mirror: 'https://r.example'}", "images.mirror: expected"),
        ("images: {source: docker}", 'images.source: expected one of auto, build, pull, found "docker"'),
    ],
)
def test_a_wrong_source_or_mirror_is_told_with_path_expected_and_found(stack: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolved(stack)
    assert words in caught.value.what
