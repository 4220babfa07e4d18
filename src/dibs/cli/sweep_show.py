"""`dibs sweep ls`, `show`, `best` and `results`: what was tried, and what is best."""

import csv
import io
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import click

from dibs.cli.options import count
from dibs.cli.output import one_line, say, show, show_json, show_moment, styled, table, table_width
from dibs.cli.references import SWEEP
from dibs.client import sweeps as daemon
from dibs.client.client import Client, connect
from dibs.errors import BadInput, DibsError
from dibs.model.units import show_duration

_LEADERS = 10  # trials of the leaderboard
_FAILED = 5  # trials whose cause is told
_AT_ONCE = 1000  # trials in one answer
_MOST_IN_ANSWER = 100  # jobs whose metrics one answer has
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
    found = list(daemon.sweeps(connect(os.environ), states=[state] if state else ()))
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
@click.option("--limit", type=count(1, _AT_ONCE), default=_LEADERS, metavar="N", help="Show the best N trials.")
@click.option("--json", "as_json", is_flag=True, help="Print an object: the sweep, its leaders and importance.")
def show_sweep(reference: str, limit: int, as_json: bool) -> int:
    """Show a sweep: the best trials, what mattered, the best command line, and why trials failed."""
    client = connect(os.environ)
    sweep = _found(client, reference)
    has_metric = bool(sweep["metrics"])
    order = "best" if has_metric else "number"
    is_front = len(sweep["metrics"]) > 1  # which no other trial beats in everything
    if is_front:
        leaders = sweep["best"][:limit]
    else:
        leaders = daemon.trial_page(client, sweep["id"], order=order, limit=limit)["trials"]
    is_known = has_metric and leaders
    importance = daemon.importance(client, sweep["id"]) if is_known else {"importance": [], "why": ""}
    if as_json:
        front = {"front": [trial["number"] for trial in sweep["best"]]} if is_front else {}
        show_json({**sweep, "leaders": leaders, **importance, **front})
        return 0
    lines = [*_head(sweep), *_leaders(sweep, leaders), *_importance(importance), *_best(sweep)]
    show("\n".join([*lines, *_failed(client, sweep), *_dashboard(sweep)]))
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
    sweep = _found(connect(os.environ), reference)
    if as_json:
        show_json({"sweep": sweep["id"], "best": sweep["best"]})
        return 0
    if not sweep["best"]:
        why = "no trial has a result yet" if sweep["metrics"] else "it names no metric to compare them by"
        raise NothingFound(
            f"there is no best trial of sweep {sweep_name(sweep)}: {why}",
            remedy=f"`dibs sweep show {sweep['id']}`",
        )
    for trial in sweep["best"]:
        job = trial["job"] or trial["reused_from"]
        where = f"trial {trial['number']} of sweep {sweep_name(sweep)}, job {job}"
        say(f"{results_text(sweep['spec'], trial)} ({where})")
        show(trial["command"])
    return 0


