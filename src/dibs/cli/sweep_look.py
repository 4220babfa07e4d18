"""`dibs sweep ls`, `show`, `best` and `results`: what was tried, and what is best."""

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.options import count
from dibs.cli.references import SWEEP
from dibs.errors import BadInput, DibsError

if TYPE_CHECKING:
    from dibs.client.client import Client

_LEADERS = 10  # trials of the leaderboard
_FAILED = 5  # trials whose cause is told
_AT_ONCE = 1000  # trials in one answer
_STATES = ("running", "held", "finished", "stopped")


class NothingFound(DibsError):
    """There is no best trial, because none has a result."""

    code = "nothing-found"


@click.command(
    epilog="""\b
Examples:
  dibs sweep ls
  dibs sweep ls --state running
  dibs sweep ls --json | jq -r '.sweeps[] | [.id, .state, .best[0].values[0]] | @tsv'
"""
)
@click.option("--state", type=click.Choice(_STATES), help="Only sweeps in this state.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def ls(state: str | None, as_json: bool) -> int:
    """List sweeps, the newest first: how far they are, and the best result."""
    from dibs.cli.output import say, show_json
    from dibs.client.client import connect
    from dibs.client.sweeps import sweeps

    found = list(sweeps(connect(os.environ), states=[state] if state else ()))
    if as_json:
        show_json({"sweeps": found})
    elif found:
        _print_sweeps(found)
    else:
        say("dibs: there is no such sweep" if state else "dibs: there are no sweeps yet: `dibs sweep --help`")
    return 0


@click.command(
    name="show",
    epilog="""\b
Examples:
  dibs sweep show             the last one
  dibs sweep show 3           by its number, or by its name
  dibs sweep show --limit 50
""",
)
@SWEEP
@click.option("--limit", type=count(1, _AT_ONCE), default=_LEADERS, metavar="N", help="So many of the best.")
@click.option("--json", "as_json", is_flag=True, help="Print an object: the sweep, its leaders and importance.")
def show(reference: str, limit: int, as_json: bool) -> int:
    """Show a sweep: the best trials, what mattered, the best command line, and why trials failed."""
    from dibs.cli import output
    from dibs.client import sweeps as daemon
    from dibs.client.client import connect

    client = connect(os.environ)
    sweep = _found(client, reference)
    has_metric = bool(sweep["metrics"])
    order = "best" if has_metric else "number"
    leaders = daemon.trial_page(client, sweep["id"], order=order, limit=limit)["trials"]
    is_known = has_metric and leaders
    importance = daemon.importance(client, sweep["id"]) if is_known else {"importance": [], "why": ""}
    if as_json:
        output.show_json({**sweep, "leaders": leaders, **importance})
        return 0
    lines = [*_head(sweep), *_leaders(sweep, leaders), *_importance(importance), *_best(sweep)]
    output.show("\n".join([*lines, *_failed(client, sweep), *_dashboard(sweep)]))
    return 0


@click.command(
    epilog="""\b
Examples:
  dibs sweep best                     the command on stdout, its result on stderr
  eval "$(dibs sweep best lr)"        run it here
  dibs sweep best --json | jq -r '.best[0].point.lr'
"""
)
@SWEEP
@click.option("--json", "as_json", is_flag=True, help="Print an object with the best trial, or several.")
def best(reference: str, as_json: bool) -> int:
    """Print the best command line, ready to paste. Of several metrics: each that no other beats."""
    from dibs.cli.output import say, show, show_json
    from dibs.cli.sweep_words import called, results_of
    from dibs.client.client import connect

    sweep = _found(connect(os.environ), reference)
    if as_json:
        show_json({"sweep": sweep["id"], "best": sweep["best"]})
        return 0
    if not sweep["best"]:
        why = "no trial has a result yet" if sweep["metrics"] else "it names no metric to compare them by"
        raise NothingFound(
            f"there is no best trial of sweep {called(sweep)}: {why}", remedy=f"`dibs sweep show {sweep['id']}`"
        )
    for trial in sweep["best"]:
        job = trial["job"] or trial["reused_from"]
        say(f"{results_of(sweep['spec'], trial)} (trial {trial['number']} of sweep {called(sweep)}, job {job})")
        show(trial["command"])
    return 0


@click.command(
    epilog="""\b
Examples:
  dibs sweep results 3
  dibs sweep results --csv > trials.csv
  dibs sweep results --json | jq '.trials[] | select(.state == "failed")'

\b
The CSV has a line a trial: trial, job, state, a column for each metric and for each parameter,
seconds, why. A parameter that is none is empty; one called like another column is param.NAME.
"""
)
@SWEEP
@click.option(
    "--sort",
    type=click.Choice(["number", "best"]),
    default="number",
    help="By number, or the best first.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, with a line of headings.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def results(reference: str, sort: str, as_csv: bool, as_json: bool) -> int:
    """Print all trials of a sweep: values, results and how they ended."""
    from dibs.client import sweeps as daemon
    from dibs.client.client import connect

    if as_csv and as_json:
        raise BadInput("--csv and --json were both given", remedy="choose one")
    client = connect(os.environ)
    sweep = _found(client, reference)
    trials = daemon.trials(client, sweep["id"], order=sort)
    if as_json:
        _print_json(sweep, trials)
    elif as_csv:
        _print_csv(sweep["spec"], trials)
    else:
        _print_trials(sweep["spec"], trials)
    return 0


def _found(client: "Client", reference: str) -> dict[str, Any]:
    from dibs.client.sweeps import find_sweep, sweep

    return sweep(client, find_sweep(client, reference))


# -- the parts of `show` -----------------------------------------------------------------------------------


def _head(sweep: Mapping[str, Any]) -> Iterator[str]:
    from dibs.cli.output import one_line, styled
    from dibs.cli.sweep_words import COLOURS, called, searched, tally, wanted
    from dibs.cli.times import show_moment

    total = wanted(sweep)
    yield styled(f"sweep {called(sweep)}", "bold")
    spec = sweep["spec"]
    pairs = [
        ("state", sweep["state"]),
        ("why", sweep["why"]),
        ("trials", f"{tally(sweep)}{f' of {total}' if total is not None else ''}"),
        ("command", spec.get("command") or " ".join(spec.get("words", ()))),
        ("search", searched(spec)),
        ("where", " and ".join(spec.get("where", ()))),
        ("at a time", str(spec.get("parallel") or "")),
        ("project", sweep.get("project") or ""),
        ("queued", show_moment(sweep["queued_at"])),
        ("ended", show_moment(sweep["ended_at"]) if sweep["ended_at"] else ""),
    ]
    width = max(len(word) for word, _ in pairs)
    for word, text in pairs:
        if text:
            colour = COLOURS.get(sweep["state"], "") if word == "state" else ""
            yield f"  {word.ljust(width)}  {styled(one_line(text, 4000), colour)}"


def _leaders(sweep: Mapping[str, Any], leaders: Sequence[Mapping[str, Any]]) -> list[str]:
    if not leaders:
        return []
    return ["", *_trials(sweep["spec"], leaders, indent="  ")]


def _importance(answer: Mapping[str, Any]) -> list[str]:
    from dibs.cli.output import one_line, styled
    from dibs.cli.sweep_words import bars

    if answer["importance"]:
        title = styled("what mattered", "bold")
        return ["", f"  {title}", *(f"    {bar}" for bar in bars(answer["importance"]))]
    return ["", f"  {styled(one_line(answer['why'], 500), 'dim')}"] if answer.get("why") else []


def _best(sweep: Mapping[str, Any]) -> list[str]:
    from dibs.cli.output import one_line, styled
    from dibs.cli.sweep_words import results_of

    best = sweep["best"]
    if not best:
        return []
    if len(best) > 1:
        title = f"{len(best)} trials that no other beats in everything"
    else:
        title = f"best: trial {best[0]['number']}, {results_of(sweep['spec'], best[0])}"
    return ["", f"  {styled(title, 'bold')}", *(f"    {one_line(trial['command'], 20000)}" for trial in best)]


def _failed(client: "Client", sweep: Mapping[str, Any]) -> list[str]:
    from dibs.cli.output import one_line, styled
    from dibs.client.sweeps import trial_page

    number = sweep["counts"]["failed"]
    if not number:
        return []
    failed = trial_page(client, sweep["id"], states=["failed"], limit=_FAILED)["trials"]
    lines = [f"    trial {trial['number']}: {one_line(trial['why'], 500)}" for trial in failed]
    left = number - len(failed)
    more = [f"    and {left} more: `dibs sweep results {sweep['id']}`"] if left > 0 else []
    remedy = f"`dibs sweep retry-failed {sweep['id']}` runs them again"
    return ["", f"  {styled(f'{number} failed', 'red')}: {remedy}", *lines, *more]


def _dashboard(sweep: Mapping[str, Any]) -> list[str]:
    import shlex

    if not sweep.get("journal"):
        return []
    return ["", f"  Optuna's own pages: optuna-dashboard {shlex.quote(sweep['journal'])}"]


# -- tables ------------------------------------------------------------------------------------------------


def _print_sweeps(sweeps: Sequence[Mapping[str, Any]]) -> None:
    from dibs.cli.output import one_line, show, styled, table, table_width
    from dibs.cli.sweep_words import COLOURS, best_so_far, ended, wanted

    rows = []
    for sweep in sweeps:
        total, spec = wanted(sweep), sweep["spec"]
        rows.append(
            (
                str(sweep["id"]),
                sweep["state"],
                one_line(sweep["name"], 24) or "-",
                f"{ended(sweep)}/{'?' if total is None else total}",
                str(sweep["counts"].get("failed", 0)),
                best_so_far(sweep).removeprefix("best ") or "-",
                one_line(spec.get("command") or " ".join(spec.get("words", ())), 4000),
            )
        )
    headings = ("sweep", "state", "name", "trials", "failed", "best", "command")
    heading, *lines = table(headings, rows, width=table_width(), shrink=6, drop=(6, 2, 4))
    show(styled(heading, "bold"))
    for sweep, line in zip(sweeps, lines, strict=True):
        show(styled(line, COLOURS.get(sweep["state"], "")))
        if sweep["state"] == "held" and sweep["why"]:
            show(styled(one_line(f"  {sweep['why']}", table_width()), "dim"))


def _print_trials(spec: Mapping[str, Any], trials: Iterator[Mapping[str, Any]]) -> None:
    from dibs.cli.output import say, show

    is_empty = True
    while chunk := list(islice(trials, _AT_ONCE)):
        is_empty = False
        show("\n".join(_trials(spec, chunk)))
    if is_empty:
        say("dibs: it has no trials yet")


def _trials(spec: Mapping[str, Any], trials: Sequence[Mapping[str, Any]], indent: str = "") -> Iterator[str]:
    from dibs.cli.output import styled, table, table_width
    from dibs.cli.sweep_words import TRIAL_COLOURS, trial_table

    headings, rows = trial_table(spec, trials)
    last = len(headings) - 1
    width = table_width() - len(indent)
    # On a narrow terminal the job leaves first, then the time, then values from the right.
    drop = (last - 1, last - 2, *range(last - 3, 1, -1))
    heading, *lines = table(headings, rows, width=width, shrink=last, drop=drop)
    yield f"{indent}{styled(heading, 'bold')}"
    for trial, line in zip(trials, lines, strict=True):
        yield f"{indent}{styled(line, TRIAL_COLOURS.get(trial['state'], ''))}"


# -- for programs ------------------------------------------------------------------------------------------


def _print_json(sweep: Mapping[str, Any], trials: Iterator[Mapping[str, Any]]) -> None:
    """One object. A hundred thousand trials are written as they come, not gathered first."""
    import json

    from dibs.cli.output import show

    show(f'{{"sweep": {sweep["id"]}, "trials": [', end="")
    comma = ""
    for trial in trials:
        show(f"{comma}\n{json.dumps(trial)}", end="")
        comma = ","
    show("\n]}")


def _print_csv(spec: Mapping[str, Any], trials: Iterator[Mapping[str, Any]]) -> None:
    import csv
    import io

    from dibs.cli.output import show

    metrics = [metric["name"] for metric in spec.get("metrics", ())]
    names = [parameter["name"] for parameter in spec["parameters"]]
    taken = {"trial", "job", "state", "seconds", "why", *metrics}
    columns = [f"param.{name}" if name in taken else name for name in names]
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(["trial", "job", "state", *metrics, *columns, "seconds", "why"])
    for trial in trials:
        values = [*(trial["values"] or ()), *[None] * len(metrics)][: len(metrics)]
        point = [trial["point"].get(name) for name in names]
        job = trial["job"] or trial["reused_from"]
        seconds = None if trial["seconds"] is None else round(trial["seconds"], 3)
        writer.writerow([trial["number"], job, trial["state"], *values, *point, seconds, trial["why"]])
        if lines.tell() > 1 << 16:
            show(lines.getvalue(), end="")
            lines.seek(0)
            lines.truncate()
    show(lines.getvalue(), end="")
