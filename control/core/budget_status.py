"""How the budget service and its check are: what each key has left, and whether requests pass unchecked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from control.core import wiring

Json = dict[str, object]
# Envoy counts by the cluster that the request would go to, whichever filter asks.
_UNCHECKED = re.compile(r"cluster[.].*[.](ext_authz|ratelimit)[.]budget[.]failure_mode_allowed")
# Of Envoy: checks that nobody answered, ends that had to be told again or were given up, faults of the usage filter.
STATS = (
    f"{_UNCHECKED.pattern}$|"
    f"cluster[.]{wiring.BUDGET_DONE_CLUSTER}[.]upstream_rq_retry(_limit_exceeded)?$|lua[.]usage[.]errors$"
)
SHOWN = 12  # digits of a version


@dataclass(frozen=True)
class Seen:
    """What was asked, at one moment; of the counters the newest."""

    container: str | None  # running, exited, ...; None: there is none
    page: str | None  # what the service says of itself
    published: str | None  # version of the limits that are rendered
    hosts: Sequence[Mapping[str, object]]  # members of Envoy's clusters
    stats: Mapping[str, int]
    grown: int = 0  # requests that passed unchecked while we looked

    @property
    def said(self) -> Mapping[str, Any] | None:
        return read(self.page)


def read(page: str | None) -> Mapping[str, Any] | None:
    """The service's own words; None for none, and for what is no answer of it."""
    try:
        found = json.loads(page or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) and "serving" in found else None


def unchecked(stats: Mapping[str, int]) -> int:
    """Requests that passed because nobody answered the check in time, since Envoy started."""
    return sum(value for name, value in stats.items() if _UNCHECKED.fullmatch(name))


def fails_open(seen: Seen) -> list[str]:
    """Why requests pass without a check now; none: they are checked."""
    return [*_service(seen), *_gateway(seen)]


def _service(seen: Seen) -> Iterator[str]:
    if seen.container != "running":
        yield f"its container {'does not exist' if seen.container is None else f'is {seen.container}'}"
    elif seen.said is None:
        yield "the service does not answer"
    elif not seen.said["serving"]:
        yield "the service starts or ends"


def _gateway(seen: Seen) -> Iterator[str]:
    for host in seen.hosts:
        if host["cluster"] == wiring.BUDGET_CLUSTER and host.get("health", "healthy") != "healthy":
            yield f"Envoy does not ask it ({host['health']})"
    if seen.grown:
        yield f"{seen.grown} requests passed unchecked while this looked: no answer within the check's time"


def troubles(seen: Seen) -> list[str]:
    """What is wrong beside that, and what it leads to."""
    return [*_of_counts(seen.said), *of_ledger(seen.said), *_troubles_of_envoy(seen.stats)]


def _of_counts(said: Mapping[str, Any] | None) -> Iterator[str]:
    journal, limits = ((said or {}).get(name) or {} for name in ("journal", "limits"))
    if journal.get("error"):
        yield f"the journal cannot be written, a restart of the service forgets what keys used: {journal['error']}"
    if limits.get("error"):
        yield f"limits.json cannot be used, the last good limits hold: {limits['error']}"


def of_ledger(said: Mapping[str, Any] | None) -> Iterator[str]:
    """What its sums lack."""
    ledger = (said or {}).get("ledger") or {}
    if ledger.get("error"):
        yield f"the ledger cannot be written, {ledger.get('waiting', 0)} lines wait in memory: {ledger['error']}"
    if ledger.get("lost"):
        yield f"{ledger['lost']} lines of the ledger were given up: `ctl.py usage` lacks them"


def _troubles_of_envoy(stats: Mapping[str, int]) -> Iterator[str]:
    lost = stats.get(f"cluster.{wiring.BUDGET_DONE_CLUSTER}.upstream_rq_retry_limit_exceeded", 0)
    if lost:
        yield f"at least {lost} requests ended and were never charged: the service was away for too long"
    faults = sum(value for name, value in stats.items() if name.endswith(".lua.usage.errors"))
    if faults:
        yield f"the usage filter failed {faults} times: those answers are charged by an estimate"


def limits(seen: Seen) -> Json:
    """Which limits the service goes by, and whether they are the rendered ones; None where that is not known."""
    held = ((seen.said or {}).get("limits") or {}).get("version") or None
    published = seen.published and seen.published[:SHOWN]
    known = held is not None and published is not None
    return {
        "version": held and str(held)[:SHOWN],
        "published": published,
        "applied": str(held) == str(seen.published)[: len(str(held))] if known else None,
    }


def keys(said: Mapping[str, Any] | None) -> list[Json]:
    """Each key that is limited by name, owes something or runs something."""
    return [_key(one) for one in (said or {}).get("keys") or ()]


def _key(one: Mapping[str, Any]) -> Json:
    tpm = int(one["tpm"])
    return {
        "key": one["key"],
        "tokens_per_minute": tpm,
        "tokens_left": one["balance"] if tpm else None,  # below zero: debt
        "refill_per_s": round(tpm / 60, 3) if tpm else None,
        "wait_s": one["wait_s"],
        "streams": one["leases"],
        "streams_limit": one["streams"],
    }


def data(seen: Seen) -> Json:
    """For --json."""
    return {
        "answers": seen.said is not None,
        "fails_open": fails_open(seen),
        "troubles": troubles(seen),
        "unchecked": unchecked(seen.stats),
        "repeated_ends": seen.stats.get(f"cluster.{wiring.BUDGET_DONE_CLUSTER}.upstream_rq_retry", 0),
        "limits": limits(seen),
        "keys": keys(seen.said),
    }


# ---- for people

COLUMNS = ("key", "tokens/min", "left", "refill/s", "may ask", "streams", "of")


def lines(of: Mapping[str, Any]) -> Iterator[str]:
    """What `data` found, in sentences."""
    held = of["limits"]
    if of["fails_open"]:
        yield "budget check FAILS OPEN, requests pass unchecked and are charged afterwards: " + "; ".join(
            of["fails_open"]
        )
    else:
        ever = f"; {of['unchecked']} requests passed unchecked since Envoy started" if of["unchecked"] else ""
        yield f"budget check: answers{ever}"
    if held["applied"] is False:
        yield f"budget service: goes by limits {held['version']}, rendered are {held['published']}: not applied yet"
    elif held["applied"]:
        yield f"budget service: goes by the rendered limits ({held['version']})"
    yield from (f"budget service: {trouble}" for trouble in of["troubles"])


def row(key: Mapping[str, Any]) -> tuple[str, ...]:
    """One of `keys` under COLUMNS."""
    return (key["key"], *_tokens(key), *_streams(key))


def _tokens(key: Mapping[str, Any]) -> tuple[str, str, str, str]:
    if not key["tokens_per_minute"]:
        return "no limit", "", "", _may_ask(key)
    left = key["tokens_left"]
    owed = f"owes {-left:,}" if left < 0 else f"{left:,}"
    return f"{key['tokens_per_minute']:,}", owed, f"{key['refill_per_s']:g}", _may_ask(key)


def _may_ask(key: Mapping[str, Any]) -> str:
    if key["wait_s"]:
        return f"in {key['wait_s']:.1f} s"
    full = key["streams_limit"] and key["streams"] >= key["streams_limit"]
    return "when one ends" if full else "now"


def _streams(key: Mapping[str, Any]) -> tuple[str, str]:
    return str(key["streams"]), str(key["streams_limit"] or "no limit")
