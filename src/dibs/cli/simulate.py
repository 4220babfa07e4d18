"""`dibs simulate`: a trace of jobs on a simulated machine, scheduled by the policy of the queue."""

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from dibs.cli.options import SIZE, count
from dibs.cli.output import columns, one_line, say, show, show_json, styled, terminal_width
from dibs.dataclass import dataclass
from dibs.errors import BadInput, DibsError
from dibs.model.units import show_duration
from dibs.simulate.machine import Arrival, Rules, SimulatedMachine
from dibs.simulate.report import SimulationReport, WaitTimes, bars, report, series
from dibs.simulate.simulator import SimulatedRun
from dibs.simulate.simulator import simulate as play_trace
from dibs.simulate.trace import Trace, line_of, lines_of, make, read_trace

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
@click.option("--no-backfill", is_flag=True, help="As if no job had a time limit: none may pass another.")
@click.option("--no-turns", is_flag=True, help="As if there were no projects: first come, first served.")
@click.option("--alone", is_flag=True, help="As if no job had asked for a part of a GPU: each gets whole GPUs.")
@click.option("--compare", is_flag=True, help="Also run it with nothing left out, and show both.")
@click.option("--plot/--no-plot", default=True, help="Draw held GPUs and waiting jobs over time; so unless told.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def simulate(file: str | None, as_json: bool, plot: bool, **options: Any) -> int:
    """Run a trace of jobs through the queue's policy in virtual time, and show waits, use and fairness.

    Nothing is started, and no daemon is asked.
    """
    machine = _machine(options)
    trace = _trace(file, machine.num_gpus, options)
    if trace.left_out:
        jobs = "job" if trace.left_out == 1 else "jobs"
        say(f"dibs: left out {trace.left_out:,} recorded {jobs} without an end")
    results = [_play(trace.arrivals, machine, rules) for rules in _rules(options)]
    if as_json:
        show_json(_as_json(trace, machine, results))
        return 0
    for line in _numbers(machine, results):
        show(line)
    if plot:
        for line in _plots(machine, results, _plot_width()):
            show(line)
    return 0


def _machine(options: dict[str, Any]) -> SimulatedMachine:
    return SimulatedMachine(
        num_gpus=options["num_gpus"],
        gpu_memory=options["gpu_memory"],
        gpu_type=options["gpu_type"],
        slots=options["slots"],
        cpus=options["cpus"],
        mem=options["mem"],
    )


def _trace(file: str | None, gpus: int, options: dict[str, Any]) -> Trace:
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

    arrivals = make(
        kind, jobs=options["jobs"] or 1000, gpus=gpus, seed=1 if options["seed"] is None else options["seed"]
    )
    if options["save"]:
        _save(arrivals, options["save"])
    return Trace(arrivals)


def _read(file: str) -> Trace:
    if file == "-":
        return read_trace(lines_of(sys.stdin.buffer))
    try:
        with open(file, "rb") as opened:
            return read_trace(lines_of(opened))
    except OSError as error:
        raise BadInput(
            f"cannot read {file!r}: {error.strerror}", remedy="`dibs export --state over` writes such files"
        ) from None


def _save(arrivals: Sequence[Arrival], path: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{line_of(one)}\n" for one in arrivals)
    except OSError as error:
        raise DibsError(f"cannot write {path!r}: {error.strerror}", remedy="choose another file") from None


def _rules(options: dict[str, Any]) -> list[Any]:
    rules = Rules(backfill=not options["no_backfill"], turns=not options["no_turns"], packing=not options["alone"])
    if not options["compare"]:
        return [rules]
    if not rules.missing:
        raise BadInput(
            "there is nothing to compare", remedy="say what to leave out: --no-backfill, --no-turns or --alone"
        )
    return [Rules(), rules]


def _plot_width() -> int:
    """Columns: those of the terminal, or 80 where there is none."""
    return min(100, terminal_width(1)) if os.isatty(1) else 80


_MOST_ROWS = 20  # projects and widths that are shown; --json has all
_HEIGHT = 5  # lines of a picture


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """One way of playing the trace."""

    rules: Rules
    runs: Sequence[SimulatedRun]
    report: SimulationReport

    @property
    def name(self) -> str:
        return "dibs" if not self.rules.missing else f"no {', '.join(self.rules.missing)}"


def _play(arrivals: Sequence[Arrival], machine: SimulatedMachine, rules: Rules) -> SimulationResult:
    history = play_trace(arrivals, machine, rules)
    return SimulationResult(rules, history.runs, report(history, machine))


# -- words -------------------------------------------------------------------------------------------------


def _numbers(machine: SimulatedMachine, results: Sequence[SimulationResult]) -> Iterator[str]:
    """The numbers for people: of one result in full, of several side by side."""
    first = results[0].report
    gpus = "1 GPU" if machine.num_gpus == 1 else f"{machine.num_gpus:,} GPUs"
    jobs = "1 job" if first.jobs == 1 else f"{first.jobs:,} jobs"
    yield f"{jobs} on {gpus}: {results[0].name}" if len(results) == 1 else f"{jobs} on {gpus}"
    yield ""
    if len(results) == 1:
        yield from _waits_table(first)
        yield ""
        yield from (f"{name:18}{text}" for name, text in _facts(first))
    else:
        yield from _side_by_side(results)
    for result in results:
        which = "" if len(results) == 1 else f" ({result.name})"
        for why, jobs_left in result.report.never[:_MOST_ROWS]:
            yield f"never ran{which}: {'1 job' if jobs_left == 1 else f'{jobs_left:,} jobs'}: {one_line(why)}"


def _waits_table(found: SimulationReport) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("waited", "jobs", "median", "mean", "95 %", "99 %", "longest", "fair part")]
    rows.append(_waits_row("all", found.waits))
    if found.really is not None:
        rows.append(_waits_row("as recorded", found.really))
    if list(found.projects) != [""]:
        rows += [
            _waits_row(name or "(no project)", one.waits, one.fair_part)
            for name, one in list(found.projects.items())[:_MOST_ROWS]
        ]
    if len(found.widths) > 1:
        rows += [_waits_row(name, waits) for name, waits in list(found.widths.items())[:_MOST_ROWS]]
    if not any(row[-1] for row in rows[1:]):
        rows = [row[:-1] for row in rows]
    yield from _aligned(rows)


def _waits_row(name: str, waits: WaitTimes, fair_part: float | None = None) -> tuple[str, ...]:
    seconds = (waits.median, waits.mean, waits.p95, waits.p99, waits.longest)
    part = "" if fair_part is None else _percent(fair_part)
    return (one_line(name, 30), f"{waits.jobs:,}", *map(show_duration, seconds), part)


def _facts(found: SimulationReport) -> Iterator[tuple[str, str]]:
    use = f"{_percent(found.use)} until the end"
    if found.use_while_queued is not None:
        use = f"{_percent(found.use_while_queued)} until the last job came, {use}"
    yield "use of the GPUs", use
    yield "first to last", show_duration(found.makespan)
    if found.fairness is not None:
        competing = show_duration(found.competing)
        yield "fairness", f"{found.fairness:.3f} over {competing} in which projects competed"
    if found.cut:
        yield "time limit", f"ended {'1 job' if found.cut == 1 else f'{found.cut:,} jobs'}"


def _side_by_side(results: Sequence[SimulationResult]) -> Iterator[str]:
    """One row for each number, one column for each result."""
    reports = [result.report for result in results]
    first = reports[0]
    rows = [
        ["", *(result.name for result in results)],
        ["waited, median", *(show_duration(one.waits.median) for one in reports)],
        ["waited, mean", *(show_duration(one.waits.mean) for one in reports)],
        ["waited, 95 %", *(show_duration(one.waits.p95) for one in reports)],
        ["waited, longest", *(show_duration(one.waits.longest) for one in reports)],
    ]
    if len(first.widths) > 1:
        rows += [
            [f"  {width}, mean", *(_mean(one.widths.get(width)) for one in reports)]
            for width in list(first.widths)[:_MOST_ROWS]
        ]
    if list(first.projects) != [""]:
        for name in list(first.projects)[:_MOST_ROWS]:
            shown = one_line(name or "(no project)", 30)
            projects = [one.projects.get(name) for one in reports]
            rows.append([f"  {shown}, mean", *(_mean(one.waits if one else None) for one in projects)])
            parts = (one.fair_part if one else None for one in projects)
            rows.append([f"  {shown}, fair part", *map(_percent, parts)])
    if first.use_while_queued is not None:
        rows.append(["use until the last job came", *(_percent(one.use_while_queued) for one in reports)])
    rows.append(["use until the end", *(_percent(one.use) for one in reports)])
    rows.append(["first to last", *(show_duration(one.makespan) for one in reports)])
    if any(one.fairness is not None for one in reports):
        rows.append(["fairness", *("-" if one.fairness is None else f"{one.fairness:.3f}" for one in reports)])
    yield from _aligned(rows)


def _mean(waits: WaitTimes | None) -> str:
    return "-" if waits is None else show_duration(waits.mean)


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f} %"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Words to the left, numbers to the right; the first row is a heading."""
    widths = [max(columns(row[one]) for row in rows) for one in range(len(rows[0]))]
    for place, row in enumerate(rows):
        cells = [row[0] + " " * (widths[0] - columns(row[0]))]
        cells += [" " * (width - columns(cell)) + cell for cell, width in zip(row[1:], widths[1:], strict=True)]
        line = "  ".join(cells).rstrip()
        yield styled(line, "bold") if place == 0 else line


