"""Adding jobs: from the options and inputs of `dibs add` to the API's new jobs, and their numbers.

Everything is read and checked before anything is sent.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.output import estimate_note, one_line, say, show_about
from dibs.cli.references import find_jobs
from dibs.cli.requests import (
    asks_for_gpus,
    check_parameters,
    check_shell,
    choose_seed,
    command_of,
    dependencies_of,
    is_piped,
    points,
    queue_request_of,
    with_command,
)
from dibs.client.adding import Batch, SentJobs, check_wishes, difference, send
from dibs.client.client import Client, connect
from dibs.errors import BadInput
from dibs.inputs.checks import check_request, environment_size
from dibs.inputs.code import describe_code
from dibs.model.fields import Verb
from dibs.model.jobs import NOTHING, Request
from dibs.model.units import show_size
from dibs.paths import make_private, queue_folder, state_folder

if TYPE_CHECKING:
    from dibs.inputs.entries import Entry
    from dibs.inputs.sources import QueueSource

MOST_JOBS = 1_000_000  # of one call; a pipe without an end must not fill the memory
_SHOWN = 20  # jobs of a dry run


class JobAdder:
    """One call of `dibs add`: from options to numbers."""

    def __init__(self, options: dict[str, Any], words: Sequence[str]) -> None:
        self._options = options
        self._words = words
        self._environ = dict(os.environ)
        self._now = datetime.now()

    def execute(self, command: Sequence[str] | None, params: Any) -> int:
        options = self._options
        command = command_of(options, self._words, command, "add")
        check_parameters(options, params, command, "add")
        request = queue_request_of(options, Verb.ADD)
        gathering = InputReader(options, request, self._environ)
        batches = gathering.read(command, params, self._now)
        defaults = difference(request, NOTHING)
        check_shell(options, self._environ)
        if options["shell"] != "bash":
            defaults["shell"] = options["shell"]
        for warning in [*gathering.warnings, *self._warnings(batches)]:
            say(f"dibs: {warning}")
        if not batches:
            say("dibs: there is no job in it; nothing was added")
            return 0
        client = connect(os.environ)
        if after := dependencies_of(options, Verb.ADD, partial(find_jobs, client)):
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
        if (copy := (code or {}).get("snapshot")) and not options["quiet"]:
            tell_of_copy(copy)
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
        for note in sent.notes:
            say(f"dibs: {one_line(note, 500)}")
        if options["as_json"]:
            told = {"first": sent.first, "last": sent.last, "count": sent.number}
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
            say("dibs ls" if sent.number > 1 else f"dibs log -f {sent.first}")


class InputReader:
    """Reads the inputs of one call, in the order files, command, pipe."""

    def __init__(self, options: Mapping[str, Any], defaults: Request, environ: Mapping[str, str]) -> None:
        self._options = options
        self._defaults = defaults
        self._size = environment_size(environ)
        self._count = 0
        self.warnings: list[str] = []

    def read(self, command: Sequence[str] | None, params: Any, now: datetime) -> list[Batch]:
        """Every job of this call. What cannot be meant raises BadInput, with its place."""
        options = self._options
        batches = [self._file(path, now) for path in options["files"]]
        if command is not None:
            batches.append(self._sweep(command, params) if params else self._command(command))
        wants_stdin = "-" in options["inputs"]
        if not batches and not wants_stdin:
            if not is_piped():
                raise BadInput(
                    "there is nothing to add",
                    remedy="pipe commands in, or: dibs add -f FILE · dibs add -- COMMAND",
                )
            wants_stdin = True
        if wants_stdin:
            from dibs.inputs.sources import read_stream_for_queue

            with open(0, "rb", closefd=False) as stdin:
                source = read_stream_for_queue(
                    stdin, self._defaults, options["shell"], environment_size=self._size
                )
                batches.append(self._batch(source))
        if options["array"] is not None:
            batches = [self._array(batches)]
        if options["once"] and self._count != 1:
            raise BadInput("--once names one job", remedy="give each job of a list its own call")
        return [batch for batch in batches if batch.jobs]

    def _command(self, words: Sequence[str]) -> Batch:
        request = with_command(self._defaults, words, self._options["shell"])
        check_request(request, self._size)
        self._count += 1
        return Batch([difference(request, self._defaults)])

    def _sweep(self, words: Sequence[str], params: Any) -> Batch:
        from dibs.sweeps.grid import Grid

        options = self._options
        grid = Grid.of(params)
        count = min(grid.size, options["samples"] or grid.size)
        if count > MOST_JOBS:
            raise BadInput(
                f"these parameters make {count:.15g} jobs, one call adds at most {MOST_JOBS}",
                remedy="draw some of them: --shuffle --samples 1000",
            )
        seed = choose_seed(dict(options), self.warnings)
        samples = options["samples"]
        jobs = []
        for request in points(self._defaults, words, grid, options["shell"], seed=seed, samples=samples):
            check_request(request, self._size)
            jobs.append(difference(request, self._defaults))
        self._count += len(jobs)
        return Batch(jobs)

    def _file(self, path: str, now: datetime) -> Batch:
        from dibs.inputs.sbatch import ScriptReading
        from dibs.inputs.sources import read_file_for_queue

        reading = ScriptReading(
            queued_at=now,
            default_place=_default_place,
            asks_for_gpus=asks_for_gpus(self._options),
            ignored=self._options["ignore"],
        )
        source = read_file_for_queue(
            path, self._defaults, self._options["shell"], environment_size=self._size, script_reading=reading
        )
        self.warnings += source.warnings
        return self._batch(source)

    def _batch(self, source: "QueueSource") -> Batch:
        from dibs.inputs.generator import GeneratorFailed

        try:
            jobs, is_array = self._jobs(source.entries)
        except GeneratorFailed as error:
            raise BadInput(error.message, remedy="nothing was added") from error
        if not is_array:
            return Batch(jobs)
        # All but the number of the task is the same for each, and travels once.
        common = {name: value for name, value in jobs[0].items() if name not in ("array", "env")}
        return Batch([{"array": job["array"], "env": job["env"]} for job in jobs], common, is_array=True)

    def _jobs(self, entries: "Iterator[Entry | str]") -> tuple[list[dict[str, Any]], bool]:
        from dibs.inputs.entries import BadEntry

        jobs: list[dict[str, Any]] = []
        is_array = False
        for entry in entries:
            if isinstance(entry, str):
                jobs.append({"command": entry})
            elif isinstance(entry, BadEntry):
                raise BadInput(f"{entry.where}: {entry.message}", remedy="nothing was added")
            else:
                is_array = is_array or entry.array is not None
                jobs.append(difference(entry, self._defaults))
            if len(jobs) + self._count > MOST_JOBS:
                raise BadInput(f"one call adds at most {MOST_JOBS} jobs", remedy="split the list")
        self._count += len(jobs)
        return jobs, is_array

    def _array(self, batches: Sequence[Batch]) -> Batch:
        from dibs.inputs.slurm import parse_array

        if len(batches) != 1 or len(batches[0].jobs) != 1 or batches[0].is_array:
            raise BadInput("--array repeats one command", remedy="give one behind --, and no list")
        tasks = parse_array(self._options["array"])
        self._count = len(tasks.numbers)
        jobs = [{"array": {"task": task, "most": tasks.most}} for task in tasks.numbers]
        return Batch(jobs, batches[0].jobs[0], is_array=True)


def in_snapshot(batches: Sequence[Batch], place_of: Any, root: str) -> list[Batch]:
    """The same jobs in the copy of their code: their folders, and scripts that lie in it."""

    def moved(job: Mapping[str, Any]) -> dict[str, Any]:
        changed = dict(job)
        if "workdir" in job:
            changed["workdir"] = place_of(job["workdir"])
        if "words" in job:
            inside = root.rstrip("/") + "/"
            changed["words"] = [place_of(word) if word.startswith(inside) else word for word in job["words"]]
        return changed

    return [
        batch._replace(jobs=[moved(job) for job in batch.jobs], common=moved(batch.common)) for batch in batches
    ]


def snapshot_of(workdir: str, environ: Mapping[str, str]) -> Any:
    """A copy of the code as it is now, in the state folder."""
    from dibs.inputs.snapshot import take_snapshot

    make_private(state_folder(environ))
    shelf = f"{make_private(queue_folder(environ))}/code"
    return take_snapshot(workdir, shelf, environ)


def tell_of_copy(copy: str) -> None:
    """Say where the files lie that jobs in a copy of the code write."""
    say(f"dibs: runs in a copy of the code; what it writes there is kept in {one_line(copy, 4000)}")


def _default_place() -> str:
    """Where the daemon lets jobs run that do not say so."""
    from dibs.model.places import LOCAL

    return str(connect(os.environ).status().get("default_backend", LOCAL))


def _known(prospect: dict[str, Any], job: dict[str, Any]) -> list[str]:
    """What jobs like this one were seen to need, where it wants `--vram auto`."""
    if job.get("vram") is None:
        return []
    if lessons := prospect.get("lessons"):
        return [lesson["sentence"] for lesson in lessons]
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
                return f"{then}{reason.removeprefix(beginning)}{estimate_note(prospect)}"
        return f"would wait: {reason}{estimate_note(prospect)}"
    return f"would start about {show_about(prospect['starts_at'])}{where}: {reason}"
