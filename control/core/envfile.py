"""The `.env` file, written and read as Docker Compose reads it.

Compose replaces `$name` in bare and in double-quoted values, halves `$$`, and starts a comment at
` #`; only single quotes carry a value as it is, and within them no quote and no backslash before
the closing one means the same in every Compose from 2.24 on. So `dump` writes what all of them
read alike and refuses the rest, and `parse` refuses what Compose would change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from control.core.encoding import looks_like_utf16, utf16
from control.core.errors import UsageError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BARE = re.compile(r"[A-Za-z0-9_./:@%+,=-]*")
_BARE_WITH_QUOTES = re.compile(r"[A-Za-z0-9_./:@%+,=-](?:[A-Za-z0-9_./:@%+,=' \"-]*[A-Za-z0-9_./:@%+,='\"-])?")
_LINE = re.compile(r"(?:export[ \t]+)?(?P<name>[^=]*?)[ \t]*=[ \t]*(?P<value>.*)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "$": "$"}
_RENDER = "python ctl.py render writes the file anew."


def dump(values: Mapping[str, str]) -> str:
    """Write NAME=value lines that Compose reads back exactly."""
    return "".join(f"{_checked_name(name)}={_quoted(name, value)}\n" for name, value in values.items())


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(f".env: expected a name of letters, digits and _, found {name!r}")
    return name


def _quoted(name: str, value: str) -> str:
    if _BARE.fullmatch(value):
        return value
    if not value.isprintable():
        bad = next(character for character in value if not character.isprintable())
        raise UsageError(
            f".env: {name}: expected one line of printable characters, found U+{ord(bad):04X} in the value",
            "A line of .env cannot carry it.",
            "Remove the character from the setting.",
        )
    if "'" not in value and not value.endswith("\\"):
        return f"'{value}'"
    if _BARE_WITH_QUOTES.fullmatch(value):
        return value
    raise UsageError(
        f""".env: {name}: the value cannot be written so that every Docker Compose reads it back""",
        "It has a single quote beside $, # or a backslash, or ends in a backslash.",
        "Choose a value without ' and without a backslash at its end.",
    )


def parse(text: str, path: str = ".env") -> dict[str, str]:
    """Read the file as Compose does; what Compose would change or refuse is an error that names the line."""
    _refuse_other_encodings(text, path)
    values: dict[str, str] = {}
    complaints: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            name, value = _entry(line.strip())
        except ValueError as error:
            complaints.append(f"{path}: line {number}: {error}")
        else:
            values[name] = value
    if complaints:
        raise UsageError("\n".join(complaints), "Docker Compose would read something else.", _RENDER)
    return values


def _refuse_other_encodings(text: str, path: str) -> None:
    if looks_like_utf16(text):
        raise utf16(path)
    found = []
    if text.startswith(("\ufeff", "\xef\xbb\xbf")):
        found.append("a UTF-8 byte order mark before the first name")
    if "\r" in text:
        found.append("Windows line ends (CRLF)")
    if found:
        raise UsageError(
            f"{path}: expected UTF-8 with plain line ends, found {' and '.join(found)}",
            "An editor on Windows saved it so; a shell would take them for part of a name or a value.",
            _RENDER,
        )


def _entry(line: str) -> tuple[str, str]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"expected NAME=value, found {line.split()[0]!r}")
    name, value = match["name"], match["value"]
    if not _NAME.fullmatch(name):
        raise ValueError(f"expected a name of letters, digits and _, found {name!r}")
    return name, _value(name, value)


def _value(name: str, written: str) -> str:
    if written[:1] not in ("'", '"'):
        bare = re.split(r"(?:^|\s)#", written, maxsplit=1)[0].rstrip()
        return _without_dollars(name, bare.replace("$$", "\0"))
    quote = written[0]
    inside = re.match(rf"{quote}((?:[^{quote}\\]|\\.)*){quote}[ \t]*(?:#.*)?$", written)
    if inside is None:
        raise ValueError(f"{name}: expected a closing {quote} at the end of the line")
    if quote == "'":
        return inside[1].replace("\\'", "'")
    literal = re.sub(r"\\(.)", lambda m: "\0" if m[1] == "$" else _ESCAPES.get(m[1], m[0]), inside[1])
    return _without_dollars(name, literal.replace("$$", "\0"))


def _without_dollars(name: str, value: str) -> str:
    """`\\0` stands for a dollar sign that was escaped; one that is left is Compose's to replace."""
    match = re.search(r"\$\{?\w*\}?", value)
    if match:
        raise ValueError(f"{name}: Docker Compose replaces {match[0]} here; put the whole value in single quotes")
    return value.replace("\0", "$")
