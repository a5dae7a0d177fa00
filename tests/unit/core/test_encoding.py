from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.core import encoding
from control.core.errors import UsageError


@given(st.text().filter(lambda text: "\x00" not in text and not text.startswith("\ufeff")))
def test_utf8_is_read_with_or_without_a_byte_order_mark(text: str) -> None:
    assert encoding.decode(text.encode("utf-8"), "f") == text
    assert encoding.decode(text.encode("utf-8-sig"), "f") == text


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_utf16_is_called_utf16_with_the_cure(codec: str) -> None:
    with pytest.raises(UsageError) as caught:
        encoding.decode("project: x\n".encode(codec), "config/stack.yaml")
    assert caught.value.what == "config/stack.yaml: this file is UTF-16, expected UTF-8"
    assert "Save it as UTF-8" in caught.value.fix


def test_another_encoding_is_told_with_line_and_byte() -> None:
    with pytest.raises(UsageError) as caught:
        encoding.decode("a: 1\nb: M\xfcller\n".encode("latin-1"), "f")
    assert caught.value.what == "f: line 2: expected UTF-8, found the byte 0xfc"
