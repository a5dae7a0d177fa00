"""Asks the gateway that runs: PID 1, Envoy and the policy service; and tells it to restart hot."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any

from control.context import Control
from control.core import envoy_versions, wiring
from control.core.envoy_versions import Held
from control.core.errors import FlashboxError
from control.steps import budget_live
from control.steps.ready import GATEWAY, POLICY

LOOK_EVERY_S = 0.1
START_S = 150.0  # the gateway's own limits for judging and starting are 60 s each
SAY_EVERY_S = 10.0
FETCH = "import sys, urllib.request as r; sys.stdout.write(r.urlopen(sys.argv[1], timeout=5).read().decode())"
POLICY_METRICS = f"http://127.0.0.1:{wiring.POLICY_METRICS_PORT}/metrics"
_RULES = re.compile(r'^\w*rules_loaded\{[^}]*version="([^"]+)"[^}]*\} ([0-9.e+]+)', re.MULTILINE)
State = Mapping[str, Any]


def run(control: Control, *words: str) -> str | None:
    """What entry.py prints beside the one that runs; None if it cannot be asked."""
    return control.dockerd.run_in(GATEWAY, ("python3", wiring.GATEWAY_ENTRY, *words))


def state(control: Control) -> State | None:
    """What PID 1 says of its processes; None if none runs, or one of an image that cannot restart hot."""
    try:
        found = json.loads(run(control, "state") or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def require_state(control: Control) -> State:
    found = state(control)
    if found is None:
        raise FlashboxError(
            "the gateway cannot be asked",
            "its container does not run, or is of an older image",
            "python ctl.py up; then run this again",
        )
    return found


def held(control: Control) -> dict[str, Held]:
    """The versions that Envoy goes by."""
    return envoy_versions.in_force(run(control, "ask", envoy_versions.STATS_PATH) or "")


def policy_page(control: Control) -> str | None:
    """The metrics of the policy service; None if it cannot be asked."""
    return control.dockerd.run_in(POLICY, ("python3", "-c", FETCH, POLICY_METRICS))


def versions_on(page: str) -> set[str]:
    """Versions of the rules that workers of the policy service go by."""
    return {version for version, count in _RULES.findall(page) if float(count) > 0}


def rules_versions(control: Control) -> set[str] | None:
    page = policy_page(control)
    return None if page is None else versions_on(page)


def limits_versions(control: Control) -> set[str] | None:
    """The version of the limits that the budget service goes by; None if it cannot be asked."""
    try:
        found = json.loads(budget_live.state(control) or "")
        return {str(found["limits"]["version"])}
    except (ValueError, LookupError, TypeError):
        return None


def holding(found: State) -> int | None:
    """Streams of the Envoy before the newest; 0 when there is none, None when that is not known."""
    previous = found.get("previous")
    return 0 if not previous else previous.get("requests")


def await_single(control: Control, wait: bool) -> State:
    """Return once no Envoy of an earlier restart holds a stream; without `wait`, refuse if one does."""
    begun, said = time.monotonic(), 0.0
    while (left := holding(found := require_state(control))) != 0:
        many = "an unknown number of" if left is None else str(left)
        if not wait:
            raise FlashboxError(
                f"the previous Envoy still holds {many} streams",
                "hot restarts are one at a time: a third Envoy would cut the streams of the first",
                "python ctl.py gateway apply --wait, or later",
            )
        if time.monotonic() - begun >= said:
            control.console.say("wait", f"the previous Envoy still holds {many} streams")
            said += SAY_EVERY_S
        time.sleep(LOOK_EVERY_S * 5)
    return found


def restart_hot(control: Control) -> State:
    """Have the gateway start a new Envoy and hand over; raise with its reason if it does not."""
    before = require_state(control)
    control.dockerd.signal(GATEWAY, "SIGHUP")
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        now = require_state(control)
        if now["refusals"] > before["refusals"]:
            raise FlashboxError("the gateway did not restart hot", str(now["refusal"]["reason"]), _LOGS)
        if now["epoch"] > before["epoch"] and now["phase"] == "serving":
            return now
        time.sleep(LOOK_EVERY_S)
    raise FlashboxError("the gateway did not restart hot", f"no answer after {START_S:.0f} s", _LOGS)


_LOGS = "python ctl.py logs gateway"


def last_complaint(control: Control) -> str:
    """Envoy's own words about the last file that it refused."""
    for line in reversed(control.dockerd.last_lines(GATEWAY, 60).splitlines()):
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if said.get("log") == "envoy" and said.get("level") in ("warning", "error") and said.get("part") == "config":
            return " ".join(str(said.get("message", "")).split())[:600]
    return "its log gives no reason"
