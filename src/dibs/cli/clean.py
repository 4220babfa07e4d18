"""`dibs clean`: forget jobs that are over."""

import os

import click

from dibs.cli.filters import STATE
from dibs.cli.options import TIME
from dibs.cli.output import OVER, confirm, one_line, say, show_json
from dibs.cli.references import complete_projects
from dibs.client.client import Client, connect
from dibs.errors import BadInput
from dibs.model.units import show_duration

_EPILOG = """\b
Examples:
  dibs clean --older 30d               what ended more than 30 days ago
  dibs clean --state succeeded --yes   without asking
  dibs clean --project old
"""


@click.command(epilog=_EPILOG)
@click.option("--older", type=TIME, metavar="TIME", help="Only jobs that ended longer ago than this: 30d, 12h.")
@click.option("--state", type=STATE, metavar="STATES", help="Only these: succeeded,failed,cancelled,...")
@click.option("-P", "--project", metavar="NAME", shell_complete=complete_projects, help="Only this project.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print an object: how many were removed, and what is kept.")
def clean(
    older: float | None, state: tuple[str, ...] | None, project: str | None, yes: bool, as_json: bool
) -> int:
    """Forget jobs that are over, with their output. Without options that is all of them.

    What they wrote in copies of the code (--snapshot) is kept, and its folders are listed.
    """
    wrong = [one for one in state or () if one not in OVER]
    if wrong:
        raise BadInput(f"jobs that are {wrong[0]} are not over", remedy="`dibs kill` ends them")
    client = connect(os.environ)
    if not yes and not _agrees(client, older, state or (), project):
        say("nothing was removed")
        return 1
    cleaned = client.clean(older_seconds=older or 0, states=state or (), project=project or "")
    if as_json:
        show_json(cleaned)
        return 0
    removed, kept = cleaned["removed"], cleaned["kept"]
    say(f"removed {removed} job{'' if removed == 1 else 's'}")
    if kept:
        say("what they wrote in copies of the code (--snapshot) is kept until you delete it:")
        for folder in kept:
            say(f"  {one_line(folder, 4000)}")
    return 0


def _agrees(client: Client, older: float | None, states: tuple[str, ...], project: str | None) -> bool:
    number = client.would_clean(older_seconds=older or 0, states=states, project=project or "")
    whose = f" of project {one_line(project, 60)}" if project else ""
    when = f" that ended more than {show_duration(older)} ago" if older else ""
    what = f"{number} job{'' if number == 1 else 's'}{whose}{when}"
    return confirm(f"remove {what}, and {'its' if number == 1 else 'their'} output?", what="remove jobs")
