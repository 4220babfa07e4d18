"""`dibs add`: jobs into the queue. It prints their numbers and returns."""

import json
import os
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from dibs.cli import options as shared
from dibs.cli.commands import CommandWithArguments, check_parameters, check_words
from dibs.cli.field_options import dependencies_of, field_options, queue_request_of
from dibs.cli.gather import InputReader, in_snapshot, snapshot_of
from dibs.cli.output import one_line, say
from dibs.client.adding import NOTHING, Batch, SentJobs, check_wishes, difference, send
from dibs.client.client import Client, connect
from dibs.inputs.code import describe_code
from dibs.model.fields import Verb

_SHOWN = 20  # jobs of a dry run

_EPILOG = """\b
Examples:
  dibs add -- python train.py --lr 0.1        one job; it prints its number and returns
  dibs add -f commands.txt                    one job a line; jobs.py with yielder(); a #SBATCH script
  dibs add -n 2 -t 4h -J big -- ./train.sh    two GPUs, at most four hours, by the name of big
  dibs add -p lr 0.1 0.01 -- python train.py --lr {lr}
  dibs add --array 1-16%4 -- ./one.sh         DIBS_ARRAY_TASK_ID is 1 to 16, four at a time
  dibs add --after @ -- python evaluate.py    when the job before has succeeded
  dibs add --begin 22:00 -- python train.py   not before ten in the evening
  dibs add --on slurm --partition gpu -- python train.py
  dibs add --dry-run -n 4 -- python train.py  where and when it would start, and why not now

\b
Causes for --retry-on:
  exit-code signal killed time-limit start-error lost
  gpu-oom host-oom gpu-fault import-error syntax-error port-in-use disk-full
"""


@click.command(cls=CommandWithArguments, epilog=_EPILOG, options_metavar="[OPTIONS] [-] [-- COMMAND...]")
@shared.INPUTS
@shared.FILE
@field_options(Verb.ADD)
@shared.SNAPSHOT
@shared.PARAM
@shared.SHUFFLE
@shared.SEED
@shared.SAMPLES
@shared.SHELL
@click.option("--dry-run", is_flag=True, help="Add nothing; say where and when it would start, and why.")
@click.option("-q", "--quiet", "--parsable", is_flag=True, help="Print only the number: 17, or 17-116.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")
@click.pass_context
def add(ctx: click.Context, /, **options: Any) -> int:
    """Put commands into the queue. Each runs when its GPUs are free, also after you have logged out.

    Commands come from -f files, from a pipe, or stand behind --. The folder, the environment and the umask are
    those of now.
    """
    check_words(options, ctx.meta["words"], "add")
    check_parameters(options, ctx.meta["params"], ctx.meta["command"], "add")
    return _Add(options).execute(ctx.meta["command"], ctx.meta["params"])


