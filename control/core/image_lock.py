"""The digests that `images pull` learnt. What a tag stood for then it must stand for later; nobody types a digest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from control.core import strict_yaml
from control.core.complaints import found
from control.core.errors import UsageError

PATH = "config/images.lock.yaml"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HEADER = """\
# Written by `python ctl.py images pull`: the digest that each tag stood for when it was first pulled. Later pulls must
# match. Keep this file in git. `python ctl.py images pull --renew NAME` learns what a tag stands for now.
"""
_FIELDS = ("digest", "learnt", "from")
_FIX = (
    "The file is not for editing: take it from git again, or delete it and let `python ctl.py images pull` learn anew."
)


@dataclass(frozen=True)
class Locked:
    """What was learnt of one tag."""

    digest: str
    learnt: str  # RFC 3339, UTC
    source: str  # the name under which it was pulled, mirror included


def parse(text: str | None, path: str = PATH) -> dict[str, Locked]:
    """Name -> what was learnt; no file is nothing learnt. Raises UsageError with everything that is wrong."""
    document = strict_yaml.read(text or "", path)
    if document.complaints:
        raise UsageError("\n".join(document.complaints), fix=_FIX)
    if document.value is None:
        return {}
    if not isinstance(document.value, Mapping):
        raise UsageError(f"{path}: expected a mapping of images, found {found(document.value)}", fix=_FIX)
    wrong = [f"{path}: {line}" for name, entry in document.value.items() for line in _faults(str(name), entry)]
    if wrong:
        raise UsageError("\n".join(wrong), fix=_FIX)
    return {str(name): Locked(e["digest"], e["learnt"], e["from"]) for name, e in document.value.items()}


def _faults(name: str, entry: object) -> list[str]:
    if not isinstance(entry, Mapping):
        return [f"{name}: expected a mapping of {', '.join(_FIELDS)}, found {found(entry)}"]
    wrong = [f"{name}.{key}: unknown field" for key in entry if key not in _FIELDS]
    for key in _FIELDS:
        value = entry.get(key)
        if not isinstance(value, str):
            wrong.append(f"{name}.{key}: expected text, found {found(value) if key in entry else 'nothing'}")
        elif key == "digest" and not DIGEST.fullmatch(value):
            wrong.append(f"{name}.digest: expected sha256: and 64 hexadecimal digits, found {found(value)}")
    return wrong


def dump(locked: Mapping[str, Locked]) -> str:
    """The text of the file."""
    entries = {
        name: {"digest": entry.digest, "learnt": entry.learnt, "from": entry.source}
        for name, entry in sorted(locked.items())
    }
    return _HEADER + yaml.safe_dump(entries, sort_keys=False, width=160)
