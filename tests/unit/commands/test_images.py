from __future__ import annotations

import dataclasses
import json

import pytest
import yaml

from control.adapters import image_builder
from control.core import host_snapshot, image_lock, registry_faults
from control.core.image_sources import LocalImage
from tests.unit.world import GOOD_HOST, ROOT, Operator

NAME = "docker.io/vllm/vllm-openai"
LOCAL = "vllm/vllm-openai"
ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64


def lock(operator: Operator) -> dict[str, dict[str, str]]:
    return yaml.safe_load(operator.text(image_lock.PATH))


def test_a_digest_that_was_not_learnt_is_shown_as_such_and_pull_learns_it(operator: Operator) -> None:
    before = {row["name"]: row for row in json.loads(operator.types("images", "list", "--json").stdout)}
    assert before["engine"]["digest"] is None and before["engine"]["source"] == "pull"
    assert before["gateway"]["source"] == "build" and before["gateway"]["upstream"] is None
    assert "not learnt" in operator.types("images", "list").stdout
    operator.world.registries[f"{NAME}:v0.26.0"] = ONE
    result = operator.types("images", "pull", "engine")
    assert result.exit_code == 0 and ONE in result.stderr, result.output
    assert lock(operator)[f"{NAME}:v0.26.0"]["digest"] == ONE
    assert operator.world.images[f"{LOCAL}:v0.26.0"].digests == (ONE,)
    after = {row["name"]: row for row in json.loads(operator.types("images", "list", "--json").stdout)}
    assert after["engine"]["digest"] == ONE and after["engine"]["present"] is True


def test_a_later_pull_asks_for_the_locked_digest_whatever_the_tag_says(operator: Operator) -> None:
    operator.world.registries[f"{NAME}:v0.26.0"] = ONE
    operator.types("images", "pull", "engine")
    operator.world.registries[f"{NAME}:v0.26.0"] = TWO
    result = operator.types("images", "pull", "engine")
    assert result.exit_code == 1
    assert f"expected {ONE}, found {TWO}" in result.stderr and "--renew engine" in result.stderr
    assert lock(operator)[f"{NAME}:v0.26.0"]["digest"] == ONE
    assert operator.types("images", "pull", "engine", "--renew").exit_code == 0
    assert lock(operator)[f"{NAME}:v0.26.0"]["digest"] == TWO


def test_an_image_for_another_cuda_is_another_tag_with_a_digest_of_its_own(operator: Operator) -> None:
    operator.world.registries |= {f"{NAME}:v0.26.0": ONE, f"{NAME}:v0.26.0-cu129": TWO}
    assert operator.types("images", "pull", "engine", "engine:v0.26.0-cu129").exit_code == 0
    assert {name: entry["digest"] for name, entry in lock(operator).items()} == {
        f"{NAME}:v0.26.0": ONE,
        f"{NAME}:v0.26.0-cu129": TWO,
    }


def test_a_stack_of_images_that_are_built_here_has_nothing_to_pull(operator: Operator) -> None:
    result = operator.types("images", "pull", "--set", "engine.kind=stub")
    assert result.exit_code == 0 and "nothing to pull" in result.stderr
    assert operator.world.pulled == []


def test_an_image_that_no_registry_has_is_told_so(operator: Operator) -> None:
    result = operator.types("images", "pull", "gateway")
    assert result.exit_code == 1 and "no registry has this image" in result.stderr and "images build" in result.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("pull", "engin"), "did you mean engine?"),
        (("pull", "engine", "--set", "images.sources.gatway=pull"), "did you mean gateway?"),
        (("list", "--set", "images.sources.engine=build"), "expected pull or auto for the image engine, found build"),
    ],
)
def test_a_wrong_name_is_told_with_the_likely_one(operator: Operator, words: tuple[str, ...], told: str) -> None:
    result = operator.types("images", *words)
    assert result.exit_code == 2 and told in result.stderr, result.output


def test_verify_ends_with_1_if_an_image_is_not_what_it_should_be(operator: Operator) -> None:
    operator.world.registries[f"{NAME}:v0.26.0"] = ONE
    operator.types("images", "pull", "engine")
    good = operator.types("images", "verify", "engine", "--json")
    assert good.exit_code == 0 and json.loads(good.stdout)[0]["outcome"] == "ok"
    operator.world.images[f"{LOCAL}:v0.26.0"] = LocalImage("other", (TWO,))
    bad = operator.types("images", "verify", "engine")
    assert bad.exit_code == 1 and "wrong" in bad.stdout


