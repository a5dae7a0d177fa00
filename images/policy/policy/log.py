"""Lines of the service's own log: JSON, facts of the service only. What a body holds never gets here."""

from __future__ import annotations

import json
import sys
import time
import traceback


def say(event: str, **facts: object) -> None:
    """One line on stdout."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
    sys.stdout.write(json.dumps({"time": stamp, "log": "policy", "event": event, **facts}) + "\n")
    sys.stdout.flush()


def place_of(error: BaseException) -> str:
    """Where an error came up. Its text is left out: it may repeat what a client sent."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    return f"{last.filename.rpartition('/')[2]}:{last.lineno}" if last else "?"
