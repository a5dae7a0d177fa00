"""Bytes of a file that a person may have edited, turned into text or into a plain sentence about what they are."""

from __future__ import annotations

import codecs

from control.core.errors import UsageError

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
SAVE_AS_UTF8 = "Save it as UTF-8 (in PowerShell: Set-Content -Encoding utf8)."


def decode(data: bytes, path: str) -> str:
    """Read UTF-8; a byte order mark is dropped, anything else is named instead of guessed."""
    if data.startswith(_UTF16) or b"\x00" in data:
        raise utf16(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        raise UsageError(
            f"{path}: line {line}: expected UTF-8, found the byte 0x{byte:02x}",
            "It is in another encoding.",
            SAVE_AS_UTF8,
        ) from None


def utf16(path: str) -> UsageError:
    """What a file with zero bytes is, most of the time."""
    return UsageError(f"{path}: this file is UTF-16, expected UTF-8", "PowerShell's > writes UTF-16.", SAVE_AS_UTF8)


def looks_like_utf16(text: str) -> bool:
    """True for UTF-16 that was read as some other encoding: zero bytes, or the mark FF FE in any disguise."""
    return "\x00" in text or text.startswith(("\xff\xfe", "\xfe\xff", "\udcff\udcfe", "\udcfe\udcff", "\ufffe"))
