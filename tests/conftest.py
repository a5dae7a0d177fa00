"""What every test needs of the process it runs in."""

from __future__ import annotations

import signal

# A shell's background job starts with SIGINT ignored, and so would every program under test: Ctrl-C would do nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Under nohup it starts with SIGHUP ignored, which a program rightly keeps.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
