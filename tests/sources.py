"""What is edited in config/ and rendered into other files, as the control program reads it."""

from __future__ import annotations

from pathlib import Path

from control.adapters.workspace import Workspace

ROOT = Path(__file__).parents[1]
SOURCES = Workspace(ROOT).sources()
