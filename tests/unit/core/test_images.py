from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from control.core import images
from control.core.errors import UsageError
from control.core.model import ImageRef

ROOT = Path(__file__).parents[3]
GOOD = "a: {repository: x/a, tag: '1'}\n"
BUILD = "{kind: dockerfile, context: c, dockerfile: d, inputs: [], from: base}"
BUILT = GOOD.replace("}", f", build: {BUILD}}}")


def parse(text: str) -> dict[str, ImageRef]:
    return images.parse(text, "i.yaml")


def complaints(text: str) -> list[str]:
    with pytest.raises(UsageError) as caught:
        parse(text)
    return caught.value.what.split("\n")


def ref(name: str, *parents: str) -> ImageRef:
    return ImageRef(name, f"x/{name}", "1", build={"kind": "dockerfile", "from": list(parents)})


def test_the_bundles_own_file_is_good_and_built_base_first() -> None:
    found = images.parse((ROOT / images.PATH).read_text(encoding="utf-8"))
    assert {name: r.reference for name, r in found.items()} == {
        "base": "flashbox/base:0.1.0",
        "gateway": "flashbox/gateway:0.1.0",
        "policy": "flashbox/policy:0.1.0",
        "stub": "flashbox/stub:0.1.0",
        "engine-cpu": "flashbox/engine-cpu:0.1.0",
        "engine": "vllm/vllm-openai:v0.26.0",
    }
    assert [r.name for r in images.build_order(found)] == ["base", "gateway", "policy", "stub"]
    assert [r.name for r in images.build_order(found, ["stub"])] == ["base", "stub"]
    assert [r.name for r in images.build_order(found, ["engine-cpu"])] == ["base", "engine-cpu"]
    assert all(r.licence for r in found.values())
    for r in found.values():
        assert all((ROOT / path).exists() for path in images.inputs(r)), r.name
    assert "python3" in [package.partition("=")[0] for package in images.packages(found["base"])]


def test_a_stack_has_the_gateway_and_the_engine_of_its_own_kind() -> None:
    found = images.parse((ROOT / images.PATH).read_text(encoding="utf-8"))
    used = {kind: set(images.for_kind(found, kind)) for kind in ("gpu", "cpu", "stub")}
    assert used == {
        "gpu": {"gateway", "policy", "engine"},
        "cpu": {"gateway", "policy", "engine-cpu"},
        "stub": {"gateway", "policy", "stub"},
    }


def test_an_optional_image_is_built_for_the_kind_that_runs_it_alone() -> None:
    found = images.parse((ROOT / images.PATH).read_text(encoding="utf-8"))
    for kind in ("gpu", "cpu", "stub"):
        names = [r.name for r in images.build_order(found, images.for_kind(found, kind))]
        assert ("engine-cpu" in names) == (kind == "cpu"), kind
        assert {"base", "gateway"} <= set(names)


def test_the_real_engine_on_a_cpu_is_of_the_release_that_the_facts_take_by_default() -> None:
    found = images.parse((ROOT / images.PATH).read_text(encoding="utf-8"))
    facts = yaml.safe_load((ROOT / "config/engines.yaml").read_text(encoding="utf-8"))
    assert images.arguments(found["engine-cpu"])["VLLM"] == facts["default_release"]
    assert images.arguments(found["stub"]) == {}


TAG = "a tag such as 0.1.0, in quotes where it looks like a number"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected a mapping of images, found null"),
        ("- a", "expected a mapping of images, found a list"),
        (GOOD + GOOD, "a: written 2 times, in lines 1, 2; keep one"),
        ("a: x", 'a: expected a mapping of repository, tag, licence, upstream, build, found "x"'),
        ("a: {repository: x/a}", f"a.tag: expected {TAG}, found nothing"),
        ("a: {repository: x/a, tag: 1.0}", f"a.tag: expected {TAG}, found 1.0"),
        (
            "a: {repository: X, tag: '1'}",
            'a.repository: expected a lower-case repository such as flashbox/base, found "X"',
        ),
        (GOOD.replace("}", ", licnce: y}"), "a.licnce: unknown field (did you mean licence?)"),
        (GOOD.replace("}", ", licence: 2}"), "a.licence: expected text, found 2"),
        (GOOD.replace("}", ", build: x}"), 'a.build: expected a mapping with kind, found "x"'),
        (
            GOOD.replace("}", ", upstream: 'docker.io/x/a:1'}"),
            "a.upstream: expected a registry and a repository without a tag, such as docker.io/prom/prometheus, "
            'found "docker.io/x/a:1"',
        ),
        (BUILT.replace("dockerfile,", "make,"), 'a.build.kind: expected one of debootstrap, dockerfile, found "make"'),
        (BUILT.replace("context: c, ", ""), "a.build.context: expected text, found nothing"),
        (BUILT.replace("inputs: []", "inputs: x"), 'a.build.inputs: expected a list, found "x"'),
        (f"bse: {{repository: x/b, tag: '1'}}\n{BUILT}", "a.build.from: no image is called base (did you mean bse?)"),
    ],
)
def test_a_wrong_entry_is_told_with_path_expected_and_found(text: str, words: str) -> None:
    assert complaints(text) == [f"i.yaml: {words}"]


def test_all_wrong_entries_are_told_at_once() -> None:
    assert len(complaints("a: {tag: '1'}\nb: {repository: x/b}\nc: 1\n")) == 3


@given(st.permutations("abcde"))
def test_parents_are_built_before_children_in_whatever_order_they_are_listed(order: list[str]) -> None:
    graph = {"a": ref("a"), "b": ref("b", "a"), "c": ref("c", "a"), "d": ref("d", "b", "c"), "e": ref("e", "d")}
    built = [r.name for r in images.build_order({name: graph[name] for name in order})]
    assert sorted(built) == list("abcde")
    assert all(built.index(parent) < built.index(name) for name in built for parent in images.parents(graph[name]))


def test_images_on_each_other_in_a_circle_are_shown() -> None:
    with pytest.raises(UsageError, match="in a circle: b -> c -> b"):
        images.build_order({"a": ref("a", "b"), "b": ref("b", "c"), "c": ref("c", "b")})


def test_an_unknown_name_is_told_with_the_likely_one() -> None:
    with pytest.raises(UsageError, match=r"gatewy: no image .* \(did you mean gateway\?\)"):
        images.build_order({"gateway": ref("gateway")}, ["gatewy"])


def test_an_image_that_is_not_ours_to_build_is_in_no_order() -> None:
    assert images.build_order({"a": ImageRef("a", "x/a", "1")}) == []


def test_the_content_hash_changes_with_build_files_and_parents_and_with_nothing_else() -> None:
    one = ref("a")
    base = images.content_hash(one, {"f": "1"}, ["p"])
    assert base == images.content_hash(replace(one, name="b", tag="2", licence="z", repository="y"), {"f": "1"}, ["p"])
    assert images.content_hash(one, {"f": "1", "g": "2"}, []) == images.content_hash(one, {"g": "2", "f": "1"}, [])
    others = [
        images.content_hash(replace(one, build={"kind": "debootstrap"}), {"f": "1"}, ["p"]),
        images.content_hash(one, {"f": "2"}, ["p"]),
        images.content_hash(one, {"g": "1"}, ["p"]),
        images.content_hash(one, {"f": "1"}, ["q"]),
        images.content_hash(one, {"f": "1"}, []),
    ]
    assert len({base, *others}) == 6
