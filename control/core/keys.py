"""Clients' API keys. The key is shown once; what is kept is its digest, name, owner, dates and rights."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from control.core import limits, moments
from control.core.complaints import did_you_mean, found
from control.core.errors import UsageError
from control.core.key_file import faults
from control.core.model import ApiKey, FormerDigest

RANDOM_BYTES = 32  # 256 bits: a plain digest suffices, there is nothing to guess
PREFIX = "fb-"
POLICYS = "default"  # the word that gives a limit back to the policy
# Options of `keys limits` -> the field.
OPTIONS: Mapping[str, str] = {
    "rps": "requests_per_second",
    "rpm": "requests_per_minute",
    "tpm": "tpm",
    "streams": "streams",
}
_DIGITS = 20  # Python refuses to read numbers of thousands of them


@dataclass(frozen=True)
class Rights:
    """What a new key may do, and until when."""

    expires: str | None = None
    models: tuple[str, ...] = ()


EVERYTHING = Rights()


def new_key(random_bytes: bytes) -> str:
    """The key a client sends, from bytes that the caller drew."""
    if len(random_bytes) != RANDOM_BYTES:
        raise ValueError(f"expected {RANDOM_BYTES} random bytes, got {len(random_bytes)}")
    return PREFIX + base64.urlsafe_b64encode(random_bytes).rstrip(b"=").decode("ascii")


def digest(key: str) -> str:
    """SHA-256 in hex, as the gateway computes it of what a client sent."""
    return hashlib.sha256(key.encode("utf-8")).hexdigest()


def add(
    keys: Sequence[ApiKey], name: str, owner: str, key: str, created: str, rights: Rights = EVERYTHING
) -> tuple[ApiKey, ...]:
    """The keys with one more."""
    new = _right(ApiKey(name, owner, digest(key), created, rights.expires, tuple(dict.fromkeys(rights.models))))
    taken = next((other for other in keys if other.name == name), None)
    if taken:
        raise UsageError(
            f"name: a key named {name} exists (owner {taken.owner}, created {taken.created})",
            fix=f"Choose another name, or revoke it first: python ctl.py keys revoke {name}",
        )
    return (*keys, new)


def revoke(keys: Sequence[ApiKey], name: str) -> tuple[ApiKey, ...]:
    """The keys without one."""
    _named(keys, name)
    return tuple(key for key in keys if key.name != name)


def limit(keys: Sequence[ApiKey], name: str, changed: Mapping[str, int | None]) -> tuple[ApiKey, ...]:
    """The keys, one of them with limits of its own; None: the policy's."""
    return _with(keys, _right(replace(_named(keys, name), **changed)))  # type: ignore[arg-type]


def rotate(keys: Sequence[ApiKey], name: str, key: str, now: datetime, keep: timedelta) -> tuple[ApiKey, ...]:
    """The keys, one of them with a new digest; the old one counts for `keep` more, but never longer than it had."""
    old, moment = _named(keys, name), moments.text(now)
    if is_over(old.expires, now):
        raise UsageError(
            f"{name}: this key expired at {old.expires}, and a new one would have expired as well",
            fix=f"python ctl.py keys revoke {name}, then python ctl.py keys add {name} --owner ...",
        )
    ends = moments.text(now + keep)
    former = [one for one in old.former if not is_over(one.expires, now)] if keep else []
    former += [FormerDigest(old.digest, min(ends, old.expires or ends))] if keep else []
    return _with(keys, replace(old, digest=digest(key), created=moment, former=tuple(former)))


def is_over(expires: str | None, now: datetime) -> bool:
    """Whether a key that ends then has ended; times of this form sort as text."""
    return expires is not None and expires <= moments.text(now)


def limit_of(words: str, option: str, most: int = limits.MOST) -> int | None:
    """A limit as it is typed: a number, 0 for none, `default` for the policy's."""
    if words == POLICYS:
        return None
    if not words.isascii() or not words.isdigit() or len(words) > _DIGITS or int(words) > most:
        expected = f"expected a number from 1 to {most}, 0 for no limit, or {POLICYS} for the policy's"
        raise UsageError(f"{option}: {expected}, found {found(words)}")
    return int(words)


def limits_of(typed: Mapping[str, str | None]) -> dict[str, int | None]:
    """Fields of a key from options as they were typed (see OPTIONS); those that are None were not."""
    changed = {
        OPTIONS[option]: limit_of(words, f"--{option}", limits.OF_A_KEY[OPTIONS[option]])
        for option, words in typed.items()
        if words is not None
    }
    if not changed:
        options = " or ".join(f"--{option} N" for option in OPTIONS)
        raise UsageError(f"expected {options}, found none", fix="0 is no limit, default the policy's.")
    return changed


def require_served(models: Collection[str], served: Collection[str]) -> None:
    """Refuse a key for a model that this stack does not have: it could ask nothing."""
    strange = [name for name in models if name not in served]
    if strange:
        lines = (f"--model {name}: not served here{did_you_mean(name, served)}" for name in strange)
        raise UsageError("\n".join(lines), fix=f"Served: {', '.join(served)} (engine.served_model_name).")


def _named(keys: Sequence[ApiKey], name: str) -> ApiKey:
    names = {key.name: key for key in keys}
    if name not in names:
        raise UsageError(
            f"{name}: no key has this name{did_you_mean(name, names)}",
            fix="python ctl.py keys list shows the names.",
        )
    return names[name]


def _with(keys: Sequence[ApiKey], changed: ApiKey) -> tuple[ApiKey, ...]:
    return tuple(changed if key.name == changed.name else key for key in keys)


def _right(key: ApiKey) -> ApiKey:
    wrong = [f"{field}: {why}" for field, why in faults(key)]
    if wrong:
        raise UsageError("\n".join(wrong))
    return key
