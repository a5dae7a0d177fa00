"""How much memory the policy service gets: what it needs at rest, and room for bodies of the size that is let in.

The service divides it again by the same sum (images/policy/policy/config.py); a contract test holds the two together.
"""

from __future__ import annotations

import math

_MIB = 1_048_576
AT_REST_MIB = 448  # supervisor, workers and judges; measured: images/policy/README.md
SMALL_MIB = 64  # bodies below 1 MiB, of each worker
JUDGE_FACTOR = 7  # what judging the largest body may take, in bodies; one judgement at a time
LEAST_UNIT_MIB = 64  # room for large bodies, however small the limit of the policy


def memory_mib(max_body_bytes: int, workers: int) -> int:
    """The container's memory limit for a largest body; each worker can hold one of these."""
    unit = max(LEAST_UNIT_MIB, math.ceil(max_body_bytes / _MIB))
    return AT_REST_MIB + workers * SMALL_MIB + (workers + JUDGE_FACTOR) * unit
