"""The real parsers take every command that is rendered for them, and refuse what is wrong; the record is theirs."""

from __future__ import annotations

import os

import pytest

from tests.engine.conftest import COMPARED
from tests.engine.parsers import as_text, record
from tests.engine.rendered import RELEASES, record_path


@pytest.mark.parametrize("release", RELEASES)
def test_the_parser_of_a_release_takes_every_command_that_is_rendered_for_it(release: str, engine_image: str) -> None:
    found = record(release, engine_image)
    refused = [entry for entry in found["commands"] if not entry["ok"] or entry["unknown_variables"]]
    assert not refused, "\n".join(f"{entry['said']} {entry['unknown_variables']}: {entry['argv']}" for entry in refused)
    assert [entry["ok"] for entry in found["controls"]] == [False] * len(found["controls"])
    COMPARED[f"commands given to the parser of {release}"] += len(found["commands"]) + len(found["controls"])
    path, text = record_path(release), as_text(found)
    if os.environ.get("RECORD"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, "make test-engine RECORD=1 rewrites the record; look at the change"
