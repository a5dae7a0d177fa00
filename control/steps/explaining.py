"""What `explain` needs of this clone: every entry, the policies, and what holds here."""

from __future__ import annotations

from control.context import Control
from control.core import explain, explain_policy, explain_refusals, policies
from control.core.errors import FlashboxError
from control.core.planning import plan_capacity

ENTRIES = (*explain_policy.ENTRIES, *explain_refusals.ENTRIES, *explain.of_checks())


def explained(control: Control, wanted: str) -> explain.Explanation:
    """One entry with its values on this host."""
    entry = explain.find(ENTRIES, wanted)
    if entry.in_force is None:
        return explain.Explanation(entry)
    sources = control.workspace.sources()
    return explain.explained(entry, explain.Here(policies.every(sources), control.resolved, _in_force(control)))


def _in_force(control: Control) -> policies.Governance | None:
    """None where nothing can be planned: then the policy's own value is told."""
    chosen = policies.chosen(control.settings, control.workspace.sources())
    try:
        return policies.govern(control.settings, plan_capacity(control.settings, control.host, control.facts), chosen)
    except FlashboxError:
        return None
