"""PID 1 of the gateway: starts Envoy, drains on SIGTERM, hot restarts on SIGHUP (standard library only).

Envoy itself ends at once on SIGTERM and cuts every stream. Here the first SIGTERM (or SIGINT) means:
/health says 503, new requests get 503 with Retry-After, streams in flight go on; when the last one has
ended, or after GATEWAY_DRAIN_S, Envoy is ended and the exit code is 0. A second signal ends it at once.
When Envoy dies by itself this process exits non-zero, so that the container's restart policy acts.

SIGHUP starts a second Envoy from the files as they are now. It takes the listeners; the first one finishes its streams
and is ended once it has none. One at a time: while the first has streams a further SIGHUP is refused.

It must be PID 1 of its container: with PID 1 the kernel ends Envoy too (elsewhere Envoy asks for SIGTERM at the
death of the thread that started it, the main thread).
"""

from __future__ import annotations

import signal

if __name__ == "__main__":  # before the other imports: a signal that PID 1 neither blocks nor handles is lost
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
import os
import resource
import secrets
import sys
from collections.abc import Sequence

from envoy_run.admin import Admin, AdminSilent
from envoy_run.launch import Config, say
from envoy_run.serve import AWAITED, EXIT_NOT_CONFIGURED, Gateway

EXIT_USAGE = 64
USAGE = """expected nothing (run the gateway) or one of
  ready      exit 0 if it serves (the container's health check)
  state      print what runs as JSON
  ask PATH   print what Envoy's admin interface answers to GET PATH, such as /stats?filter=rds"""


def allow_many_sockets() -> None:
    """Raise the limit of open files to the highest allowed: each stream is a socket, and many start with 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(arguments: Sequence[str]) -> int:
    """Run the gateway, or say something about the one that runs."""
    # Signals are waited for, not handled: no handler runs between two lines of this program.
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    try:
        config = Config.read(os.environ)
        config = config if arguments else config.rendered()
    except (OSError, ValueError) as error:
        say("failed", reason=f"a GATEWAY_* variable or entry.json: {error}")
        return EXIT_NOT_CONFIGURED
    if arguments:
        return told(config, arguments)
    allow_many_sockets()
    # Told to the budget service with each request: what another start had in flight has ended with it. A hot restart
    # keeps it.
    os.environ["GATEWAY_BOOT"] = f"gateway:{secrets.token_hex(8)}"
    return Gateway(config).run()


def told(config: Config, arguments: Sequence[str]) -> int:
    """The subcommands, in a process of their own beside PID 1."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, AWAITED)
    admin = Admin(config.admin_socket)
    try:
        if list(arguments) == ["ready"]:
            return 0 if admin.is_live() else 1
        if list(arguments) == ["state"]:
            print(config.state_file.read_text(encoding="utf-8"))
            return 0
        if len(arguments) == 2 and arguments[0] == "ask":
            print(admin.ask("GET", arguments[1]), end="")
            return 0
    except (AdminSilent, OSError) as error:
        print(f"entry.py: {error}", file=sys.stderr)
        return 1
    print(f"entry.py: {' '.join(arguments)}: {USAGE}", file=sys.stderr)
    return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
