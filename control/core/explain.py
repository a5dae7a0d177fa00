"""`explain ID`: what refuses, how the client sees it, why, and how to change it. Entries are data in other modules."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from control.core import checks
from control.core.complaints import did_you_mean
from control.core.errors import UsageError
from control.core.layers import DEFAULT, Resolved
from control.core.policies import FOLDER, Governance, Policy

_WIDTH, _INDENT = 110, 10  # of a line, of its text
POLICY_SETTING = "gateway.policy"
_CODE = re.compile(r"\bcode (\w+)")


@dataclass(frozen=True)
class Entry:
    """One rule or check; the title is the sentence that holds when nothing is refused."""

    id: str
    title: str
    why: str
    change: str
    refuses: str = ""
    answer: str = ""  # what the client, or the operator, sees
    settings: tuple[str, ...] = ()  # that are stronger than the policy
    of_policy: Callable[[Policy], str] | None = None  # the value that a policy's file gives
    in_force: Callable[[Governance], str] | None = None  # what holds here


@dataclass(frozen=True)
class Here:
    """This deployment; `rules` is None where nothing can be planned."""

    policies: Mapping[str, Policy]
    resolved: Resolved
    rules: Governance | None


@dataclass(frozen=True)
class Explanation:
    """An entry with the values of the policies and of this deployment."""

    entry: Entry
    policies: Mapping[str, str] = field(default_factory=dict)
    value: str = ""
    origin: str = ""

    def as_data(self) -> dict[str, object]:
        """For --json."""
        entry = self.entry
        words = {"id": entry.id, "title": entry.title, "refuses": entry.refuses, "answer": entry.answer}
        values = {"policies": dict(self.policies), "value": self.value, "origin": self.origin}
        return {**words, "why": entry.why, **values, "change": entry.change, "settings": list(entry.settings)}

    def lines(self) -> list[str]:
        """For people: a label and its text a line; what is empty is left out."""
        entry = self.entry
        rows = [("refuses", entry.refuses), ("answer", entry.answer), ("why", entry.why), *self.policies.items()]
        rows += [("in force", f"{self.value} (from {self.origin})" if self.value else ""), ("change", entry.change)]
        told = (
            textwrap.fill(
                text,
                _WIDTH,
                initial_indent=f"{label:<{_INDENT}}",
                subsequent_indent=" " * _INDENT,
                break_long_words=False,
                break_on_hyphens=False,
            )
            for label, text in rows
            if text
        )
        return [f"{entry.id}: {entry.title}", "", *told]


def of_checks() -> tuple[Entry, ...]:
    """The checks of `doctor`, which `up` makes as well."""
    seen = {"fatal": "`up` stops before it touches anything (exit code 3).", "warning": "`up` says so and goes on."}
    return tuple(
        Entry(check.id, check.title, check.why, check.fix, answer=seen[check.severity]) for check in checks.CHECKS
    )


def find(entries: Sequence[Entry], wanted: str) -> Entry:
    """The entry of this id, or the only one whose answer carries it as its code."""
    known = {entry.id: entry for entry in entries}
    if wanted in known:
        return known[wanted]
    coded = [entry.id for entry in entries if wanted in _CODE.findall(entry.answer)]
    if len(coded) == 1:
        return known[coded[0]]
    short = coded or [name for name in known if name.rpartition(".")[2] == wanted]
    hint = f" (did you mean {' or '.join(short)}?)" if short else did_you_mean(wanted, known)
    raise UsageError(f"{wanted}: nothing has this id{hint}", fix="python ctl.py explain lists all.")


def explained(entry: Entry, here: Here) -> Explanation:
    """The entry with its values here."""
    if entry.in_force is None:
        return Explanation(entry)
    values = {name: entry.of_policy(policy) for name, policy in here.policies.items()} if entry.of_policy else {}
    chosen = here.resolved.settings.gateway.policy
    value = entry.in_force(here.rules) if here.rules else values.get(chosen, "")
    return Explanation(entry, values, value, _origin(entry, here.resolved))


def _origin(entry: Entry, resolved: Resolved) -> str:
    """The nearest word that somebody said: a setting of the rule's own, or the policy, and who chose it."""
    own = [(path, resolved.origins[path]) for path in entry.settings if resolved.origins[path] != DEFAULT]
    if own:
        return "; ".join(f"{path}, {origin}" for path, origin in own)
    if entry.of_policy is None:
        return "; ".join(f"{path}, {resolved.origins[path]}" for path in entry.settings)
    chosen = resolved.settings.gateway.policy
    return f"{FOLDER}/{chosen}.yaml; {POLICY_SETTING}, {resolved.origins[POLICY_SETTING]}"