# -- pictures ----------------------------------------------------------------------------------------------


def _plots(machine: SimulatedMachine, results: Sequence[SimulationResult], width: int) -> Iterator[str]:
    """Held GPUs and waiting jobs over time; the pictures of several results have the same scale."""
    until = max(result.report.makespan for result in results)
    if not until:
        return
    waiting = max(max(result.report.series.waiting) for result in results)
    margin = max(len(f"{machine.num_gpus}"), len(f"{waiting}")) + 2
    points = max(10, width - margin)
    drawn = [(result, series(result.runs, until, points)) for result in results]
    most = max(max(one.waiting) for _, one in drawn)
    for result, one in drawn:
        which = "" if len(results) == 1 else f" ({result.name})"
        yield ""
        yield from _picture(f"GPUs held{which}", one.held, machine.num_gpus, margin, "green")
        if most:
            yield from _picture(f"jobs waiting{which}", one.waiting, most, margin, "yellow")
        yield _clock(until, margin, points)


def _picture(name: str, values: Sequence[float], top: int, margin: int, colour: str) -> Iterator[str]:
    yield f"{'':{margin}}{name}"
    for row, line in enumerate(bars(values, top, _HEIGHT)):
        label = f"{top} ┤" if row == 0 else "0 ┤" if row == _HEIGHT - 1 else "│"
        yield f"{label:>{margin}}{styled(line, colour)}"


