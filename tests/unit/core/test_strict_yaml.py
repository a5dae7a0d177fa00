from __future__ import annotations

import pytest

from control.core import strict_yaml


def complaint(text: str) -> str:
    (line,) = strict_yaml.read(text, "f.yaml").complaints
    return line


def test_a_key_written_twice_is_told_with_both_lines_and_its_path() -> None:
    assert complaint("a:\n  b: 1\n  c: 2\n  b: 3\n") == "f.yaml: a.b: written 2 times, in lines 2, 4; keep one"


def test_keys_written_twice_are_all_told() -> None:
    assert len(strict_yaml.read("a: 1\na: 2\nb: [{c: 1, c: 1}]\n", "f").complaints) == 2


def test_the_same_key_in_two_mappings_is_fine() -> None:
    assert strict_yaml.read("a: {x: 1}\nb: {x: 1}\n", "f").value == {"a": {"x": 1}, "b": {"x": 1}}


@pytest.mark.parametrize("text", ["a:\n\tb: 1\n", "\ta: 1\n", "a:\n  b: 1\n\tc: 2\n"])
def test_a_tab_is_named_with_its_line(text: str) -> None:
    line = 1 + text[: text.index("\t")].count("\n")
    assert (
        complaint(text) == f"f.yaml: line {line}: found a tab; YAML indents with spaces only. Replace it by two spaces"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("port: 010\n", "port: line 1: YAML reads 010 as 8; write 8, or '010' for text"),
        ("a:\n  t: 1:30\n", "a.t: line 2: YAML reads 1:30 as 90; write 90, or '1:30' for text"),
        ("- 017\n", "[0]: line 1: YAML reads 017 as 15"),
    ],
)
def test_a_number_that_yaml_reads_in_another_base_is_refused(text: str, words: str) -> None:
    assert complaint(text).startswith(f"f.yaml: {words}")


@pytest.mark.parametrize("text", ["0", "-1", "10", "0x10", "0.5", "'010'", "007.5"])
def test_ordinary_numbers_and_quoted_ones_are_read(text: str) -> None:
    assert strict_yaml.read(f"a: {text}", "f").complaints == ()


@pytest.mark.parametrize("text", ["g\x00a\x00", "ÿþg\x00", "\udcff\udcfeg", "ÿþ"])
def test_utf16_is_called_utf16(text: str) -> None:
    assert "this file is UTF-16" in complaint(text)


def test_a_byte_order_mark_at_the_start_is_read_as_yaml_says() -> None:
    assert strict_yaml.read("\ufeffa: 1\n", "f").value == {"a": 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: \x07\n", "line 2: the character U+0007"),
        ("a: 1\n---\nb: 1\n", "line 2: expected a single document"),
        ("a: b: c\n", "line 1: mapping values are not allowed here"),
        ("a: 2024-13-45\n", "month must be in 1..12"),
        ("a: !!python/object:os.system x\n", "line 1: could not determine a constructor"),
        ("? [a]\n: 1\n", "unhashable"),
        ("a: *b\n", "line 1: found undefined alias"),
        ("[" * 100_000, ""),
    ],
)
def test_whatever_is_wrong_is_one_sentence_and_no_traceback(text: str, words: str) -> None:
    assert words in complaint(text)


def test_a_mapping_inside_itself_ends() -> None:
    assert strict_yaml.read("a: &x {b: *x}\n", "f").complaints == ()


def test_comments_only_is_nothing() -> None:
    assert strict_yaml.read("# a\n", "f") == strict_yaml.Document(None)
