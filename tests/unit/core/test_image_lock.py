from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.core import image_lock
from control.core.errors import UsageError
from control.core.image_lock import Locked

ENTRY = Locked("sha256:" + "a" * 64, "2030-01-02T03:04:05Z", "r.example/x:1")
NAMES = st.text("abz019", min_size=1, max_size=6).map(lambda word: f"{word}.io:5000/{word}:{word}")
DIGESTS = st.integers(0, 2**256 - 1).map(lambda number: f"sha256:{number:064x}")


@given(st.dictionaries(NAMES, st.builds(Locked, DIGESTS, st.just("2030-01-02T03:04:05Z"), NAMES), max_size=4))
def test_what_is_written_is_read_again(locked: dict[str, Locked]) -> None:
    text = image_lock.dump(locked)
    assert image_lock.parse(text) == locked
    assert text.startswith("# Written by `python ctl.py images pull`")


def test_no_file_and_an_empty_one_are_nothing_learnt() -> None:
    assert image_lock.parse(None) == image_lock.parse("") == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a", "expected a mapping of images, found a list"),
        ("x: 1", "x: expected a mapping of digest, learnt, from, found 1"),
        (
            "x: {digest: latest, learnt: a, from: b}",
            'x.digest: expected sha256: and 64 hexadecimal digits, found "latest"',
        ),
        ("x: {learnt: a, from: b}", "x.digest: expected text, found nothing"),
        (image_lock.dump({"x": ENTRY}) + "  more: 1\n", "x.more: unknown field"),
        ("x: {", "line"),
    ],
)
def test_a_file_that_was_edited_is_refused_with_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        image_lock.parse(text)
    assert words in caught.value.what and caught.value.what.startswith(image_lock.PATH) and caught.value.fix
