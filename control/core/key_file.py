"""The file of clients' keys: read with everything that is wrong in it, written as short as it can be.

A digest is never repeated in a complaint: somebody may have pasted the key itself.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields

from control.core import limits, moments, wiring
from control.core.complaints import did_you_mean, found
from control.core.encoding import looks_like_utf16, utf16
from control.core.errors import UsageError
from control.core.model import ApiKey, FormerDigest

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_OWNER_MAX = 128
_MODELS_MAX = 50
_RESTORE = "Restore the file from a backup, or move it away and add the keys again with python ctl.py keys add."
Faults = Iterator[tuple[str, str]]  # (field, words)


# ---- shapes: what JSON may hold in each field


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_former(value: object) -> bool:
    fits = {"digest", "expires"}
    return isinstance(value, list) and all(
        isinstance(one, Mapping) and set(one) == fits and all(map(_is_text, one.values())) for one in value
    )


_SHAPES: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    **dict.fromkeys(("name", "owner", "digest", "created"), ("text", _is_text)),
    "expires": ("text", lambda value: value is None or _is_text(value)),
    "models": ("a list of names", _is_names),
    **dict.fromkeys(limits.OF_A_KEY, ("an integer", _is_count)),
    "former": ("a list of mappings of digest, expires", _is_former),
}
_OPTIONAL = {field.name: field.default for field in fields(ApiKey)[4:]}  # with what they are when they are not there


# ---- writing


def dump(keys: Iterable[ApiKey]) -> str:
    """The text of the file; what is as always is left out."""
    listed = [{name: value for name, value in asdict(key).items() if not _is_as_always(name, value)} for key in keys]
    return json.dumps({"keys": listed}, indent=2, ensure_ascii=False) + "\n"


def _is_as_always(name: str, value: object) -> bool:
    return name in _OPTIONAL and value == _OPTIONAL[name]


# ---- reading


def parse(text: str, path: str = wiring.API_KEYS_FILE) -> tuple[ApiKey, ...]:
    """Read it; raises UsageError with everything that is wrong in it."""
    entries = _entries(text, path)
    keys: list[ApiKey] = []
    wrong: list[str] = []
    for number, entry in enumerate(entries):
        key, complaints = _entry(entry)
        wrong += [f"{path}: keys[{number}]{complaint}" for complaint in complaints]
        if key:
            keys.append(key)
    wrong += [f"{path}: {complaint}" for complaint in _repeated(keys)]
    if wrong:
        raise UsageError("\n".join(wrong), fix=_RESTORE)
    return tuple(keys)


def _entries(text: str, path: str) -> list[object]:
    if looks_like_utf16(text):
        raise utf16(path)
    shape = 'expected {"keys": [...]}'
    if not text.strip():
        raise UsageError(f"{path}: {shape}, found an empty file", fix=_RESTORE)
    try:
        document = json.loads(text.removeprefix("\ufeff"))
    except (json.JSONDecodeError, RecursionError) as error:
        where = f"line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else "nested too deeply"
        raise UsageError(f"{path}: expected JSON, found something else ({where})", fix=_RESTORE) from None
    if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
        raise UsageError(f"{path}: {shape}, found {_shape_of(document)}", fix=_RESTORE)
    entries: list[object] = document["keys"]
    return entries


def _shape_of(document: object) -> str:
    if isinstance(document, dict):
        return f"a mapping of {', '.join(sorted(document)) or 'nothing'}"
    return "a list" if isinstance(document, list) else "a single value"


def _entry(entry: object) -> tuple[ApiKey | None, list[str]]:
    if not isinstance(entry, Mapping):
        return None, [f": expected a mapping of {', '.join(_SHAPES)}, found {_shape_of(entry)}"]
    wrong = [f".{name}: unknown field{did_you_mean(name, _SHAPES)}" for name in entry if name not in _SHAPES]
    for name, (expected, fits) in _SHAPES.items():
        if name not in entry and name not in _OPTIONAL:
            wrong.append(f".{name}: missing")
        elif name in entry and not fits(entry[name]):
            wrong.append(f".{name}: expected {expected}, found {_shape_of(entry[name])}")
    if wrong:
        return None, wrong
    former = tuple(FormerDigest(one["digest"], one["expires"]) for one in entry.get("former", ()))
    key = ApiKey(**{**entry, "models": tuple(entry.get("models", ())), "former": former})
    return key, [f".{field}: {why}" for field, why in faults(key)]


def faults(key: ApiKey) -> Faults:
    """What is wrong with one key."""
    yield from _who(key)
    for field, digest in (("digest", key.digest), *((f"former[{n}].digest", o.digest) for n, o in _numbered(key))):
        if not _DIGEST.fullmatch(digest):
            yield field, f"expected 64 hexadecimal digits, found text of {len(digest)} characters"
    ends = ((f"former[{n}].expires", old.expires) for n, old in _numbered(key))
    for field, moment in (("created", key.created), ("expires", key.expires), *ends):
        if moment is not None and moments.read(moment) is None:
            yield field, f"expected a UTC time such as 2026-01-31T09:00:00Z, found {found(moment)}"
    yield from _rights(key)


def _numbered(key: ApiKey) -> Iterable[tuple[int, FormerDigest]]:
    return enumerate(key.former)


def _who(key: ApiKey) -> Faults:
    if not _NAME.fullmatch(key.name):
        yield "name", f"expected up to 64 letters, digits, dots, - and _, found {found(key.name)}"
    if not key.owner.strip() or len(key.owner) > _OWNER_MAX or not _is_plain(key.owner):
        words = f"expected up to {_OWNER_MAX} printable characters without quotes and backslashes"
        yield "owner", f"{words}, found {found(key.owner)}"


def _is_plain(text: str) -> bool:
    """Owners reach logs and the gateway's key table: no character that needs escaping in any of them."""
    return text.isprintable() and not set(text) & set("\"'`\\<>")


def _rights(key: ApiKey) -> Faults:
    for model in key.models:
        if not _MODEL.fullmatch(model):
            yield "models", f"expected the `model` that clients name, found {found(model)}"
    if len(key.models) > _MODELS_MAX:
        yield "models", f"expected up to {_MODELS_MAX}, found {len(key.models)}"
    for field, most in limits.OF_A_KEY.items():
        value: int | None = getattr(key, field)
        if value is not None and not 0 <= value <= most:
            yield field, f"expected an integer from 0 to {most}, found {value}"


def _repeated(keys: Sequence[ApiKey]) -> Iterator[str]:
    """A name or digest that stands for two keys."""
    names = [(key.name, n) for n, key in enumerate(keys)]
    digests = [(one, n) for n, key in enumerate(keys) for one in (key.digest, *(old.digest for old in key.former))]
    for field, values in (("name", names), ("digest", digests)):
        for value, times in Counter(value for value, _ in values).items():
            if times > 1:
                at = ", ".join(f"keys[{n}]" for n in dict.fromkeys(n for other, n in values if other == value))
                yield f"{at}: the same {field}{f' {value}' if field == 'name' else ''}; keep one"
