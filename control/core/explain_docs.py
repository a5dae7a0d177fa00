"""docs/policies.md: the three policies beside each other, and every rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from control.core.explain import Entry
from control.core.policies import FOLDER, Policy

PATH = "docs/policies.md"
_HEAD = f"""\
# Policies

Generated from `control/core/explain_policy.py` and `{FOLDER}/` by `make docs`: edit those, not this.

`gateway.policy` chooses one; single values are overridden by settings (docs/settings.md), so that a policy's file may
be replaced by an update. `python ctl.py explain policy.NAME` says what holds on this host and where it comes from.
`gateway.mode: observe` counts and logs what would be refused, and lets it pass.
"""


def markdown(policies: Mapping[str, Policy], rules: Sequence[Entry], others: Sequence[Entry]) -> str:
    """The page: a table, a section for each rule, and the refusals that no policy decides."""
    names = list(policies)
    lines = [_HEAD, *(f"- `{name}`: {policy.about}" for name, policy in policies.items())]
    lines += ["", f"| rule | {' | '.join(names)} |", f"| --- |{' --- |' * len(names)}"]
    lines += [_row(rule, policies) for rule in rules if rule.of_policy]
    lines += [line for rule in rules for line in _section(rule)]
    lines += ["", "## Refusals that no policy decides"]
    lines += [line for other in others for line in _section(other, "###")]
    return "\n".join(lines) + "\n"


def _row(rule: Entry, policies: Mapping[str, Policy]) -> str:
    values = [rule.of_policy(policy) for policy in policies.values()] if rule.of_policy else []
    return f"| `{rule.id}` | {' | '.join(values)} |"


def _section(entry: Entry, level: str = "##") -> list[str]:
    told = (("Refuses", entry.refuses), ("Answer", entry.answer), ("Why", entry.why), ("Change", entry.change))
    return ["", f"{level} {entry.id}", "", f"{entry.title}.", *(f"\n{label}: {text}" for label, text in told if text)]