@click.command(
    epilog="""\b
Examples:
  dibs sweep results 3
  dibs sweep results --csv > trials.csv
  dibs sweep results --by-step --csv   every number that the trials reported, step by step
  dibs sweep results --json | jq '.trials[] | select(.state == "failed")'

\b
The CSV has a line a trial: trial, job, state, a column for each metric, for each other number that
they reported (the last) and for each parameter, seconds, why. A parameter that is none is empty; one
called like another column is param.NAME. --by-step: trial, job, name, step, at_seconds, value.
"""
)
@SWEEP
@click.option(
    "--sort",
    type=click.Choice(["number", "best"]),
    default="number",
    help="By number, or the best first.",
)
@click.option("--by-step", is_flag=True, help="Print every number that they reported, a line for each step.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, with a line of headings.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def results(reference: str, sort: str, by_step: bool, as_csv: bool, as_json: bool) -> int:
    """Print all trials of a sweep: values, results and how they ended."""
    if as_csv and as_json:
        raise BadInput("--csv and --json were both given", remedy="choose one")
    client = connect(os.environ)
    sweep = _found(client, reference)
    trials = daemon.trials(client, sweep["id"], order=sort)
    if by_step:
        _print_steps(_by_step(client, sweep, trials), as_json=as_json)
    elif as_json:
        _print_json(sweep, trials)
    elif as_csv:
        # Read twice: a hundred thousand trials do not fit into memory, and the last may have a new name.
        others = _reported_names(sweep, daemon.trials(client, sweep["id"]))
        _print_csv(sweep["spec"], trials, others)
    else:
        _print_trials(sweep, trials)
    return 0


def _reported_names(sweep: Mapping[str, Any], trials: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of the reported numbers that are not the sweep's metrics."""
    own = {metric["name"] for metric in sweep["metrics"]}
    return list(dict.fromkeys(name for trial in trials for name in trial["reported"] if name not in own))


def _by_step(
    client: Client, sweep: Mapping[str, Any], trials: Iterator[dict[str, Any]]
) -> Iterator[tuple[int, int, str, float, float, float]]:
    """Trial, job, name, step, seconds after its start and value of every point that its job still has."""
    while chunk := list(islice(trials, _MOST_IN_ANSWER)):
        # The trial that ran and those that took its result have one job.
        jobs = [(trial["number"], job) for trial in chunk if (job := _job_of(trial)) is not None]
        told = {one["job"]: one["series"] for one in client.metrics_of(list({job for _, job in jobs}))}
        for number, job in jobs:
            for one in told.get(job, ()):
                for step, at, value in zip(one["steps"], one["at_seconds"], one["values"], strict=True):
                    yield number, job, one["name"], step, at, value


def _job_of(trial: Mapping[str, Any]) -> int | None:
    job: int | None = trial["job"] or trial["reused_from"]
    return job


def _found(client: Client, reference: str) -> dict[str, Any]:
    return daemon.sweep(client, daemon.find_sweep(client, reference))


# -- the parts of `show` -----------------------------------------------------------------------------------


def _head(sweep: Mapping[str, Any]) -> Iterator[str]:
    total = count_wanted(sweep)
    yield styled(f"sweep {sweep_name(sweep)}", "bold")
    spec = sweep["spec"]
    pairs = [
        ("state", sweep["state"]),
        ("why", sweep["why"]),
        ("trials", f"{counts_text(sweep)}{f' of {total}' if total is not None else ''}"),
        ("command", spec.get("command") or " ".join(spec.get("words", ()))),
        ("search", search_text(spec)),
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
    # What a sweep without a metric has found is whatever its trials reported.
    others = [] if sweep["metrics"] else _reported_names(sweep, leaders)
    has_means = any(trial["means"] for trial in leaders)
    return ["", *_trials(sweep["spec"], leaders, indent="  ", others=others, has_means=has_means)]


def _importance(answer: Mapping[str, Any]) -> list[str]:
    if answer["importance"]:
        title = styled("what mattered", "bold")
        return ["", f"  {title}", *(f"    {bar}" for bar in importance_bars(answer["importance"]))]
    return ["", f"  {styled(one_line(answer['why'], 500), 'dim')}"] if answer.get("why") else []


def _best(sweep: Mapping[str, Any]) -> list[str]:
    best = sweep["best"]
    if not best:
        return []
    if len(best) > 1:
        title = f"{len(best)} trials that no other beats in everything"
    else:
        title = f"best: trial {best[0]['number']}, {results_text(sweep['spec'], best[0])}"
    return ["", f"  {styled(title, 'bold')}", *(f"    {one_line(trial['command'], 20000)}" for trial in best)]


def _failed(client: Client, sweep: Mapping[str, Any]) -> list[str]:
    number = sweep["counts"]["failed"]
    if not number:
        return []
    failed = daemon.trial_page(client, sweep["id"], states=["failed"], limit=_FAILED)["trials"]
    lines = [f"    trial {trial['number']}: {one_line(trial['why'], 500)}" for trial in failed]
    left = number - len(failed)
    more = [f"    and {left} more: `dibs sweep results {sweep['id']}`"] if left > 0 else []
    remedy = f"`dibs sweep retry-failed {sweep['id']}` runs them again"
    return ["", f"  {styled(f'{number} failed', 'red')}: {remedy}", *lines, *more]


def _dashboard(sweep: Mapping[str, Any]) -> list[str]:
    if not sweep.get("journal"):
        return []
    return ["", f"  Optuna's own pages: optuna-dashboard {shlex.quote(sweep['journal'])}"]


# -- tables ------------------------------------------------------------------------------------------------


def _print_sweeps(sweeps: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for sweep in sweeps:
        total, spec = count_wanted(sweep), sweep["spec"]
        rows.append(
            (
                str(sweep["id"]),
                sweep["state"],
                one_line(sweep["name"], 24) or "-",
                f"{count_ended(sweep)}/{'?' if total is None else total}",
                str(sweep["counts"].get("failed", 0)),
                best_text(sweep).removeprefix("best ") or "-",
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


def _print_trials(sweep: Mapping[str, Any], trials: Iterator[Mapping[str, Any]]) -> None:
    is_empty = True
    while chunk := list(islice(trials, _AT_ONCE)):
        is_empty = False
        show("\n".join(_trials(sweep["spec"], chunk, others=_reported_names(sweep, chunk))))
    if is_empty:
        say("dibs: it has no trials yet")


def _trials(
    spec: Mapping[str, Any],
    trials: Sequence[Mapping[str, Any]],
    indent: str = "",
    others: Sequence[str] = (),
    has_means: bool = False,
) -> Iterator[str]:
    headings, rows = trial_table(spec, trials, others, has_means)
    last = len(headings) - 1
    width = table_width() - len(indent)
    # On a narrow terminal the job leaves first, then the time, then reported numbers and values from the right.
    first = 1 + len(spec.get("metrics", ()))
    reported = range(first + len(others) - 1, first - 1, -1)
    drop = (last - 1, last - 2, *reported, *(one for one in range(last - 3, 1, -1) if one not in reported))
    heading, *lines = table(headings, rows, width=width, shrink=last, drop=drop)
    yield f"{indent}{styled(heading, 'bold')}"
    for trial, line in zip(trials, lines, strict=True):
        yield f"{indent}{styled(line, TRIAL_COLOURS.get(trial['state'], ''))}"


# -- for programs ------------------------------------------------------------------------------------------


def _print_json(sweep: Mapping[str, Any], trials: Iterator[Mapping[str, Any]]) -> None:
    """One object. A hundred thousand trials are written as they come, not gathered first."""
    show(f'{{"sweep": {sweep["id"]}, "trials": [', end="")
    comma = ""
    for trial in trials:
        show(f"{comma}\n{json.dumps(trial)}", end="")
        comma = ","
    show("\n]}")


def _print_steps(rows: Iterator[tuple[int, int, str, float, float, float]], *, as_json: bool) -> None:
    columns = ("trial", "job", "name", "step", "at_seconds", "value")
    if as_json:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    show(lines.getvalue(), end="")


def _print_csv(spec: Mapping[str, Any], trials: Iterator[Mapping[str, Any]], others: Sequence[str] = ()) -> None:
    metrics = [metric["name"] for metric in spec.get("metrics", ())]
    names = [parameter["name"] for parameter in spec["parameters"]]
    over = spec.get("over")
    if over:
        names.append(over)
    more = ["repeat_of", *(f"{word}.{name}" for word in ("mean", "spread") for name in metrics)] if over else []
    if spec.get("method") == "population":
        more = ["continues"]
    taken = {"trial", "job", "state", "seconds", "why", *metrics, *others}
    columns = [f"param.{name}" if name in taken else name for name in names]
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(["trial", "job", "state", *metrics, *others, *columns, "seconds", "why", *more])
    for trial in trials:
        values = [*(trial["values"] or ()), *[None] * len(metrics)][: len(metrics)]
        values += ["nan" if one is None else one for one in _reported(trial, others)]
        point = [trial["point"].get(name) for name in names]
        job = _job_of(trial)
        seconds = None if trial["seconds"] is None else round(trial["seconds"], 3)
        writer.writerow(
            [
                trial["number"],
                job,
                trial["state"],
                *values,
                *point,
                seconds,
                trial["why"],
                *_of_columns(trial, more),
            ]
        )
        if lines.tell() > 1 << 16:
            show(lines.getvalue(), end="")
            lines.seek(0)
            lines.truncate()
    show(lines.getvalue(), end="")


def _of_columns(trial: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    """What only some sweeps have: repeats with their mean, or what a trial goes on from."""
    if "continues" in names:
        return [trial["continues"]]
    if not names:
        return []
    found = [trial["repeat_of"], *(trial["means"] or ()), *(trial["spreads"] or ())]
    return [*found, *[None] * (len(names) - len(found))]


Sweep = Mapping[str, Any]
Trial = Mapping[str, Any]

COLOURS = {"running": "green", "held": "yellow", "stopped": "yellow", "finished": "dim"}
TRIAL_COLOURS = {"open": "green", "pruned": "dim", "failed": "red", "complete": "", "reused": ""}
_BAR = 24  # columns of the longest bar
_ENDS = ("complete", "reused", "pruned", "failed")  # of a trial, in the order in which they are told


def sweep_name(sweep: Sweep) -> str:
    """`3` or `3 (lr)`."""
    return f"{sweep['id']} ({one_line(sweep['name'], 40)})" if sweep.get("name") else str(sweep["id"])


def show_result(value: float | None) -> str:
    """A result as people read it: six digits are more than a training repeats."""
    return "-" if value is None else f"{value:.6g}"


def count_ended(sweep: Sweep) -> int:
    """How many trials are over."""
    return sum(sweep["counts"].get(state, 0) for state in _ENDS)


def count_with_result(sweep: Sweep) -> int:
    """How many trials have a result that counts."""
    return sum(sweep["counts"].get(state, 0) for state in ("complete", "reused"))


def count_wanted(sweep: Sweep) -> int | None:
    """How many trials there will be, or were; None where it is not known. Conditions may leave fewer."""
    size: int | None = sweep["size"]
    return count_ended(sweep) if sweep["state"] == "finished" else size


def counts_text(sweep: Sweep) -> str:
    """`36 complete, 2 pruned, 2 failed`, with what is still open last."""
    counts = sweep["counts"]
    parts = [f"{counts[state]} {state}" for state in _ENDS if counts.get(state)]
    if counts.get("open"):
        parts.append(f"{counts['open']} under way")
    return ", ".join(parts) or ("no trial yet" if sweep["state"] in ("running", "held") else "no trial")


def results_text(spec: Mapping[str, Any], trial: Trial) -> str:
    """`val_loss 0.0312`, or of several metrics `loss 0.3, seconds 12`."""
    values = _mean_texts(trial) or list(map(show_result, trial.get("values") or ()))
    pairs = zip((metric["name"] for metric in spec.get("metrics", ())), values, strict=False)
    return ", ".join(f"{one_line(name, 40)} {value}" for name, value in pairs)


def best_text(sweep: Sweep) -> str:
    """`best val_loss 0.0312 (trial 7)`; of several metrics how many trials nothing else beats."""
    best = sweep.get("best") or []
    if not best:
        return ""
    if len(best) > 1:
        return f"{len(best)} trials that no other beats"
    return f"best {results_text(sweep['spec'], best[0])} (trial {best[0]['number']})"


def progress_text(sweep: Sweep, seconds_left: float | None = None) -> str:
    """`12/40 done · 3 under way · 1 failed · best val_loss 0.03 (trial 7) · about 2m left`."""
    counts, total = sweep["counts"], count_wanted(sweep)
    parts = [f"{count_ended(sweep)}{f'/{total}' if total is not None else ''} done"]
    parts += [
        f"{counts[state]} {word}"
        for state, word in (("open", "under way"), ("pruned", "pruned"), ("failed", "failed"))
        if counts.get(state)
    ]
    parts += [part for part in (best_text(sweep),) if part]
    if seconds_left is not None:
        parts.append(f"about {show_duration(max(1, round(seconds_left)))} left")
    return " · ".join(parts)


def search_text(spec: Mapping[str, Any]) -> str:
    """How the space is searched: `adaptive (tpe, seed 7) for the lowest val_loss, pruned by halving`."""
    method = spec.get("method", "grid")
    if method == "grid":
        text = f"grid (shuffled, seed {spec.get('seed', 0)})" if spec.get("shuffle") else "grid"
    elif method == "population":
        text = f"population of {spec.get('population', 8)} (seed {spec.get('seed', 0)})"
    elif method == "random":
        text = f"random (seed {spec.get('seed', 0)})"
    else:
        text = f"adaptive ({spec.get('sampler', 'tpe')}, seed {spec.get('seed', 0)})"
    goals = [
        f"the {'highest' if metric.get('goal') == 'max' else 'lowest'} {one_line(metric['name'], 40)}"
        for metric in spec.get("metrics", ())
    ]
    if goals:
        text += f" for {' and '.join(goals)}"
    if spec.get("over"):
        text += f", each point {spec['repeat']} times"
    return f"{text}, pruned by {spec['pruner']}" if spec.get("pruner") else text


def is_random(spec: Mapping[str, Any]) -> bool:
    """Whether another seed would try other points, or in another order."""
    return spec.get("method", "grid") != "grid" or bool(spec.get("shuffle"))


def importance_bars(importance: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One line a parameter: how much of the difference between the results it explains."""
    shown = sorted(importance, key=lambda one: -one["value"])
    width = max((len(one["name"]) for one in shown), default=0)
    for one in shown:
        bar = "█" * max(round(one["value"] * _BAR), 0) or "▏"
        yield f"{one_line(one['name'], 40).ljust(min(width, 40))}  {one['value']:4.0%}  {bar}"


def trial_table(
    spec: Mapping[str, Any], trials: Sequence[Trial], others: Sequence[str] = (), has_means: bool = False
) -> tuple[list[str], list[tuple[str, ...]]]:
    """The headings and rows of some trials: results first, then the values that led to them."""
    metrics = [one_line(metric["name"], 24) for metric in spec.get("metrics", ())]
    names = [parameter["name"] for parameter in spec["parameters"]]
    if spec.get("over") and not has_means:
        names.append(spec["over"])
    reported = [one_line(name, 24) for name in others]
    headings = ["trial", *metrics, *reported, *(one_line(name, 24) for name in names), "time", "job", "state"]
    return headings, [_row(trial, len(metrics), names, others, has_means) for trial in trials]


def _row(
    trial: Trial, metrics: int, names: Sequence[str], others: Sequence[str], has_means: bool
) -> tuple[str, ...]:
    values = [*(trial.get("values") or ()), *[None] * metrics][:metrics]
    seconds, job = trial.get("seconds"), trial.get("job") or trial.get("reused_from")
    state, why = trial["state"], one_line(trial.get("why") or "", 300)
    said = why if why.startswith(state) else f"{state}: {why}" if why else state
    return (
        str(trial["number"]),
        *((_mean_texts(trial) if has_means else None) or map(show_result, values)),
        *("nan" if one is None else show_result(one) if one != "" else "-" for one in _reported(trial, others)),
        *(_value(trial["point"].get(name)) for name in names),
        "-" if seconds is None else show_duration(seconds),
        str(job or "-"),
        said,
    )


def _mean_texts(trial: Trial) -> list[str] | None:
    """`0.31 ± 0.02` of each metric, where the trial stands for the repeats of its point."""
    if not trial.get("means"):
        return None
    pairs = zip(trial["means"], trial["spreads"], strict=True)
    return [f"{show_result(mean)} ± {show_result(float(f'{spread:.2g}'))}" for mean, spread in pairs]


def _reported(trial: Trial, names: Sequence[str]) -> Iterator[Any]:
    """What it has reported under each name; empty where nothing was, None where it was not finite."""
    return (trial["reported"].get(name, "") for name in names)


def _value(text: str | None) -> str:
    return "none" if text is None else one_line(text, 40) or "''"