class _Add:
    """One call of `dibs add`: from options to numbers."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._environ = dict(os.environ)
        self._now = datetime.now()

    def execute(self, command: Sequence[str] | None, params: Any) -> int:
        options = self._options
        request = queue_request_of(options, Verb.ADD)
        gathering = InputReader(options, request, self._environ)
        batches = gathering.read(command, params, self._now)
        defaults = difference(request, NOTHING)
        if options["shell"] != "bash":
            defaults["shell"] = options["shell"]
        for warning in [*gathering.warnings, *self._warnings(batches)]:
            say(f"dibs: {warning}")
        if not batches:
            say("dibs: there is no job in it; nothing was added")
            return 0
        client = connect(os.environ)
        if after := dependencies_of(options, Verb.ADD, client):
            defaults["after"] = [{"job": one.job, "kind": str(one.kind)} for one in after]
        if options["dry_run"]:
            return self._show_prospects(client, batches, defaults)
        code = self._code(request.workdir)
        if options["snapshot"]:
            check_wishes(client, batches, defaults=defaults)
            snapshot = snapshot_of(request.workdir, self._environ)
            code = {**(code or {}), "root": snapshot.root, "snapshot": snapshot.copy}
            defaults["workdir"] = snapshot.place_of(request.workdir)
            batches = in_snapshot(batches, snapshot.place_of, snapshot.root)
        sent = send(client, batches, defaults=defaults, environment=self._environ, code=code)
        self._tell(sent, batches)
        return 0

    def _code(self, workdir: str) -> "dict[str, Any] | None":
        return describe_code(workdir, self._environ)

    def _warnings(self, batches: Sequence[Batch]) -> list[str]:
        count = sum(len(batch.jobs) for batch in batches)
        output = self._options["output"]
        found = []
        if output and count > 1 and "%j" not in output and "%a" not in output:
            found.append(f"all {count} jobs write to {output}; with %j in it each has its own")
        if self._options["retry_on"] and not self._options["retries"]:
            parts = [part for batch in batches for part in (batch.common, *batch.jobs)]
            if not any(part.get("retries") for part in parts):
                found.append("--retry-on alone tries nothing again: --retries says how often")
        return found

    def _show_prospects(self, client: Client, batches: Sequence[Batch], defaults: dict[str, Any]) -> int:
        jobs = [{**batch.common, **job} for batch in batches for job in batch.jobs]
        if not self._options["as_json"]:
            shown = client.check(jobs[:_SHOWN], defaults=defaults)
            told: set[str] = set()
            for prospect, job in zip(shown, jobs, strict=False):
                click.echo(_prospect(prospect))
                for sentence in _known(prospect, {**defaults, **job}):
                    if sentence not in told:
                        click.echo(f"  {sentence}")
                    told.add(sentence)
            if len(jobs) > _SHOWN:
                check_wishes(client, batches, defaults=defaults)
                click.echo(f"... and {len(jobs) - _SHOWN} more jobs")
            return 0

        prospects = [
            prospect
            for start in range(0, len(jobs), 2000)
            for prospect in client.check(jobs[start : start + 2000], defaults=defaults)
        ]
        click.echo(json.dumps({"prospects": prospects}, indent=2))
        return 0

    def _tell(self, sent: SentJobs, batches: Sequence[Batch]) -> None:
        """The numbers on stdout; on a terminal, the command that is most likely wanted next."""
        options = self._options
        first = sent.ranges[0][0]
        for note in sent.notes:
            say(f"dibs: {one_line(note, 500)}")
        if options["as_json"]:
            told = {"first": first, "last": sent.ranges[-1][1], "count": sent.number}
            click.echo(json.dumps({**told, "jobs": sent.shown, "is_new": sent.is_new, "notes": sent.notes}))
            return
        if options["quiet"]:
            click.echo(sent.shown)
            return
        if not sent.is_new:
            click.echo(f"job {sent.shown} has the key {one_line(options['once'], 80)} already")
        elif sent.number > 1:
            array = " (an array)" if len(batches) == 1 and batches[0].is_array else ""
            click.echo(f"added jobs {sent.shown}{array}")
        else:
            name = one_line(options["name"] or "", 80)
            click.echo(f"added job {sent.shown}{f' ({name})' if name else ''}")
        if os.isatty(2):
            say("dibs ls" if sent.number > 1 else f"dibs log -f {first}")


def _known(prospect: dict[str, Any], job: dict[str, Any]) -> list[str]:
    """What jobs like this one were seen to need, where it wants `--vram auto`."""
    if job.get("vram") is None:
        return []
    if lessons := prospect.get("lessons"):
        return [lesson["sentence"] for lesson in lessons]
    from dibs.model.units import show_size

    size = show_size(job["vram_bytes"]) if job.get("vram_bytes") else "the whole card"
    return [f"no job of this shape has ended yet: until one shows how much memory it needs, each books {size}"]


def _prospect(prospect: dict[str, Any]) -> str:
    """`would start now on GPU 0`, or when and why not now."""
    reason = (prospect["reason"] or {}).get("sentence", "")
    gpus = ",".join(map(str, prospect["gpus"] or ()))
    where = f" on GPU {gpus}" if gpus else ""
    if not reason:
        return f"would start now{where}"
    if not prospect["starts_at"]:
        for beginning, then in (("waits", "would wait"), ("is handed", "would be handed")):
            if reason.startswith(beginning):
                return f"{then}{reason.removeprefix(beginning)}"
        return f"would wait: {reason}"
    from dibs.cli.output import show_about

    return f"would start about {show_about(prospect['starts_at'])}{where}: {reason}"
