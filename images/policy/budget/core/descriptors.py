"""What the gateway says of a request: headers of its question, and later entries of descriptors, by operation.

Envoy fills them in (filters `flashbox.budget`, `flashbox.refusals` and `flashbox.charge`); it sends

- `check`, before the request goes on, only for keys that have a limit, over HTTP (checks.py);
- `refused`, for a request of a known key that the gateway refused before it asked here; said once, and may get lost;
- `release` and `charge` together in one call, when the request has ended, whatever its end. The call is repeated until
  it is answered, so the same request may be reported more than once.

| entry | in | what it says |
| --- | --- | --- |
| op | all but check | refused, release or charge |
| client | all | the key's name (metadata flashbox.auth:budget for check, flashbox.auth:client else) |
| id | all | the request's id, made by the gateway and never taken from the client |
| boot | check | `name:random` of the gateway's process; a hot restart keeps it, a crash does not |
| path | check, refused, charge | the route, without its query; decides the form of an error |
| key_id | check, refused, charge | first digits of the key's digest |
| reason | refused | the limit, or what is wrong with the key |
| model | charge | the model that was asked for |
| status | charge | status of the answer; 0 if there was none |
| flags | charge | Envoy's response flags; `-` for an answer that ended well |
| total | charge | tokens to charge: flashbox.usage:total; left out, prompt + completion |
| prompt, completion, cached | charge | the same fields of flashbox.usage; cached tokens are a part of prompt |
| estimated | charge | `true` if the engine never said its usage: the figures are the gateway's estimate |

A metadata value may be a number or a string. What is missing is `-` or left out, and counts as nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MOST_TOKENS = 10**12
LONGEST_TEXT = 200
NONE = ("", "-")
NUMBERS = ("status", "prompt", "completion", "cached", "total")


class BadDescriptor(ValueError):
    """A descriptor that says nothing usable."""


@dataclass(frozen=True, slots=True)
class Check:
    """May this request go on?"""

    client: str
    id: str
    path: str
    key_id: str
    gateway: str
    boot: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The gateway has refused this request."""

    client: str
    key_id: str
    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """This request runs no more."""

    client: str
    id: str


@dataclass(frozen=True, slots=True)
class Ended:
    """How a request ended and what it used."""

    client: str
    id: str
    key_id: str
    model: str
    path: str
    status: int
    result: str  # ok, left, cut, refused, failed
    total: int
    prompt: int
    completion: int
    cached: int
    estimated: bool
    flawed: bool = False  # a number could not be read: the gateway's configuration is not as it should be


def check(entries: Mapping[str, str]) -> Check:
    """The entries of a check. Raises BadDescriptor."""
    client, request = _who(entries)
    gateway, _, boot = entries.get("boot", "").partition(":")
    return Check(client, request, _text(entries, "path"), _text(entries, "key_id"), gateway, boot)


def read(entries: Mapping[str, str]) -> Refused | Release | Ended:
    """One descriptor. Raises BadDescriptor."""
    op = entries.get("op")
    client, request = _who(entries)
    if op == "refused":
        return Refused(client, *(_text(entries, name) for name in ("key_id", "path", "reason")))
    if op == "release":
        return Release(client, request)
    if op == "charge":
        return _ended(client, request, entries)
    raise BadDescriptor(f"unknown operation {str(op)[:40]!r}")


def _who(entries: Mapping[str, str]) -> tuple[str, str]:
    client, request = _text(entries, "client"), _text(entries, "id")
    if not client or not request:
        raise BadDescriptor("no client or no id")
    return client, request


def _ended(client: str, request: str, entries: Mapping[str, str]) -> Ended:
    flaws: list[str] = []
    status, prompt, completion, cached, total = (_number(entries, name, flaws) for name in NUMBERS)
    told = entries.get("total", "") not in NONE and "total" not in flaws
    return Ended(
        client=client,
        id=request,
        key_id=_text(entries, "key_id"),
        model=_text(entries, "model"),
        path=_text(entries, "path"),
        status=status,
        result=result_of(status, entries.get("flags", "")),
        total=total if told else prompt + completion,
        prompt=prompt,
        completion=completion,
        cached=min(cached, prompt),
        estimated=entries.get("estimated") == "true",
        flawed=bool(flaws),
    )


def result_of(status: int, flags: str) -> str:
    """One word for the end of a request: ok; left: the client left; cut: broken off; refused: 4xx; failed: 5xx."""
    if status >= 500:
        return "failed"
    if status >= 400:
        return "refused"
    if "DC" in flags.split(","):
        return "left"
    return "ok" if status and flags in NONE else "cut"


def _text(entries: Mapping[str, str], name: str) -> str:
    value = entries.get(name, "")
    return "" if value in NONE else value[:LONGEST_TEXT]


def _number(entries: Mapping[str, str], name: str, flaws: list[str]) -> int:
    """A number as Envoy writes metadata; Lua's numbers may come with a decimal point."""
    value = entries.get(name, "")
    if value in NONE:
        return 0
    try:
        return max(0, min(MOST_TOKENS, int(float(value))))
    except (ValueError, OverflowError):
        flaws.append(name)
        return 0
