"""`dibs simulate`: a trace of jobs on a machine that does not exist, decided by the policy of the queue."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.options import SIZE, count
from dibs.errors import BadInput

if TYPE_CHECKING:
    from dibs.simulate.machine import Arrival, SimulatedMachine
    from dibs.simulate.trace import Trace

_KINDS = ("day", "wide", "rivals", "halves")

_EPILOG = """\b
Examples:
  dibs simulate --make day --jobs 10000 -n 64
  dibs simulate --make rivals --no-turns --compare
  dibs export --state over > trace.jsonl; dibs simulate trace.jsonl -n 16

\b
A trace has one JSON object a line: {"queued_at": 0, "seconds": 600, "num_gpus": 2}
"""


@click.command(epilog=_EPILOG)
@click.argument("file", required=False, metavar="[TRACE|-]")
@click.option("--make", "kind", type=click.Choice(_KINDS), help="Make a trace instead of reading one.")
@click.option("--jobs", type=count(1, 1_000_000), metavar="N", help="How many jobs are made (1000).")
@click.option("--seed", type=count(0), metavar="N", help="The same seed makes the same jobs (1).")
@click.option("--save", metavar="FILE", help="Write the made trace to a file as well.")
@click.option(
    "-n",
    "--num-gpus",
    type=count(1, 10_000),
    metavar="N",
    default=8,
    help="How many GPUs the machine has (8).",
)
@click.option("--gpu-memory", type=SIZE, metavar="SIZE", help="Memory of each, for jobs that ask for some: 80G.")
@click.option("--gpu-type", metavar="NAME", default="", help="What they are called, for jobs that ask for a type.")
@click.option("--slots", type=count(1, 64), metavar="N", default=1, help="Jobs on each GPU that ask for no share.")
@click.option("--cpus", type=count(1), metavar="N", help="Processors of the machine; not counted unless given.")
@click.option("--mem", type=SIZE, metavar="SIZE", help="Memory of the machine; not counted unless given.")
@click.option("--no-backfill", is_flag=True, help="As if nobody had set a time limit: nobody may pass.")
@click.option("--no-turns", is_flag=True, help="As if there were no projects: first come, first served.")
@click.option("--alone", is_flag=True, help="As if nobody had asked for a part of a card: all get whole ones.")
@click.option("--compare", is_flag=True, help="Also run it with nothing left out, and show both.")
@click.option("--plot/--no-plot", default=True, help="Draw held GPUs and waiting jobs over time; so unless told.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def simulate(file: str | None, as_json: bool, plot: bool, **options: Any) -> int:
    """Run a trace of jobs through the queue's policy in virtual time, and show waits, use and fairness.

    Nothing is started, and no daemon is asked.
    """
    from dibs.cli import simulated
    from dibs.cli.output import say, show, show_json

    machine = _machine(options)
    trace = _trace(file, machine.num_gpus, options)
    if trace.left_out:
        jobs = "job" if trace.left_out == 1 else "jobs"
        say(f"dibs: left out {trace.left_out:,} recorded {jobs} without an end")
    results = [simulated.play(trace.arrivals, machine, rules) for rules in _rules(options)]
    if as_json:
        show_json(simulated.as_json(trace, machine, results))
        return 0
    for line in simulated.in_words(machine, results):
        show(line)
    if plot:
        for line in simulated.plots(machine, results, _plot_width()):
            show(line)
    return 0


def _machine(options: dict[str, Any]) -> "SimulatedMachine":
    from dibs.simulate.machine import SimulatedMachine

    return SimulatedMachine(
        num_gpus=options["num_gpus"],
        gpu_memory=options["gpu_memory"],
        gpu_type=options["gpu_type"],
        slots=options["slots"],
        cpus=options["cpus"],
        mem=options["mem"],
    )


def _trace(file: str | None, gpus: int, options: dict[str, Any]) -> "Trace":
    from dibs.simulate.trace import Trace

    kind = options["kind"]
    if (file is None) == (kind is None):
        kinds = ", ".join(_KINDS)
        raise BadInput("name one trace", remedy=f"give a file, or --make one of {kinds}")
    if file is not None:
        for name in ("jobs", "seed", "save"):
            if options[name] is not None:
                raise BadInput(
                    f"--{name} is for --make", remedy="leave it out: the file says which jobs there are"
                )
        return _read(file)
    from dibs.simulate.made import make

    arrivals = make(
        kind, jobs=options["jobs"] or 1000, gpus=gpus, seed=1 if options["seed"] is None else options["seed"]
    )
    if options["save"]:
        _save(arrivals, options["save"])
    return Trace(arrivals)


def _read(file: str) -> "Trace":
    from dibs.simulate.trace import lines_of, read_trace

    if file == "-":
        return read_trace(lines_of(sys.stdin.buffer))
    try:
        with open(file, "rb") as opened:
            return read_trace(lines_of(opened))
    except OSError as error:
        raise BadInput(
            f"cannot read {file!r}: {error.strerror}", remedy="`dibs export --state over` writes such files"
        ) from None


def _save(arrivals: "Sequence[Arrival]", path: str) -> None:
    from dibs.errors import DibsError
    from dibs.simulate.trace import line_of

    try:
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{line_of(one)}\n" for one in arrivals)
    except OSError as error:
        raise DibsError(f"cannot write {path!r}: {error.strerror}", remedy="choose another file") from None


def _rules(options: dict[str, Any]) -> list[Any]:
    from dibs.simulate.machine import Rules

    rules = Rules(backfill=not options["no_backfill"], turns=not options["no_turns"], packing=not options["alone"])
    if not options["compare"]:
        return [rules]
    if not rules.missing:
        raise BadInput(
            "there is nothing to compare", remedy="say what to leave out: --no-backfill, --no-turns or --alone"
        )
    return [Rules(), rules]


def _plot_width() -> int:
    """Columns: those of the terminal, or of a page where nobody sits at one."""
    from dibs.cli.output import terminal_width

    return min(100, terminal_width(1)) if os.isatty(1) else 80