def _clock(until: float, margin: int, points: int) -> str:
    """The moments below a picture, at its quarters where there is room."""
    parts = 4 if points >= 40 else 1
    line = ""
    for part in range(parts + 1):
        text = show_duration(until * part / parts) if part else "0"
        at = min(points * part // parts, points - len(text)) if part == parts else points * part // parts
        line = line.ljust(at) + text
    return f"{'':{margin}}{line}"


# -- JSON --------------------------------------------------------------------------------------------------


def _as_json(trace: Trace, machine: SimulatedMachine, results: Sequence[SimulationResult]) -> dict[str, Any]:
    """The keys that scripts rely on: docs/simulate.md has them. What is not known is null."""
    return {
        "trace": {
            "jobs": len(trace.arrivals),
            "left_out": trace.left_out,
            "seconds": _rounded(results[0].report.last_queued),
        },
        "machine": {
            "num_gpus": machine.num_gpus,
            "gpu_memory_bytes": machine.gpu_memory,
            "gpu_type": machine.gpu_type,
            "slots": machine.slots,
            "cpus": machine.cpus,
            "mem_bytes": machine.mem,
        },
        "results": [_result_as_json(result) for result in results],
    }


def _result_as_json(result: SimulationResult) -> dict[str, Any]:
    found = result.report
    return {
        "name": result.name,
        "without": result.rules.missing,
        "ran": found.ran,
        "cut": found.cut,
        "never": [{"why": why, "jobs": count} for why, count in found.never],
        "waits": _waits_as_json(found.waits),
        "really_waits": found.really and _waits_as_json(found.really),
        "projects": {
            name: {
                **_waits_as_json(one.waits),
                "gpu_seconds": _rounded(one.gpu_seconds),
                "fair_part": _rounded(one.fair_part),
            }
            for name, one in found.projects.items()
        },
        "widths": {name: _waits_as_json(waits) for name, waits in found.widths.items()},
        "makespan_seconds": _rounded(found.makespan),
        "use": _rounded(found.use),
        "use_while_queued": _rounded(found.use_while_queued),
        "fairness": _rounded(found.fairness),
        "competing_seconds": _rounded(found.competing),
        "series": {
            "step_seconds": _rounded(found.series.step),
            "held_gpus": [_rounded(value) for value in found.series.held],
            "waiting_jobs": list(found.series.waiting),
        },
    }


def _waits_as_json(waits: WaitTimes) -> dict[str, Any]:
    return {
        "jobs": waits.jobs,
        "mean_seconds": _rounded(waits.mean),
        "median_seconds": _rounded(waits.median),
        "p95_seconds": _rounded(waits.p95),
        "p99_seconds": _rounded(waits.p99),
        "longest_seconds": _rounded(waits.longest),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
