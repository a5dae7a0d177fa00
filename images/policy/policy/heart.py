"""Signs of life between a worker and the supervisor: a line in a pipe for as long as the worker's loop turns."""

from __future__ import annotations

import os
from collections.abc import Mapping

HANDLE = "POLICY_HEARTBEAT"


class Heart:
    """The worker's end."""

    EVERY_S = 0.5

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._pipe = int(environ[HANDLE]) if environ.get(HANDLE) else None
        self.state = "waiting for rules"
        if self._pipe is not None:
            os.set_blocking(self._pipe, False)

    def beat(self) -> None:
        """Say the state; BrokenPipeError when nobody listens any more. A full pipe is no matter."""
        if self._pipe is None:
            return
        try:
            os.write(self._pipe, f"{self.state}\n".encode())
        except BlockingIOError:
            return
