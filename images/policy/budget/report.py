"""`python -m budget usage [SINCE]`: sums of every day from SINCE on (UTC, 2026-11-01), one JSON line each.

Read from the files, so that a long answer takes no time from the service, and there is one without a service too.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout

from budget.config import Config
from budget.usage_files import DAY, UsageFiles


def main(arguments: list[str]) -> int:
    """Print the sums; exit 2 for a day that is none."""
    first = arguments[1] if len(arguments) > 1 else ""
    if first and not DAY.fullmatch(first):
        sys.stderr.write(f"expected a day such as 2026-11-01, found {first}\n")
        return 2
    folder, out = Config.read(os.environ).state / "usage", sys.stdout
    with redirect_stdout(sys.stderr):  # whatever is said of files that cannot be read is no part of the answer
        for day in UsageFiles(folder, 0, 0, 0).since(first):
            out.write(day.dump().decode())
    return 0
