"""Lines of the service's own log: JSON on stdout, facts of the service only."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress


def say(event: str, **facts: object) -> None:
    """One line. Nobody listening, or a full disk behind stdout, is no reason to stop counting."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
    with suppress(OSError):
        sys.stdout.write(json.dumps({"time": stamp, "log": "budget", "event": event, **facts}) + "\n")
        sys.stdout.flush()
