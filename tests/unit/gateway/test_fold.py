"""Folding Envoy's files into one static bootstrap: pure, and strict where Envoy would wait in silence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from control.core import images, rendering
from control.core.envoy import FILES, by_name, fold, stages
from control.core.errors import FlashboxError
from control.core.model import ApiKey, Plan, Replica
from control.core.settings import Settings
from tests.sources import SOURCES

CONFIG = Path(__file__).parents[3] / "config"
IMAGES = images.parse((CONFIG / "images.yaml").read_text())


@pytest.fixture
def files() -> Mapping[str, str]:
    """A whole rendering, with the files that are not Envoy's."""
    plan = Plan("stub", (Replica(0, "172.31.78.10"), Replica(1, "172.31.78.11")), "172.31.78.2", "172.31.78.128/25")
    settings = Settings.model_validate({"engine": {"kind": "stub"}})
    return rendering.render(settings, plan, [ApiKey("a", "o", "ab" * 32, "2026-01-01T00:00:00Z")], IMAGES, SOURCES)


def test_a_fold_is_static_and_holds_what_each_file_holds(files: Mapping[str, str]) -> None:
    text = fold(files)
    tree = json.loads(text)
    assert "dynamic_resources" not in tree
    for word in ("path_config_source", "config_discovery", '"rds"', "eds_cluster_config", "sds_config"):
        assert word not in text
    resources = tree["static_resources"]
    assert [listener["name"] for listener in resources["listeners"]] == ["public", "internal"]
    named = [cluster["name"] for cluster in resources["clusters"]]
    assert named == ["vllm", "admin", "policy", "budget", "budget_done"]
    assert [secret["name"] for secret in resources["secrets"]] == ["upstream_key", "server_certificate"]
    for found in ("172.31.78.11", "ab" * 32, "/v1/chat/completions", "envoy_on_request", "max_request_bytes"):
        assert found in text


def test_nothing_of_a_fold_exists_only_in_the_container(files: Mapping[str, str]) -> None:
    assert "/run/" in "".join(by_name(files).values())
    assert "/run/" not in fold(files)
    assert "/etc/" not in fold(files)


def test_a_fold_depends_on_the_files_alone(files: Mapping[str, str]) -> None:
    assert fold(files) == fold(dict(reversed(list(files.items()))))
    assert fold(files) == fold({path.removeprefix("run/"): text for path, text in files.items()})


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(files: Mapping[str, str], name: str) -> None:
    with pytest.raises(FlashboxError, match=f"{name} missing"):
        fold({path: text for path, text in files.items() if not path.endswith(f"/{name}")})


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("text", "words"), [("a: [b", "line 1"), ("- a\n", "expected a mapping"), ("a: 1\na: 2\n", "written 2 times")]
)
def test_a_file_that_is_no_yaml_mapping_is_named_with_its_line(
    files: Mapping[str, str], name: str, text: str, words: str
) -> None:
    (path,) = [path for path in files if path.endswith(f"/{name}")]
    with pytest.raises(FlashboxError) as refusal:
        fold({**files, path: text})
    assert refusal.value.what.startswith(name) and words in refusal.value.what


@pytest.mark.parametrize("name", [name for name in FILES if name != "bootstrap.yaml"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("other: 1\n", "expected a list `resources`"),
        ("resources: {}\n", "expected a list `resources`"),
        ("resources: [1]\n", "expected @type"),
        ('resources: [{"@type": type.googleapis.com/envoy.config.route.v3.Route}]\n', "expected @type"),
    ],
)
def test_a_file_without_resources_of_its_kind_is_refused(
    files: Mapping[str, str], name: str, text: str, words: str
) -> None:
    (path,) = [path for path in files if path.endswith(f"/{name}")]
    with pytest.raises(FlashboxError) as refusal:
        fold({**files, path: text})
    assert refusal.value.what.startswith(name) and words in refusal.value.what


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("lds.yaml", "dynamic/rds.yaml", "dynamic/routes.yaml", "expected path_config_source.path to be rds.yaml"),
        (
            "lds.yaml",
            "watched_directory: {path: /etc/flashbox/envoy/dynamic}",
            "watched_directory: {path: /tmp}",
            "go unseen",
        ),
        ("cds.yaml", "dynamic/eds.yaml", "dynamic/lds.yaml", "expected path_config_source.path to be eds.yaml"),
        ("cds.yaml", "type: EDS", "type: STATIC", "needs type EDS"),
        ("bootstrap.yaml", "cds_config", "cdsconfig", "expected path_config_source.path to be cds.yaml"),
        ("cds.yaml", "    name: admin", "    name: vllm", "second resource named vllm"),
    ],
)
def test_a_reference_that_envoy_would_not_follow_is_refused(
    files: Mapping[str, str], name: str, old: str, new: str, words: str
) -> None:
    (path,) = [path for path in files if path.endswith(f"/{name}")]
    assert old in files[path]
    with pytest.raises(FlashboxError) as refusal:
        fold({**files, path: files[path].replace(old, new)})
    assert refusal.value.what.startswith(name) and words in refusal.value.what


def test_the_stages_take_in_one_more_file_each_and_end_with_the_whole(files: Mapping[str, str]) -> None:
    found = list(stages(files))
    assert [name for name, _ in found] == list(FILES)
    assert found[-1][1] == fold(files)
    first = json.loads(found[0][1])["static_resources"]
    assert first == {"listeners": [], "clusters": [], "secrets": []}
