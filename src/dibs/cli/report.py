"""`dibs report`: GPU hours and energy by week, project and user, and what the GPUs were meanwhile."""

import csv
import io
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import click

from dibs.cli.output import one_line, say, show, show_json, styled, table, table_width
from dibs.client.client import connect
from dibs.errors import BadInput
from dibs.model.units import show_energy
from dibs.model.weeks import THIS_WEEK, Week

_EPILOG = """\b
Examples:
  dibs report                       the last four weeks
  dibs report --week                this week
  dibs report --week 46             the last week with this number
  dibs report --week 2026-W46 --by user
  dibs report --weeks 12 --csv > hours.csv
"""
_MOST_WEEKS = 53
_USES = {
    "job": "in use by jobs",
    "unused": "held without use",
    "others": "used by others",
    "idle": "idle",
    "lost": "lost",
    "unknown": "unknown",
}


@click.command(epilog=_EPILOG)
@click.option(
    "--week",
    is_flag=False,
    flag_value=THIS_WEEK,
    metavar="[WEEK]",
    help="One week: 2026-W46, or 46 for the last one with this number; this week if none is named.",
)
@click.option("--weeks", type=click.IntRange(1, _MOST_WEEKS), help="So many weeks up to this one.  [default: 4]")
@click.option(
    "--by", type=click.Choice(["project", "user"]), default="project", help="Rows for projects, or for users."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the rows as CSV.")
def report(week: str | None, weeks: int | None, by: str, as_json: bool, as_csv: bool) -> int:
    """Show GPU hours and energy by week, and how long GPUs were idle or held without use.

    Eight jobs with an eighth of a GPU for an hour are one GPU hour. Weeks are those of ISO 8601: they begin on
    Monday at midnight, in the time zone of the daemon's machine.
    """
    if week is not None and weeks is not None:
        raise BadInput("--week and --weeks were both given", remedy="choose one")
    if as_json and as_csv:
        raise BadInput("--csv and --json were both given", remedy="choose one")
    found = connect(os.environ).report(week=week or "", weeks=weeks)
    if as_json:
        show_json(found)
        return 0
    if as_csv:
        show(_csv(found["weeks"], by), end="")
    else:
        show("\n\n".join("\n".join(_week(one, by, found["time_zone"])) for one in found["weeks"]))
    if found["is_partial"]:
        say("dibs: there are too many jobs to look at all: the true numbers are higher")
    return 0


def _week(week: Mapping[str, Any], by: str, zone: str) -> list[str]:
    """One week: its rows, and what the GPUs were."""
    year, _, number = week["week"].partition("-W")
    monday = Week(int(year), int(number)).monday
    sunday = monday + timedelta(days=6)
    so_far = "" if week["is_over"] else ", so far"
    title = f"Week {week['week']}: {monday:%d %b} to {sunday:%d %b %Y}, {zone}{so_far}"
    rows = _project_rows(week["projects"]) if by == "project" else _user_rows(week["users"])
    lines = [styled(title, "bold")]
    lines += _aligned(rows) if len(rows) > 1 else ["no job had a GPU"]
    return [*lines, *_machine(week["machine"])]


def _project_rows(projects: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    is_remote = any(one["remote_gpu_hours"] for one in projects)
    headings = ["project", "GPU hours", *(["elsewhere"] if is_remote else []), "energy", "load", "attempts"]
    return [
        headings,
        *(
            [
                one_line(one["project"], 40) or "-",
                _hours(one["gpu_hours"]),
                *([_hours(one["remote_gpu_hours"])] if is_remote else []),
                show_energy(one["energy_watt_hours"]),
                _percent(one["mean_load_percent"]),
                str(one["attempts"]),
            ]
            for one in projects
        ),
    ]


def _user_rows(users: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    is_remote = any(one["remote_gpu_hours"] for one in users)
    headings = ["user", "GPU hours", *(["elsewhere"] if is_remote else []), "outside the queue", "energy"]
    return [
        headings,
        *(
            [
                one_line(one["user"], 40),
                _hours(one["gpu_hours"]),
                *([_hours(one["remote_gpu_hours"])] if is_remote else []),
                _hours(one["outside_gpu_hours"]),
                show_energy(one["energy_watt_hours"]),
            ]
            for one in users
        ),
    ]


def _machine(machine: Mapping[str, Any]) -> list[str]:
    """What the GPUs were; nothing for a week in which none was watched."""
    hours = {word: machine[f"{use}_gpu_hours"] for use, word in _USES.items()}
    total = sum(hours.values())
    if not total:
        return []
    gpus = "1 GPU" if machine["gpus"] == 1 else f"{machine['gpus']} GPUs"
    rows = [[word, _hours(value), f"{100 * value / total:.0f} %"] for word, value in hours.items() if value]
    rows.append(["all", _hours(total), show_energy(machine["energy_watt_hours"])])
    return _aligned([[gpus, "GPU hours", ""], *rows])


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table whose numbers stand at the right of their columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    cells = [
        [row[0], *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))] for row in rows
    ]
    heading, *lines = table(cells[0], cells[1:], width=table_width(), shrink=0)
    return [styled(heading, "dim"), *lines]


def _csv(weeks: Sequence[Mapping[str, Any]], by: str) -> str:
    """One row for each week and project or user, with the keys of the JSON as headings."""
    rows = [{"week": week["week"], **one} for week in weeks for one in week[f"{by}s"]]
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()


def _hours(hours: float) -> str:
    return f"{hours:.1f}" if hours >= 0.1 or not hours else f"{hours:.2f}"


def _percent(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f} %"
