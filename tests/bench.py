"""`make bench`: CPU time of the commands that people wait for, and what the gateway adds to a request.

Prints a Markdown table with the machine, so that a result can be pasted into docs/operations.md.
Ratios are of one run; on a shared machine only they and the medians mean something.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import requests

from tests.integration.stack import ROOT, Stack, docker, new_stack

COMMANDS = (
    ("ctl.py --help", ("--help",), 0.5),
    ("ctl.py plan", ("plan", "--set", "engine.kind=stub"), None),
    ("ctl.py render --check", ("render", "--check", "--set", "engine.kind=stub"), 1.0),
)
ROUNDS = 9


def cpu_s(root: str, *args: str) -> float:
    """User and system time of one command with all it starts, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "ctl.py", *args], cwd=root, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def median_of(measure: Callable[[], float], rounds: int) -> float:
    return statistics.median(measure() for _ in range(rounds))


def commands(stack: Stack) -> list[str]:
    rows = ["| command | CPU s, median of 9 | goal |", "|---|---|---|"]
    for name, args, goal in COMMANDS:
        seconds = median_of(lambda args=args: cpu_s(str(stack.root), *args), ROUNDS)  # type: ignore[misc]
        rows.append(f"| `{name}` | {seconds:.2f} | {goal or ''} |")
    return rows


def gateway(stack: Stack) -> list[str]:
    """One request after the other, through the gateway and inside the replica's own container."""
    target = stack.target()
    session = requests.Session()

    def through() -> float:
        begin = time.perf_counter()
        session.get(f"{target.url}/models", headers=target.headers, timeout=10).raise_for_status()
        return time.perf_counter() - begin

    address = docker(
        "inspect", "--format", f'{{{{(index .NetworkSettings.Networks "{stack.project}_engine").IPAddress}}}}',
        stack.container("engine-0"),
    )  # fmt: skip
    key = (stack.root / "secrets/upstream_key").read_text().strip()
    direct_session = requests.Session()

    def direct() -> float:
        begin = time.perf_counter()
        headers = {"authorization": f"Bearer {key}"}
        direct_session.get(f"http://{address}:8000/v1/models", headers=headers, timeout=10).raise_for_status()
        return time.perf_counter() - begin

    rounds = [(direct(), through()) for _ in range(400)][50:]
    one, two = (statistics.median(column) * 1000 for column in zip(*rounds, strict=True))
    return [
        "| GET /v1/models, one connection, median ms | direct | through the gateway | ratio |",
        "|---|---|---|---|",
        f"| {len(rounds)} rounds, alternating | {one:.2f} | {two:.2f} | {two / one:.2f} |",
    ]


def main() -> None:
    with new_stack("bench") as stack:
        stack.settings(engine__drain_s=5, gateway__drain_s=5)
        begin = time.monotonic()
        stack.up()
        up_s = time.monotonic() - begin
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        system = f"{platform.machine()}, Linux {platform.release()}, Python {platform.python_version()}"
        machine = f"{os.cpu_count()} cores, {system}"
        print(f"`make bench`, {time.strftime('%Y-%m-%d')}, commit {commit.stdout.strip()}, {machine}\n")
        print("\n".join(commands(stack)), "\n")
        print("\n".join(gateway(stack)), "\n")
        print(f"`up` with images present: {up_s:.1f} s. {json.dumps({'replicas': 2, 'kind': 'stub'})}")


if __name__ == "__main__":
    main()
