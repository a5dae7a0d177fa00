from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.core import encoding, envfile
from control.core.errors import UsageError

CASES = Path(__file__).parents[2] / "fixtures/env"
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True)
NASTY = st.text(alphabet="$#'\" \\=:aB1{}[]!%@~`éü中", max_size=16)


def refused(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        envfile.parse(text)
    return caught.value


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("plain-1.2:/x", "A=plain-1.2:/x"),
        ("", "A="),
        ("ab$cd12", "A='ab$cd12'"),
        ("x$$y", "A='x$$y'"),
        ("${HOME}", "A='${HOME}'"),
        ("pa#ss word", "A='pa#ss word'"),
        ("a #b", "A='a #b'"),
        (" edge ", "A=' edge '"),
        ('say "x"', "A='say \"x\"'"),
        ("back\\slash", "A='back\\slash'"),
        ("it's", "A=it's"),
        ("[::1]", "A='[::1]'"),
    ],
)
def test_a_value_is_written_so_that_compose_reads_it_back(value: str, line: str) -> None:
    assert envfile.dump({"A": value}) == f"{line}\n"
    assert envfile.parse(f"{line}\n") == {"A": value}


@given(st.dictionaries(NAMES, st.one_of(NASTY, st.text(max_size=16)), max_size=5))
def test_what_is_written_is_read_back_or_was_refused(values: dict[str, str]) -> None:
    try:
        text = envfile.dump(values)
    except UsageError:
        assert any(not v.isprintable() or "'" in v or v.endswith("\\") for v in values.values())
        return
    assert envfile.parse(text) == values


@given(st.dictionaries(NAMES, st.text(alphabet='$#" =:aB1{}[]!%@~`é中', max_size=16), max_size=5))
def test_dollars_hashes_double_quotes_and_spaces_are_always_carried(values: dict[str, str]) -> None:
    assert envfile.parse(envfile.dump(values)) == values


@pytest.mark.parametrize(
    "value", ["two\nlines", "a\rb", "\x00", "\x1b[0m", "it's $5", "it's #1", "'", "end\\", "\u2028"]
)
def test_a_value_that_no_line_carries_is_refused_with_the_name(value: str) -> None:
    with pytest.raises(UsageError, match="SECRET"):
        envfile.dump({"SECRET": value})


@given(st.text(max_size=10))
def test_a_refused_value_is_not_repeated(value: str) -> None:
    with pytest.raises(UsageError) as caught:
        envfile.dump({"A": f"hunter2{value}\n"})
    assert "hunter2" not in caught.value.what + caught.value.why + caught.value.fix


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "Ä", "A\n"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="expected a name"):
        envfile.dump({name: "x"})


def test_case_h01_a_dollar_that_compose_would_replace_is_an_error_with_line_and_name() -> None:
    text = encoding.decode((CASES / "H01.txt").read_bytes(), "H01.txt")
    error = refused(text)
    assert error.what == (
        ".env: line 1: GRAFANA_ADMIN_PASSWORD: Docker Compose replaces $cd12 here; put the whole value in single quotes"
    )
    assert envfile.parse(text.splitlines()[1]) == {"VLLM_API_KEY": "pa#ss word"}


def test_case_h02_three_spellings_of_one_dollar_are_one_value() -> None:
    text = encoding.decode((CASES / "H02.txt").read_bytes(), "H02.txt")
    assert envfile.parse(text) == dict.fromkeys(["GRAFANA_ADMIN_PASSWORD", "SECOND", "THIRD"], "x$y")


def test_case_h03_a_byte_order_mark_and_windows_line_ends_are_named() -> None:
    error = refused((CASES / "H03.txt").read_bytes().decode("utf-8"))
    assert error.what == (
        ".env: expected UTF-8 with plain line ends, found a UTF-8 byte order mark before the first name"
        " and Windows line ends (CRLF)"
    )
    assert "python ctl.py render" in error.fix


def test_case_h04_utf16_is_called_utf16() -> None:
    with pytest.raises(UsageError, match="this file is UTF-16"):
        encoding.decode((CASES / "H04.txt").read_bytes(), ".env")
    assert "this file is UTF-16" in refused((CASES / "H04.txt").read_bytes().decode("latin-1")).what


def test_comments_blank_lines_and_export_are_read_as_compose_does() -> None:
    text = '# c\n\n  export A=1 # one\nB = x#y\nC=#none\nD=\'q\' # c\nE="a\\"b\\\\c\\$d$$e"\n'
    assert envfile.parse(text) == {"A": "1", "B": "x#y", "C": "", "D": "q", "E": 'a"b\\c$d$e'}


def test_every_line_that_is_wrong_is_told() -> None:
    error = refused("A=1\nnonsense\n1B=2\nC='open\nD=$E\n")
    assert [line.split(":")[1] for line in error.what.split("\n")] == [" line 2", " line 3", " line 4", " line 5"]
