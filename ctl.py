#!/usr/bin/env python3
"""The door to flashbox: `python ctl.py --help`. Without its packages it goes on in .venv, if that is there."""

import os
import sys
from importlib.util import find_spec

NEEDED = ("click", "docker", "envoy", "jinja2", "pydantic", "requests", "rich", "yaml")
VENV = os.path.join(os.path.dirname(os.path.abspath(__file__)), ".venv")
if sys.version_info < (3, 10) or not all(map(find_spec, NEEDED)):
    python = os.path.join(VENV, "bin", "python")  # exec keeps the pid: the mark below says "tried already"
    if os.access(python, os.X_OK) and sys.prefix != VENV and os.environ.get("FLASHBOX_EXEC") != str(os.getpid()):
        os.execve(python, [python, *sys.argv], {**os.environ, "FLASHBOX_EXEC": str(os.getpid())})
    sys.exit(print("error: flashbox's Python packages are missing; `make setup` installs them", file=sys.stderr) or 2)
__import__("control.cli").cli.main()
