"""`simple_gpu_scheduler --gpus 0,1,2 < commands.txt`: one command a line or block, each on its own GPU.

Its options and words are those of the original; docs/compat.md has what differs.
"""

import os
import sys
from collections.abc import Mapping, Sequence

from dibs.compat.common import Parser, PlainDisplay, console, gpus_of, how_it_failed, plain_lines
from dibs.errors import BadInput
from dibs.foreground.feed import JobList
from dibs.foreground.run_types import RunOptions
from dibs.foreground.runner import Runner
from dibs.foreground.runs import open_run
from dibs.gpus.detect import find_probe
from dibs.gpus.pool import resolve_pool
from dibs.inputs.checks import environment_size
from dibs.model.events import Ended, Started

_PROG = "simple_gpu_scheduler"
_NO_SHELLS = ("nologin", "false")  # the login shells of accounts without login


def main() -> None:
    """The console script."""
    console(_PROG, _run)


def _run(argv: Sequence[str]) -> int:
    environ = dict(os.environ)
    options = _parser().parse_args(argv)
    probe = find_probe(environ)
    pool = resolve_pool(_gpu_list(options.gpus), probe, environ)
    lines = plain_lines(
        sys.stdin.buffer, login_shell(environ), name="stdin", environment_size=environment_size(environ)
    )
    run = open_run(environ)
    run_options = RunOptions(
        lists=[JobList(lines, is_quick=False)],
        pool=pool,
        probe=probe,
        # The user named the GPUs, so processes on them are ignored; leases are not.
        respect_processes=False,
        environment=environ,
    )
    display = _Display()
    summary = Runner(run, run_options, display, environ).execute()
    failed = summary.failed + summary.stopped
    if failed or summary.left:
        every = summary.succeeded + failed + summary.left
        failures = f"{failed} of {every} command{'' if every == 1 else 's'} failed"
        left = f", {summary.left} {'was' if summary.left == 1 else 'were'} not started" if summary.left else ""
        display.say(f"{failures}{left}; their output is kept in {run.root}")
    if summary.errors:
        raise summary.errors[0]
    return summary.exit_status


def login_shell(environ: Mapping[str, str]) -> str:
    """The user's own shell; /bin/sh where there is none that could run a line."""
    shell = environ.get("SHELL", "")
    usable = os.path.basename(shell) not in _NO_SHELLS and os.path.isfile(shell) and os.access(shell, os.X_OK)
    return shell if usable else "/bin/sh"


def _gpu_list(words: Sequence[str]) -> str:
    """`0,1,2` and `0 1 2` are three GPUs; among several words `0,1 2,3`, a word with commas is a group.

    Reversed: GPUs are handed out from the last one, as the original does.
    """
    entries = words if len(words) > 1 else words[0].split(",")
    groups = ["+".join(part for part in entry.split(",") if part.strip()) for entry in entries]
    if not all(groups):
        raise BadInput(f"cannot read --gpus {' '.join(words)!r}", remedy="name GPUs like 0,1,2 or 0 1 2")
    return ",".join(reversed(groups))


def _parser() -> Parser:
    parser = Parser(
        prog=_PROG,
        description="Run the commands that are read from stdin, one a line, each on its own GPU.",
        epilog="A GPU given twice runs two commands at once; `--gpus 0,1 2,3` gives each command a pair."
        " A \\ at the end of a line joins the next one; lines between a line <<< and a line >>> are one command.",
    )
    parser.add_argument("--gpus", nargs="+", required=True, metavar="GPU", help="the GPUs to use: 0,1,2 or 0 1 2")
    return parser


class _Display(PlainDisplay):
    def __init__(self) -> None:
        super().__init__(_PROG)

    def started(self, event: Started) -> None:
        line = f"Processing command `{_shown(event)}` on gpu {gpus_of(event)}\n"
        self.put(1, line.encode("utf-8", "surrogateescape"))

    def ended(self, event: Ended) -> None:
        if event.outcome.cause is not None:
            how = how_it_failed(event.outcome)
            self.say(f"command `{_shown(event)}` failed on gpu {gpus_of(event)}: {how}")


def _shown(event: Started | Ended) -> str:
    """The command on one line."""
    return event.job.request.command.shown.replace("\n", "\\n")
