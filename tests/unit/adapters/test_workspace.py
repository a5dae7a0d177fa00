"""The clone: what is published in which order, and what is remembered."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.adapters import files
from control.adapters.workspace import CHOICES, STAMP, Choices, Workspace
from control.core import envoy_files, header

FILTERS = [f"ecds_{name}" for name in envoy_files.FILTERS]
ENVOY = [f"run/envoy/dynamic/{name}.yaml" for name in ("cds", "eds", "sds", *FILTERS, "rds", "lds")]
IN_ORDER = [".env", "run/engines.yaml", "run/policy/rules.json", *ENVOY, "run/envoy/bootstrap.yaml"]


def test_envoys_files_follow_what_they_refer_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    publish = files.publish

    def spy(path: Path, text: str, mode: int = 0o644, owner: files.Owner | None = None) -> None:
        order.append(path.relative_to(tmp_path).as_posix())
        publish(path, text, mode, owner)

    monkeypatch.setattr(files, "publish", spy)
    assert Workspace(tmp_path).publish(dict.fromkeys(reversed(IN_ORDER), "x")) == IN_ORDER
    assert order == IN_ORDER


def test_only_what_differs_is_replaced(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.publish(dict.fromkeys(IN_ORDER, "x"))
    assert workspace.publish({**dict.fromkeys(IN_ORDER, "x"), ENVOY[0]: "y"}) == [ENVOY[0]]


def test_rendered_files_are_known_by_their_first_words_in_yaml_and_json_and_the_stamp_is_none(tmp_path: Path) -> None:
    ours = {"run/a.yaml": header.with_header("a: 1\n"), "run/policy/b.json": header.json_with_note({"b": 1})}
    others = {"run/c.yaml": "c: 1\n", "run/d.json": '{"note": "mine"}', STAMP: header.json_with_note({"files": {}})}
    workspace = Workspace(tmp_path)
    assert workspace.rendered() == {}
    workspace.publish({**ours, **others})
    assert workspace.rendered() == ours


def test_choices_are_remembered(tmp_path: Path) -> None:
    told = Choices("up", ("stub", "monitoring"), ("gateway.port=9000",))
    Workspace(tmp_path).remember(told)
    assert Workspace(tmp_path).choices() == told


@given(text=st.text() | st.sampled_from(['{"profiles": 3}', "[]", "null", '{"profiles": null, "assignments": []}']))
def test_choices_that_make_no_sense_count_as_none(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    root = tmp_path_factory.mktemp("clone")
    (root / "run").mkdir()
    (root / CHOICES).write_text(text, encoding="utf-8", errors="surrogatepass" if text.isascii() else "replace")
    assert Workspace(root).choices().profiles == ()


def test_a_file_a_person_owns_is_never_written_again(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    assert workspace.create("config/stack.yaml", "new")
    (tmp_path / "config/stack.yaml").write_text("mine")
    assert not workspace.create("config/stack.yaml", "new")
    assert workspace.text("config/stack.yaml") == "mine"


def test_the_rendered_project_is_read_from_env_and_none_without_it(tmp_path: Path) -> None:
    assert Workspace(tmp_path).rendered_project() is None
    (tmp_path / ".env").write_text("COMPOSE_PROJECT_NAME=mine\n")
    assert Workspace(tmp_path).rendered_project() == "mine"
