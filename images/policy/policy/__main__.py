"""`python -m policy`: the supervisor; `worker PORT`, `judge SOCKET` and `ready` are its other parts."""

from __future__ import annotations

import importlib
import sys

# What each word starts: a module with `main(arguments) -> exit code`. Nothing is imported that another part needs.
PARTS = {"supervise": "policy.supervisor", "worker": "policy.worker", "judge": "policy.judge_process"}
PARTS["ready"] = "policy.ready"


def main() -> int:
    """Start the part that the first argument names."""
    word, *rest = sys.argv[1:] or ["supervise"]
    if word not in PARTS:
        sys.stderr.write(f"policy: unknown part {word}; known: {', '.join(PARTS)}\n")
        return 64
    code: int = importlib.import_module(PARTS[word]).main(rest)
    return code


if __name__ == "__main__":
    sys.exit(main())
