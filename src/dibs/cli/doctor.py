"""`dibs doctor`: looks at what dibs stands on, and says what to do; `--rebuild` makes the store again."""

import os
from typing import Any

import click

from dibs import paths
from dibs.cli.doctor_checks import PROBLEM, check_up
from dibs.cli.output import confirm, one_line, say, show, show_json, styled
from dibs.errors import BadInput
from dibs.store.rebuild import RebuildReport

_EPILOG = """\b
Examples:
  dibs doctor                    one line for each thing; 1 where something is wrong
  dibs doctor --rebuild          make a damaged store again; the old one is kept
"""


@click.command(epilog=_EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list, one object for each finding.")
@click.option(
    "--rebuild", "wants_rebuild", is_flag=True, help="Make the store again from the journal, after asking."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def doctor(as_json: bool, wants_rebuild: bool, yes: bool) -> int:
    """Check the folders, the store, the daemon and the GPUs, and say what to do about problems.

    Nothing is changed. With --rebuild the store is made again from the journal and the attempts' folders, and what
    could not be restored is named; jobs that run are left alone.
    """
    if wants_rebuild:
        return _rebuild(as_json, yes)

    findings = check_up(os.environ)
    if as_json:
        keys = ("name", "state", "sentence", "remedy")
        show_json([{key: getattr(finding, key) for key in keys} for finding in findings])
    else:
        _show(findings)
    return 1 if any(finding.state == PROBLEM for finding in findings) else 0


def _show(findings: Any) -> None:
    colours = {"ok": "green", "warning": "yellow", "problem": "red"}
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        state = styled(f"{finding.state:7}", colours[finding.state])
        show(f"{state}  {finding.name:{width}}  {one_line(finding.sentence, 1000)}")
        if finding.remedy:
            show(f"{'':{width + 11}}{one_line(finding.remedy, 1000)}")


def _rebuild(as_json: bool, yes: bool) -> int:
    queue = paths.queue_folder(os.environ)
    if not os.path.isdir(queue):
        raise BadInput(
            f"cannot find a queue in {queue}", remedy="`dibs doctor` tells which folder is used, and why"
        )
    question = f"make the store in {one_line(queue, 1000)} again? The old one is kept beside it."
    if not yes and not confirm(question, what="rebuild the store"):
        say("nothing was changed")
        return 1
    from dibs.build.queue import rebuild_store  # the engine, which the checks do without

    report = rebuild_store(queue)
    if as_json:
        show_json({"jobs": report.jobs, "attempts": report.attempts, "missing": report.missing, "old": report.old})
    else:
        say(_in_words(report))
        for sentence in report.missing:
            say(f"  missing: {one_line(sentence, 1000)}")
    return 1 if report.missing else 0


def _in_words(report: RebuildReport) -> str:
    old = f"; the old store is {one_line(report.old, 1000)}" if report.old else ""
    return f"restored {report.jobs} jobs and {report.attempts} attempts{old}"
