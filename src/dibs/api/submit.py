"""Adds jobs to the queue: `dibs.submit` for commands, `add` for what the API takes."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Unpack

from dibs.api.connection import ask
from dibs.api.job import Job
from dibs.api.job_keywords import JobKeywords
from dibs.api.wishes import read_wishes
from dibs.client.adding import Batch, command_of, difference, send
from dibs.errors import BadInput
from dibs.inputs.checks import check_request, environment_size
from dibs.inputs.code import describe_code
from dibs.inputs.slurm import MOST_TASKS
from dibs.model.jobs import NOTHING, Command, Request

if TYPE_CHECKING:
    from dibs.api.calls import Runner
    from dibs.client.client import Client


def submit(
    command: str | Sequence[str],
    /,
    *,
    runner: "Runner | None" = None,
    shell: str = "bash",
    **wishes: Unpack[JobKeywords],
) -> Job:
    """Add a command to the queue and return at once.

    Text is a line for the shell, a sequence is exact words. The current folder, environment and umask are used.
    A `runner` replaces the shell: words that precede the command, or a function that is called with it in the job.
    """
    read = _command(command, shell)
    said: Mapping[str, Any] = wishes
    if runner is None:
        return add([command_of(read)], said)[0]
    from dibs.api.calls import run_by  # most programs use no runner

    new, call = run_by(runner, read)
    try:
        job = add([new], said)[0]
    except BaseException:
        if call is not None:
            call.remove()
        raise
    if call is not None:
        call.keep(job.id)
    return job


def check(wishes: Mapping[str, Any]) -> None:
    """Ask whether a job with these wishes could ever run; BadInput with the reason where it could not."""

    def asked(client: "Client") -> None:
        defaults = difference(read_wishes(wishes, client=client), NOTHING)
        client.check([command_of(Command.line("true"))], defaults={**defaults, "once": ""})

    ask(asked)


def add(jobs: Sequence[Mapping[str, Any]], wishes: Mapping[str, Any], *, is_array: bool = False) -> list[Job]:
    """Add jobs with the same wishes: all, or none. Those of a new array have their `array`."""
    return ask(lambda client: add_with(client, jobs, wishes, is_array=is_array))


def add_with(
    client: "Client", jobs: Sequence[Mapping[str, Any]], wishes: Mapping[str, Any], *, is_array: bool = False
) -> list[Job]:
    """The same, over an open connection."""
    environ = dict(os.environ)
    base = read_wishes(wishes, client=client)
    size = environment_size(environ)
    for job in jobs:
        check_request(_request(base, job), size)
    sent = send(
        client,
        [Batch(jobs, is_array=is_array)],
        defaults=difference(base, NOTHING),
        environment=environ,
        code=describe_code(base.workdir, environ),
    )
    return [Job(number) for number in range(sent.first, sent.last + 1)]


class LimitedArray:
    """An array of the queue, of which so many tasks run at once. Later jobs join it."""

    def __init__(self, most: int) -> None:
        if most < 1:
            raise BadInput(f"cannot run {most} jobs at once", remedy="the limit is 1 or more")
        self._most = most
        self._number: int | None = None
        self._tasks = 0
        self._lock = Lock()  # the first jobs decide its number

    def add(self, jobs: Sequence[Mapping[str, Any]], wishes: Mapping[str, Any]) -> list[Job]:
        with self._lock:
            begins = self._number is None
            if begins and len(jobs) > MOST_TASKS:
                raise BadInput(
                    f"cannot limit {len(jobs):,} jobs that are added at once: {MOST_TASKS:,} is the most",
                    remedy="put calls together with chunksize, or leave out the limit",
                )
            array = {"most": self._most} | ({} if begins else {"id": self._number})
            first = 1 if begins else self._tasks + 1
            tasks = [{**job, "array": {**array, "task": task}} for task, job in enumerate(jobs, first)]
            self._tasks = first + len(jobs) - 1  # also where no answer comes: they may have been added
            found = add(tasks, wishes, is_array=begins)
            self._number = self._number or found[0].id
            return found


def _request(base: Request, job: Mapping[str, Any]) -> Request:
    """The request, for the checks of its size."""
    command = Command.exact(job["words"]) if "words" in job else Command.line(job["command"])
    return replace(base, command=command, name=job.get("name", base.name))


def _command(command: object, shell: str) -> Command:
    if isinstance(command, str):
        return Command.line(command, shell)
    if isinstance(command, Sequence) and not isinstance(command, bytes | bytearray):
        words = [os.fspath(word) if isinstance(word, os.PathLike) else word for word in command]
        if words and all(isinstance(word, str) for word in words):
            return Command.exact(words)
    if callable(command):
        raise BadInput(
            "cannot read a function as a command",
            remedy="@dibs.job and dibs.Executor put functions into the queue",
        )
    raise BadInput(
        f"cannot read {command!r:.60} as a command", remedy="it is a line of text, or words that no shell touches"
    )