def with_gpus(operator: Operator) -> None:
    text = (ROOT / "tests/fixtures/hosts/dgx-h100.json").read_text(encoding="utf-8")
    operator.host = dataclasses.replace(GOOD_HOST, inventory=host_snapshot.parse(text, "dgx-h100.json").inventory)


def test_up_pulls_the_engine_of_the_plan(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(operator)
    operator.world.registries[f"{NAME}:v0.26.0"] = ONE
    monkeypatch.setattr(image_builder, "build_all", lambda *words: list(words[-1]))
    result = operator.types("up", "--profile", "gpu")
    assert "gateway built, policy built, engine pulled" in result.stderr, result.output
    assert operator.world.pulled == [f"{NAME}@{ONE}"]
    again = operator.types("up", "--profile", "gpu")
    assert "engine pulled" not in again.stderr and len(operator.world.pulled) == 1


def test_up_without_an_engine_to_be_had_refuses_before_anything_starts(operator: Operator) -> None:
    with_gpus(operator)
    result = operator.types("up", "--profile", "gpu")
    assert result.exit_code == 3, result.output
    assert "docker.io does not answer" in result.stderr and "docker load" in result.stderr
    assert f"{LOCAL}:v0.26.0" in result.stderr and operator.world.status == {}
    operator.world.images[f"{LOCAL}:v0.26.0"] = LocalImage("loaded from a file")
    assert "docker load" not in operator.types("up", "--profile", "gpu").stderr


def test_up_never_takes_another_digest_than_the_one_that_was_learnt(operator: Operator) -> None:
    with_gpus(operator)
    operator.world.registries[f"{NAME}:v0.26.0"] = ONE
    operator.types("images", "pull", "engine")
    operator.world.images.clear()
    operator.world.registries[f"{NAME}:v0.26.0"] = TWO
    result = operator.types("up", "--profile", "gpu")
    assert result.exit_code == 1 and f"expected {ONE}, found {TWO}" in result.stderr
    assert operator.world.status == {}


EITHER = """
stub:
  repository: flashbox/stub
  tag: "0.1.0"
  upstream: r.example/stub
  build: {kind: dockerfile, context: images, dockerfile: x, inputs: [images/stub], from: base}
"""


@pytest.mark.parametrize(
    ("answer", "done", "note"),
    [
        (ONE, "gateway built, policy built, stub pulled", ""),
        (
            "connection refused",
            "gateway built, policy built, stub built",
            "r.example does not answer, so it is built here",
        ),
        ("manifest unknown", "gateway built, policy built, stub built", "r.example does not have"),
        ("x509: unknown authority", "gateway built, policy built, stub built", "does not trust the certificate"),
    ],
)
def test_auto_takes_what_a_registry_has_and_builds_otherwise_and_says_so(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, answer: str, done: str, note: str
) -> None:
    operator.types("version")
    path = operator.folder / "config/images.yaml"
    entries = {**yaml.safe_load(path.read_text()), **yaml.safe_load(EITHER)}
    path.write_text(yaml.safe_dump(entries, sort_keys=False))
    reference = "r.example/stub:0.1.0"
    failed = registry_faults.explain(answer, reference, "stub")
    operator.world.registries[reference] = answer if answer == ONE else failed
    monkeypatch.setattr(image_builder, "build_all", lambda *words: list(words[-1]))
    result = operator.types("up", "--profile", "stub")
    assert result.exit_code == 0 and done in result.stderr and note in result.stderr, result.output


def test_auto_never_answers_a_wrong_digest_by_building(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    operator.types("version")
    path = operator.folder / "config/images.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **yaml.safe_load(EITHER)}, sort_keys=False))
    reference = "r.example/stub:0.1.0"
    operator.world.registries[reference] = registry_faults.explain(
        "manifest verification failed for digest sha256:aa", reference, "stub"
    )
    built: list[str] = []
    monkeypatch.setattr(image_builder, "build_all", lambda *words: built.extend(words[-1]) or list(words[-1]))
    result = operator.types("up", "--profile", "stub")
    assert result.exit_code == 1 and "is not the image that was expected" in result.stderr, result.output
    assert "stub" not in built and operator.world.status == {}
