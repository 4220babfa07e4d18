"""`dibs why`: the one sentence that says what a job waits for."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import click

from dibs.cli.references import REF

_EPILOG = """\b
Examples:
  dibs why 17        waits for 2 GPUs: GPU 1 is held by job 12 until about 14:30
  dibs why @         the last job that was added
  dibs why --json 17 | jq -r .reason.code
"""


@click.command(epilog=_EPILOG)
@click.argument("references", nargs=-1, required=True, type=REF, metavar="REF...")
@click.option("--json", "as_json", is_flag=True, help="Print an object, or of several jobs a list.")
def why(references: Sequence[str], as_json: bool) -> int:
    """Say what a job waits for, or how it is with one that does not wait."""
    from dibs.cli.output import show, show_json
    from dibs.cli.references import find_jobs
    from dibs.client.client import connect

    client = connect(os.environ)
    jobs = find_jobs(client, references)
    if as_json:
        answers = [client.why(job) for job in jobs]
        show_json(answers[0] if len(answers) == 1 else answers)
        return 0
    for number in jobs:
        job = client.job(number)
        show(sentence(job, client.why(number)))
    return 0


def sentence(job: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """`job 17 waits for 2 GPUs: ...`; of a job that does not wait, what it does instead."""
    from dibs.cli.output import one_line
    from dibs.cli.words import OVER, called, explanation, how_it_ended, seconds_so_far
    from dibs.model.units import show_duration

    who = f"job {called(job)}"
    if job["state"] in OVER:
        how, told = how_it_ended(job), one_line(explanation(job), 500)
        return f"{who} does not wait: it {how}{f': {told}' if told and told not in how else ''}"
    if job["state"] == "running":
        runs = f"{who} does not wait: it runs{_where(job)} for {show_duration(seconds_so_far(job))}"
        reason = answer.get("reason")  # of one that runs elsewhere and does not come on
        return f"{runs}; {one_line(reason['sentence'], 1000)}" if reason else runs
    return f"{who} {waits(answer)}"


def _where(job: Mapping[str, Any]) -> str:
    """` on GPU 0, 1`, or ` on node n1, GPU 0,1`."""
    from dibs.cli.output import one_line
    from dibs.cli.words import cards

    if node := job.get("node"):
        gpus = job.get("node_gpus")
        return f" on node {one_line(node, 60)}{f', GPU {one_line(gpus, 60)}' if gpus else ''}"
    return f" on GPU {', '.join(cards(job))}" if cards(job) else ""


def waits(answer: Mapping[str, Any]) -> str:
    """The daemon's reason, and when it will be over where that is known and not yet said."""
    from dibs.cli.output import one_line
    from dibs.cli.times import about

    reason = answer.get("reason")
    if not reason:
        return "waits at Slurm" if answer.get("state") == "submitted" else "starts next"
    told = one_line(reason["sentence"], 1000)
    if answer.get("starts_at") and "until about" not in told:
        told += f"; it may start at about {about(answer['starts_at'])}"
    return told
