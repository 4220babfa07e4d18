"""`dibs`: the group of commands. The only place where an error becomes words and an exit status."""

import atexit
import contextlib
import errno
import importlib
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import click

from dibs.errors import DibsError
from dibs.version import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Commands are loaded when they are used, so that `dibs --help` answers at once.
_COMMANDS = {
    "run": ("dibs.cli.run:run", "Run a list of commands here, each on its own GPU."),
    "add": ("dibs.cli.add:add", "Put commands into the queue; they run when GPUs are free."),
    "sweep": ("dibs.cli.sweep:sweep", "Search for the best values of a command's parameters."),
    "ls": ("dibs.cli.ls:ls", "List jobs: what runs, what waits, what has ended."),
    "log": ("dibs.cli.log:log", "Show what a job wrote, also while it writes."),
    "metrics": ("dibs.cli.metrics:metrics", "Show the numbers that jobs report."),
    "why": ("dibs.cli.info:why", "Say what a job waits for."),
    "info": ("dibs.cli.info:info", "Show everything about a job."),
    "wait": ("dibs.cli.wait:wait", "Wait until jobs are over, and end with their exit code."),
    "gpus": ("dibs.cli.gpus:gpus", "Show every GPU and its holders."),
    "web": ("dibs.cli.web:web", "Open the queue in a browser."),
    "kill": ("dibs.cli.act:kill", "End jobs, or send them a signal."),
    "retry": ("dibs.cli.act:retry", "Put jobs that are over back into the queue."),
    "suspend": ("dibs.cli.suspend:suspend", "Have running jobs stand still, and free their GPUs."),
    "resume": ("dibs.cli.suspend:resume", "Let suspended jobs go on where they stopped."),
    "hold": ("dibs.cli.act:hold", "Keep jobs from starting."),
    "release": ("dibs.cli.act:release", "Let jobs start that were held."),
    "edit": ("dibs.cli.edit:edit", "Change a job, or its place, before it starts."),
    "pause": ("dibs.cli.act:pause", "Start no more jobs: at all, of a project, or on a GPU."),
    "unpause": ("dibs.cli.act:unpause", "Undo a pause."),
    "report": ("dibs.cli.report:report", "Show GPU hours and energy by week, project and user."),
    "lessons": ("dibs.cli.lessons:lessons", "Show how much memory jobs were measured to need, or forget it."),
    "clean": ("dibs.cli.clean:clean", "Forget jobs that are over, and their output."),
    "export": ("dibs.cli.transfer:export_jobs", "Print jobs as JSON lines."),
    "import": ("dibs.cli.transfer:import_jobs", "Queue jobs from JSON lines."),
    "simulate": ("dibs.cli.simulate:simulate", "Try the policy on a trace of jobs, in virtual time."),
    "doctor": ("dibs.cli.doctor:doctor", "Check folders, store, daemon and GPUs, and say what to do."),
    "daemon": ("dibs.cli.daemon:daemon", "Start, stop and watch the queue's daemon."),
    "cluster": ("dibs.cli.cluster:cluster", "Make a private Slurm of several servers, over ssh."),
    "config": ("dibs.cli.config:config", "Show and change settings."),
    "completion": ("dibs.cli.completion:completion", "Print the script for completion in your shell."),
}

# What other queues call our commands, and what else may be meant.
_ALIASES = {"list": "ls", "status": "ls", "cancel": "kill", "submit": "add", "logs": "log"}
_MEANT = {
    "rm": "`dibs kill` ends jobs, `dibs clean` forgets those that are over",
    "remove": "`dibs kill` ends jobs, `dibs clean` forgets those that are over",
    "restart": "`dibs retry` runs a job again, `dibs daemon restart` restarts the daemon",
}

# What `dibs --help` shows together. A command that stands in none is shown at the end.
_USES = {
    "Run": ("run", "add", "sweep"),
    "Look": ("ls", "log", "metrics", "why", "info", "wait", "gpus", "web", "report", "lessons", "simulate"),
    "Change": ("kill", "retry", "suspend", "resume", "hold", "release", "edit", "pause", "unpause"),
    "Keep": ("clean", "export", "import"),
}

_EPILOG = """\b
Examples:
  dibs run -f commands.txt                     one command a line, each on its own GPU
  dibs run --gpus 0,1 -- python train.py       one command, when GPU 0 or 1 is free
  dibs run -p lr 0.1 0.01 -- python train.py --lr {lr}
  dibs add -- python train.py                  into the queue; it runs when a GPU is free
  dibs sweep "python train.py --lr {lr}" -p lr 1e-4..1:log --samples 20 --metric loss
  dibs ls                                      what runs, what waits, what has ended
  dibs gpus                                    every GPU and its holders
"""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = _ALIASES.get(args[0], args[0])
        if name not in _COMMANDS and not ctx.resilient_parsing:
            from difflib import get_close_matches  # only for an error

            near = get_close_matches(name, _COMMANDS, n=1)
            hint = _MEANT.get(name) or (f"did you mean `dibs {near[0]}`?" if near else "")
            if hint:
                ctx.meta["hint"] = hint
        return super().resolve_command(ctx, [name, *args[1:]])

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = {name for names in _USES.values() for name in names}
        uses = {**_USES, "Set up": tuple(name for name in _COMMANDS if name not in shown)}
        width = max(map(len, _COMMANDS))
        for use, names in uses.items():
            with formatter.section(use):
                formatter.write_dl(
                    [(name.ljust(width), _COMMANDS[name][1]) for name in names if name in _COMMANDS]
                )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """The names, without loading the commands behind them."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=_COMMANDS[name][1]) for name in _COMMANDS if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)


@click.group(
    cls=_LazyGroup,
    epilog=_EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="dibs")
@click.pass_context
def dibs(context: click.Context, /) -> None:
    """Give every command its GPU."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main() -> None:
    """The console script."""
    try:
        exit_with(dibs, sys.argv[1:])
    except SystemExit as end:
        _leave(end.code)
        raise


def _leave(status: Any) -> None:
    """End without the interpreter's own cleanup, unless a thread is to be waited for.

    The cleanup takes an eighth of the time of `dibs add`.
    """
    others = (thread for thread in threading.enumerate() if thread is not threading.main_thread())
    if not isinstance(status, int) or not all(thread.daemon for thread in others):
        return
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # its reader has gone, or it was closed
            stream.flush()
    os._exit(status)


def exit_with(command: click.Command, argv: list[str], prog: str = "dibs") -> None:
    """Run a click command and end the process with what it returns, or with one sentence."""
    _open_closed_streams()
    try:
        status: Any = command.main(argv, prog_name=prog, standalone_mode=False)
    except click.ClickException as error:
        _say_click_error(error, prog)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except DibsError as error:
        _say_error(error, prog)
        sys.exit(error.exit_status)
    except BrokenPipeError:
        # The reader of our output has gone.
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        _to_stderr(f"{prog}: error: cannot write: the disk is full")
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)


def _open_closed_streams() -> None:
    """Where dibs was started with `2>&-`, the next file or socket that is opened would become stderr."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one


def _say_error(error: DibsError, prog: str = "dibs") -> None:
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
    hint = context.meta.get("hint", "") if context is not None else ""
    hint += "" if not hint else " " if hint.endswith("?") else "; "
    _to_stderr(f"{prog}: error: {message[:1].lower()}{message[1:]}\n  {hint}`{path} --help` shows what it takes")


def _to_stderr(text: str) -> None:
    # Escaped: an argument may hold bytes that the terminal's encoding has no letters for.
    sys.stderr.flush()
    sys.stderr.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
    sys.stderr.buffer.flush()
