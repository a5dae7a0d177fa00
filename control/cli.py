"""The click group, loaded a command at a time, and the one place where an error becomes words and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import click

from control import signals
from control.command_list import COMMANDS
from control.context import Control
from control.core.errors import FlashboxError

ROOT = Path(__file__).resolve().parent.parent


class Door(click.Group):
    """Commands by name, imported on use; every way out passes `main`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = importlib.import_module(f"control.commands.{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS:
            close = get_close_matches(args[0], COMMANDS, n=1)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {close[0]}?" if close else ""))
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run, and leave with a code; an operator never sees a traceback unless -v asks for it."""
        try:
            with signals.raised():
                code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except (KeyboardInterrupt, click.Abort) as error:
            sys.exit(signals.farewell(error))
        except BrokenPipeError:  # the reader of our output has gone, which is its right
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.exit(1)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except Exception as error:  # noqa: BLE001 - the one error boundary
            sys.exit(_told(error))
        sys.exit(code if isinstance(code, int) else 0)


def _told(error: Exception) -> int:
    """Say what, why and the fix; the exit code."""
    if isinstance(error, FlashboxError):
        _lines(error.what, error.why, error.fix)
        return error.exit_code
    if isinstance(error, OSError):
        _lines(str(error), "the system refused", "python ctl.py doctor")
        return 1
    if {"-v", "--verbose"} & set(sys.argv):
        traceback.print_exception(error)
    why = "this is a fault of flashbox, not yours"
    _lines(f"{type(error).__name__}: {error}", why, "run `ctl.py -v` with the same words and report what it says")
    return 1


def _lines(what: str, why: str, fix: str) -> None:
    for label, text in (("error", what), ("  why", why), ("  fix", fix)):
        if text:
            print(f"{label}: {text}".replace("\n", "\n       "), file=sys.stderr)


@click.group(cls=Door, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("-v", "--verbose", is_flag=True, help="Echo each external command.")
@click.pass_context
def cli(context: click.Context, verbose: bool) -> None:
    """Serve DeepSeek-V4-Flash on this machine: vLLM replicas behind an Envoy gateway.

    \b
    python ctl.py up --profile stub   rehearse the whole stack without a GPU
    python ctl.py up                  start it for real
    """
    context.obj = context.obj or Control(ROOT, os.environ)
    context.obj.console.verbose = verbose


def main() -> NoReturn:
    """Called by ctl.py."""
    cli.main(prog_name="ctl.py")
