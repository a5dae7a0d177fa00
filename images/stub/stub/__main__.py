"""`python -m stub`: settings from the environment, then serve."""

from __future__ import annotations

import os
import sys

import uvloop

from stub.server import CannotListen, Process
from stub.settings import BadSetting, Settings, from_environment


async def _run(settings: Settings) -> None:
    await Process(settings).run()


def main() -> int:
    """Serve; 0 when it was stopped, 1 without an address, 2 for a setting that is wrong."""
    try:
        settings = from_environment(os.environ, sys.argv[1:])
    except BadSetting as error:
        print(f"stub: {error}", file=sys.stderr)
        return 2
    try:
        uvloop.run(_run(settings))
    except CannotListen as error:
        print(f"stub: {error}", file=sys.stderr)
        return 1
    return 0


sys.exit(main())
