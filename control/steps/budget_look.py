"""How the budget service and Envoy's check of budgets are now, as data."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from control.context import Control
from control.core import budget_status, gateway_changes
from control.core import gateway_status as status
from control.core.budget_limits import LIMITS_PATH
from control.core.budget_status import Json, Seen
from control.core.model import Rendering
from control.steps import budget_live, gateway_live

LOOK_AGAIN_S = 1.0


def look(control: Control, published: Rendering, hosts: Sequence[Json], counts: Mapping[str, int]) -> Json:
    """Ask the service; `hosts` and `counts` are what Envoy has just said. A counter that has counted is asked twice."""
    text = published.get(LIMITS_PATH)
    wanted = gateway_changes.version_of(text) if text else None
    grown = 0
    if budget_status.unchecked(counts):
        time.sleep(LOOK_AGAIN_S)
        now = status.numbers(gateway_live.run(control, "ask", status.STATS_PATH) or "")
        grown = max(0, budget_status.unchecked(now) - budget_status.unchecked(counts))
        counts = {**counts, **now}
    container, page = budget_live.container(control), budget_live.state(control)
    return budget_status.data(Seen(container, page, wanted, hosts, counts, grown))
