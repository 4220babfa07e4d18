"""`dibs`: the group of commands. The only place where an error becomes words and an exit status."""

import importlib
import sys
from typing import Any

import click

from dibs import __version__

# Commands are loaded when they are used: `dibs --help` answers before the finger leaves the key.
_COMMANDS = {
    "run": ("dibs.cli.run:run", "Run a list of commands here, each on its own GPU."),
    "gpus": ("dibs.cli.gpus:gpus", "Show every GPU and who holds it."),
}

_EPILOG = """\b
Examples:
  dibs run -f commands.txt                     one command a line, each on its own GPU
  dibs run --gpus 0,1 -- python train.py       one command, when GPU 0 or 1 is free
  dibs run -p lr 0.1 0.01 -- python train.py --lr {lr}
  dibs gpus                                    who holds what
"""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])


@click.group(
    cls=_LazyGroup,
    epilog=_EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="dibs")
@click.pass_context
def dibs(context: click.Context, /) -> None:
    """Gives every command its GPU."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main() -> None:
    """The console script."""
    exit_with(dibs, sys.argv[1:])


def exit_with(command: click.Command, argv: list[str], prog: str = "dibs") -> None:
    """Run a click command and end the process with what it returns, or with one sentence."""
    from dibs.errors import DibsError

    try:
        status: Any = command.main(argv, prog_name=prog, standalone_mode=False)
    except click.ClickException as error:
        _say_click_error(error, prog)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except DibsError as error:
        say_error(error, prog)
        sys.exit(error.exit_status)
    except BrokenPipeError:
        # Whoever read our output has left; there is nobody to tell.
        sys.stderr.close()
        sys.exit(141)
    sys.exit(status if isinstance(status, int) else 0)


def say_error(error: Any, prog: str = "dibs") -> None:
    """What could not be done and why; below it, what to try."""
    from dibs.cli.output import one_line

    lines = [f"{prog}: error: {one_line(error.message, 2000)}"]  # a folder's name may hold a newline
    if error.remedy:
        lines.append(f"  {error.remedy}")
    _to_stderr("\n".join(lines))


def _say_click_error(error: click.ClickException, prog: str) -> None:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else prog
    message = error.format_message().rstrip(".")
    hint = f"{context.meta['hint']}; " if context is not None and "hint" in context.meta else ""
    _to_stderr(f"{prog}: error: {message[:1].lower()}{message[1:]}\n  {hint}`{path} --help` shows what it takes")


def _to_stderr(text: str) -> None:
    # Escaped: an argument may hold bytes that the terminal's encoding has no letters for.
    sys.stderr.flush()
    sys.stderr.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
    sys.stderr.buffer.flush()
