"""Golden plans: what a machine with GPUs gets, in words and as data, or how it is refused.

`python -m tests.golden.gpu_plans` rewrites them from the code; look at the diff.
"""

from __future__ import annotations

import json
from pathlib import Path

from control.core.capacity.plan import plan_gpus
from control.core.capacity.refusals import CapacityRefused
from control.core.capacity.report import as_json, explain, refusal_json
from tests.unit.capacity.world import facts, host, settings

HERE = Path(__file__).parent / "plans"
# name -> host of tests/fixtures/hosts, values of `engine` (and weights.model)
CASES: dict[str, tuple[str, dict[str, object]]] = {
    "dgx-h100": ("dgx-h100", {}),
    "dgx-h100-0.33.0": ("dgx-h100", {"release": "0.33.0"}),
    "dgx-h100-0731-drafts": (
        "dgx-h100",
        {"release": "0.32.0", "model": "deepseek-v4-flash-0731", "speculation": True, "preset": "throughput"},
    ),
    "dgx-h100-tp8": ("dgx-h100", {"tensor_parallel": 8, "preset": "latency"}),
    "hgx-h200": ("hgx-h200", {}),
    "h100-x2-refused": ("h100-x2", {}),
    "one-gpu-refused": ("one-gpu", {}),
}


def build(name: str) -> str:
    """The JSON text of one golden plan, from the code of today."""
    machine, engine = CASES[name]
    page: dict[str, object] = {"host": machine, "settings": engine}
    try:
        made = plan_gpus(settings(**dict(engine)), facts(), host(machine))
        page |= {"explain": explain(made), "plan": as_json(made)}
    except CapacityRefused as refused:
        page |= refusal_json(refused)
    return json.dumps(page, indent=1, ensure_ascii=False) + "\n"


def commands() -> dict[str, list[str]]:
    """Rendered commands by the release they are for, for a trial with the engine's own parser."""
    found: dict[str, list[str]] = {}
    for name in CASES:
        plan = json.loads(build(name)).get("plan")
        if plan:
            found[f"{name} ({plan['release']})"] = plan["serve"]["args"]
    return found


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for case in CASES:
        (HERE / f"{case}.json").write_text(build(case), encoding="utf-8")
