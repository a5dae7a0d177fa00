"""Ports for processes under test."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """A port that nobody listens on, below the range that the kernel hands to clients."""
    while True:
        port = random.SystemRandom().randint(12_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        return port
