"""`python -m policy ready`: exit 0 while a worker serves; the container's health check."""

from __future__ import annotations

import http.client
import os
import sys

from policy.config import Config

LONGEST_S = 3.0


def main(arguments: list[str]) -> int:
    """Ask the supervisor."""
    connection = http.client.HTTPConnection("127.0.0.1", Config.read(os.environ).metrics_port, timeout=LONGEST_S)
    try:
        connection.request("GET", "/ready")
        answer = connection.getresponse()
        sys.stdout.write(answer.read().decode())
        return 0 if answer.status == 200 else 1
    except (OSError, http.client.HTTPException) as error:
        sys.stdout.write(f"no answer: {error}\n")
        return 1
    finally:
        connection.close()
