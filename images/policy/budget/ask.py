"""`python -m budget ready | state`: what the running service says; for health checks and the control program."""

from __future__ import annotations

import http.client
import os
import sys

from budget.config import Config

LONGEST_S = 10.0


def main(arguments: list[str]) -> int:
    """Ask, print the answer, exit 0 if it is one."""
    connection = http.client.HTTPConnection("127.0.0.1", Config.read(os.environ).metrics_port, timeout=LONGEST_S)
    try:
        connection.request("GET", f"/{arguments[0]}")
        answer = connection.getresponse()
        sys.stdout.write(answer.read().decode())
        return 0 if answer.status == 200 else 1
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"no answer: {error}\n")
        return 1
    finally:
        connection.close()
