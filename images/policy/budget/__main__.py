"""`python -m budget`: the service; `ready` and `state` ask one that runs, `usage [SINCE]` reads its ledger."""

from __future__ import annotations

import importlib
import sys

# What each word starts: a module with `main(words) -> exit code`. Nothing is imported that another part needs.
PARTS = {"serve": "budget.serve", "ready": "budget.ask", "state": "budget.ask", "usage": "budget.report"}


def main() -> int:
    """Start the part that the first argument names."""
    words = sys.argv[1:] or ["serve"]
    if words[0] not in PARTS:
        sys.stderr.write(f"budget: unknown part {words[0]}; known: {', '.join(PARTS)}\n")
        return 64
    code: int = importlib.import_module(PARTS[words[0]]).main(words)
    return code


if __name__ == "__main__":
    sys.exit(main())
