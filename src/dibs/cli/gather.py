"""From the inputs of `dibs add` to the API's new jobs. Everything is read and checked before anything is sent."""

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dibs.cli.commands import choose_seed, is_piped, points, with_command
from dibs.client.adding import Batch, difference
from dibs.client.client import connect
from dibs.errors import BadInput
from dibs.inputs.checks import check_request, environment_size
from dibs.model.jobs import Request
from dibs.paths import make_private, queue_folder, state_folder

if TYPE_CHECKING:
    from dibs.inputs.entries import Entry
    from dibs.inputs.sources import QueueSource

MOST_JOBS = 1_000_000  # of one call; a pipe without an end must not fill the memory


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
        from dibs.inputs.sources import read_file_for_queue

        source = read_file_for_queue(
            path,
            self._defaults,
            self._options["shell"],
            environment_size=self._size,
            now=now,
            default_place=_default_place,
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


def _default_place() -> str:
    """Where the daemon lets jobs run that do not say so."""
    from dibs.model.places import LOCAL

    return str(connect(os.environ).status().get("default_backend", LOCAL))
