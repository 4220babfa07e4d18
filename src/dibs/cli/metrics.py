"""`dibs metrics`: the numbers that jobs have reported."""

import csv
import io
import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import click

from dibs.cli.options import count
from dibs.cli.output import job_number, one_line, say, say_first, show, show_json, styled, table, table_width
from dibs.cli.references import REF, find_jobs
from dibs.client.client import connect
from dibs.errors import BadInput

_EPILOG = """\b
Examples:
  dibs metrics 17                      the last value of each, the lowest and the highest
  dibs metrics 17 18 19 -m loss        of three jobs, to compare
  dibs metrics @ -m 'val/*' --csv > curves.csv
  dibs metrics 17 --json | jq '.series[] | {name, last}'

\b
A job reports by lines in the file that $DIBS_METRICS names, as in
  echo "loss=0.3 step=5" >> "$DIBS_METRICS"
by dibs.report(loss=0.3, step=5) in Python, or by files of TensorBoard in its folder.
--metric-pattern of `dibs add` finds them in the output of a program that reports none.
--csv and --json have the points: at most 512 of each series, the lowest and the highest among them.
"""


@click.command(epilog=_EPILOG)
@click.argument("references", nargs=-1, required=True, type=REF, metavar="REF...")
@click.option(
    "-m", "--name", "names", multiple=True, metavar="NAME", help="Only these: loss, 'val/*'; may be given again."
)
@click.option("--attempt", type=count(1), metavar="N", help="Of this attempt, not of the last.")
@click.option("--json", "as_json", is_flag=True, help="Print an object, or of several jobs a list.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the points: job, attempt, name, step, seconds, value.")
def metrics(
    references: Sequence[str], names: Sequence[str], attempt: int | None, as_json: bool, as_csv: bool
) -> int:
    """Show the numbers that jobs have reported, also while they run."""
    if as_json and as_csv:
        raise BadInput("--json and --csv exclude each other", remedy="choose one")
    client = connect(os.environ)
    points = None if as_json or as_csv else 0
    found = [client.job_metrics(job, attempt=attempt, points=points) for job in find_jobs(client, references)]
    for one in found:
        one["series"] = [series for series in one["series"] if _is_wanted(series["name"], names)]
    if as_json:
        show_json(found[0] if len(found) == 1 else found)
    elif as_csv:
        _print_csv(found)
    else:
        _print_table(
            found, {one["job"]: job_number(client.job(one["job"])) for one in found}, is_filtered=bool(names)
        )
    say_first([f"job {one['job']}: {note}" for one in found for note in one["notes"]])
    return 0


def _is_wanted(name: str, names: Sequence[str]) -> bool:
    return not names or any(name == wanted or fnmatchcase(name, wanted) for wanted in names)


def _print_table(found: Sequence[Mapping[str, Any]], numbers: Mapping[int, str], *, is_filtered: bool) -> None:
    headings = ("job", "metric", "last", "step", "min", "max", "reported")
    rows = [
        (numbers[one["job"]], one_line(series["name"], 100), *_cells(series))
        for one in found
        for series in one["series"]
    ]
    for one in found:
        if not one["series"]:
            say(f"dibs: job {numbers[one['job']]} has reported nothing{' by such a name' if is_filtered else ''}")
    if rows:
        heading, *lines = table(headings, rows, width=table_width(), shrink=1)
        show("\n".join([styled(heading, "bold"), *lines]))


def _cells(series: Mapping[str, Any]) -> tuple[str, ...]:
    bad = f", {series['not_finite']} not finite" if series["not_finite"] else ""
    return (
        "nan" if series["last"] is None else show_number(series["last"]),
        show_number(series["last_step"]),
        show_number(series["min"]),
        show_number(series["max"]),
        f"{series['reported']}{bad}",
    )


def show_number(number: float | None) -> str:
    return "-" if number is None else f"{number:.6g}" if isinstance(number, float) else str(number)


def _print_csv(found: Sequence[Mapping[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["job", "attempt", "name", "step", "at_seconds", "value"])
    for one in found:
        for series in one["series"]:
            for step, at, value in zip(series["steps"], series["at_seconds"], series["values"], strict=True):
                writer.writerow([one["job"], one["attempt"], series["name"], step, at, value])
    show(text.getvalue(), end="")
