"""Ask a release of vLLM what it makes of command lines; runs where that release is installed, not here.

stdin: a JSON list of {"argv": ["vllm", "serve", ...], "environment": {...}}. stdout, last line: a JSON list of the same
length: {"ok", "said", "unknown_variables"}. Each command goes through the whole `vllm` command line, up to the function
that would start the server; its last words are kept when it is refused.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback


def parsed(argv: list[str]) -> tuple[bool, str]:
    """Whether the command line gets as far as the start of a server, and what was said when it does not."""
    from vllm.entrypoints.cli import main as cli
    from vllm.entrypoints.cli.serve import ServeSubcommand

    reached: list[object] = []
    ServeSubcommand.cmd = staticmethod(reached.append)
    said = io.StringIO()
    sys.argv = argv
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            cli.main()
    except SystemExit:
        pass
    except Exception:  # noqa: BLE001 - whatever it raises is the answer
        traceback.print_exc(file=said)
    lines = said.getvalue().strip().splitlines()
    return len(reached) == 1, "" if reached else (lines[-1] if lines else "nothing")


def asked(request: dict[str, object]) -> dict[str, object]:
    """The answer to one request, worked out in a child so that none leaves anything behind."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        ok, said = parsed([str(word) for word in request["argv"]])  # type: ignore[union-attr]
        os.write(writable, json.dumps({"ok": ok, "said": said[-2000:]}).encode())
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    from vllm import envs

    names = [name for name in request.get("environment", {}) if name.startswith("VLLM_")]  # type: ignore[attr-defined]
    unknown = [name for name in names if name not in envs.environment_variables]
    return {**json.loads(text), "unknown_variables": unknown}


def main() -> None:
    """Answer everything that stdin asks."""
    import vllm
    import vllm.entrypoints.cli.serve

    answers = [asked(request) for request in json.load(sys.stdin)]
    print()
    print(json.dumps({"version": vllm.__version__, "answers": answers}))


if __name__ == "__main__":
    main()
