"""`dibs export` and `import`: jobs as JSON lines, from one queue to another; or one as a batch script."""

import json
import os
import re
import shlex
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

import click

from dibs.backends.protocol import Resources
from dibs.backends.slurm.sbatch import flags
from dibs.cli.filters import filter_options, query_of
from dibs.cli.output import OVER, job_number, put, say, say_first, show, show_json
from dibs.cli.references import REF, find_jobs
from dibs.client.adding import Batch, difference, send
from dibs.client.client import Client, connect
from dibs.errors import BadInput, NoSuchJob
from dibs.inputs.wishes import LISTED, apply_wishes
from dibs.model.fields import BY_KEY, KEYS, OF_COMMAND, Field, Kind
from dibs.model.jobs import NOTHING, After, State, Wishes
from dibs.model.units import parse_moment, show_ranges

_LONGEST_LINE = 4 << 20  # bytes

_Import = tuple[int | None, dict[str, Any]]  # a job of a file: its number there, and what it wants


@click.command(
    "export",
    epilog="""\b
Examples:
  dibs export > jobs.jsonl
  dibs export --state waiting | ssh other dibs import -
  dibs export 3-9 --project a
  dibs export --sbatch 17 > job.sh      for sbatch, without dibs; 17_ is the array 17
""",
)
@click.argument("references", nargs=-1, type=REF, metavar="[REF...]")
@filter_options
@click.option("--sbatch", is_flag=True, help="Print a job, or an array, as a script that runs without dibs.")
@click.option("--environment", is_flag=True, help="With --sbatch: all variables it was added with, also secrets.")
@click.option("-o", "--output", metavar="FILE", help="With --sbatch: write it to this file.")
def export_jobs(
    references: Sequence[str], sbatch: bool, environment: bool, output: str | None, **options: Any
) -> int:
    """Print jobs as JSON lines that `dibs import` takes, oldest first."""
    if sbatch:
        if not references or query_of(options):
            raise BadInput("a script is for one job or for one array", remedy="dibs export --sbatch 17, or 17_")
        return _export_script(references, environment, output)
    if environment or output:
        raise BadInput("--environment and -o are for --sbatch", remedy="dibs export > FILE")
    client = connect(os.environ)
    query = query_of(options)
    if references:
        query["ids"] = show_ranges([job["id"] for job in _known(client, references)])
    for job in client.export(**query):
        show(json.dumps(job))
    return 0


def _known(client: Client, references: Sequence[str]) -> list[dict[str, Any]]:
    """The jobs that are meant, all of which there are, oldest first."""
    numbers = find_jobs(client, references)
    there = {job["id"]: job for job in client.jobs(ids=show_ranges(numbers))}
    if missing := [number for number in numbers if number not in there]:
        raise NoSuchJob(missing[0])
    return [there[number] for number in sorted(there)]


def _export_script(references: Sequence[str], environment: bool, output: str | None) -> int:
    client = connect(os.environ)
    jobs = _known(client, references)
    first = next(iter(client.export(ids=str(jobs[0]["id"]))))
    script = script_of(jobs, client.environment(jobs[0]["id"]), first.get("umask"), environment)
    data = script.text.encode("utf-8", "surrogateescape")
    if output is None:
        put(1, data)
    else:
        try:
            # Readable for its owner only: the variables may hold secrets.
            with open(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700), "wb") as file:
                file.write(data)
        except OSError as error:
            raise BadInput(f"cannot write {output!r}: {error.strerror}", remedy="name another file") from None
    for one in script.left_out:
        say(f"dibs: {one}")
    return 0


@click.command(
    "import",
    epilog="""\b
Examples:
  dibs import jobs.jsonl
  ssh other dibs export --state waiting | dibs import -
  dibs import jobs.jsonl --again    also those that were over when they were exported

\b
A line becomes a new job with a new number; it waits for the new ones of the jobs it waited for.
It runs in the folder that the line names, with the environment of this shell.
""",
)
@click.argument("file", metavar="FILE|-")
@click.option("--again", is_flag=True, help="Queue jobs that were over, too: they run once more.")
@click.option("--json", "as_json", is_flag=True, help="Print an object: the new numbers by the old ones.")
def import_jobs(file: str, again: bool, as_json: bool) -> int:
    """Queue the jobs of a file that `dibs export` wrote, except those that were over."""
    # All of it first: a line that cannot be read leaves the queue as it was.
    read = [(line, job, _wanted(line, job)) for line, job in _read(file)]
    over = {} if again else {_number_of(job): str(job["state"]) for _, job, _ in read if _is_over(job)}
    jobs = [(_number_of(job), _still_after(wanted, over)) for _, job, wanted in read if again or not _is_over(job)]
    left_out = len(read) - len(jobs)
    say_first(_warnings(jobs, over))
    keys = {
        place: wanted.pop("once") for place, (_, wanted) in enumerate(jobs) if len(jobs) > 1 and "once" in wanted
    }
    added = range(0)
    if jobs:
        client, batches = connect(os.environ), _batches(jobs, left_out=over.keys())
        sent = send(client, batches, defaults={}, environment=dict(os.environ), code=None)
        added = range(sent.first, sent.last + 1)
        say_first([*sent.notes, *(_without_key(added[place], key) for place, key in keys.items() if key)])
    if as_json:
        numbers = {old: new for (old, _), new in zip(jobs, added, strict=True) if old is not None}
        show_json({"jobs": list(added), "numbers": numbers, "left_out": left_out})
        return 0
    if added:
        say(f"queued {len(added)} job{'' if len(added) == 1 else 's'}: {show_ranges(added)}")
    elif not left_out:
        say("the file is empty: nothing was queued")
    if left_out:
        were = "1 job that was over" if left_out == 1 else f"{left_out} jobs that were over"
        say(f"left out {were}; --again queues {'it' if left_out == 1 else 'them'} too")
    return 0


def _batches(jobs: Sequence[_Import], left_out: Collection[int | None]) -> list[Batch]:
    """The jobs in their order, each array apart. One that follows another of the file names its place in it."""
    places = {number: place for place, (number, _) in enumerate(jobs)}
    groups: list[list[dict[str, Any]]] = []
    before: _Import | None = None
    for place, one in enumerate(jobs):
        number, wanted = one
        after = []
        for needed in wanted["after"]:
            there = places.get(needed["job"])
            if there is not None and there >= place:
                raise BadInput(
                    f"job {number} is to follow job {needed['job']}, which does not stand before it",
                    remedy="a job follows older ones; nothing was queued",
                )
            after.append(needed if there is None else {"place": there, "kind": needed.get("kind", After.OK)})
        if before is None or not _goes_on(before, one, left_out):
            groups.append([])
        groups[-1].append({**wanted, "after": after})
        before = one
    return [Batch(group, is_array="array" in group[0]) for group in groups]


def _goes_on(before: _Import, one: _Import, left_out: Collection[int | None]) -> bool:
    """Whether it belongs to the batch of the job before it: another task of its array, or no task either."""
    (old, last), (number, wanted) = before, one
    task, task_before = wanted.get("array"), last.get("array")
    if not task or not task_before:
        return not task and not task_before
    if number is None or old is None:
        return False
    is_next = old < number and all(between in left_out for between in range(old + 1, number))
    return is_next and task["task"] > task_before["task"] and wanted.get("words") == last.get("words")


def _is_over(job: Mapping[str, Any]) -> bool:
    return job.get("state") in OVER


def _still_after(wanted: dict[str, Any], over: Mapping[int | None, str]) -> dict[str, Any]:
    """Without what it waits for no more: jobs that are left out and ended as it wanted them to."""

    def has_come(one: Mapping[str, Any]) -> bool:
        state, kind = over.get(one["job"]), one.get("kind", After.OK)
        return state is not None and kind in list(After) and After(kind).is_met_by(State(state))

    after = wanted.get("after") or []
    return {**wanted, "after": [one for one in after if not has_come(one)]}


def _number_of(job: Mapping[str, Any]) -> int | None:
    return job["id"] if isinstance(job.get("id"), int) else None


def _warnings(jobs: Sequence[_Import], over: Collection[int | None]) -> list[str]:
    """What a job waits for that is not queued with it is looked for in this queue, where it may be another one."""
    known = {number for number, _ in jobs}
    missing = {one["job"] for _, wanted in jobs for one in wanted.get("after") or ()} - known
    why = {number: "was over, and is left out" if number in over else "is not in the file" for number in missing}
    return [
        f"job {number} {why[number]}: those that wait for it wait for job {number} of this queue"
        for number in sorted(missing)
    ]


def _without_key(job: int, key: str) -> str:
    """A list may have no job that is there already: its numbers are in a row."""
    return f"job {job} was queued without its key: dibs edit {job} --once {shlex.quote(key)}"


def _wanted(line: int, job: Mapping[str, Any]) -> dict[str, Any]:
    """The wishes in a line, without what the job went through. A line without an id is one of a job list."""
    is_by_hand = "id" not in job
    words = {
        key: value
        for key, value in job.items()
        if key in LISTED and value is not None and (is_by_hand or key not in KEYS) and key not in OF_COMMAND
    }
    wanted = {key: value for key, value in job.items() if key in KEYS and key not in words}
    if isinstance(wanted.get("command"), list):
        wanted["words"] = wanted.pop("command")
    try:
        wanted |= difference(apply_wishes(NOTHING, words), NOTHING)
    except BadInput as error:
        raise BadInput(f"line {line}: {error.message}", remedy=error.remedy) from error
    if not wanted.get("command") and not wanted.get("words"):
        raise BadInput(f"line {line} has no command", remedy='it is an object like {"command": "python train.py"}')
    if job.get("state") == "held":
        wanted["hold"] = True
    array = wanted.pop("array", None)
    if isinstance(array, dict) and isinstance(array.get("task"), int):
        wanted["array"] = {"task": array["task"], "most": array.get("most")}
    after = wanted.get("after") or []
    if not isinstance(after, list) or not all(map(_is_dependency, after)):
        raise BadInput(
            f"cannot read `after` in line {line}", remedy='it is a list like [{"job": 12, "kind": "ok"}]'
        )
    return wanted


def _is_dependency(one: object) -> bool:
    return isinstance(one, dict) and isinstance(one.get("job"), int)


def _read(file: str) -> Iterator[tuple[int, dict[str, Any]]]:
    if file == "-":
        yield from _lines(sys.stdin.buffer)
        return
    try:
        with open(file, "rb") as opened:
            yield from _lines(opened)
    except OSError as error:
        raise BadInput(
            f"cannot read {file!r}: {error.strerror}", remedy="`dibs export` writes such files"
        ) from None


def _lines(file: IO[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    while line := file.readline(_LONGEST_LINE + 1):
        number += 1
        if len(line) > _LONGEST_LINE:
            raise BadInput(f"line {number} is longer than {_LONGEST_LINE} bytes", remedy="nothing was queued")
        if not line.strip():
            continue
        try:
            job = json.loads(line, parse_constant=_refuse)
        except (ValueError, RecursionError):
            job = None
        if not isinstance(job, dict):
            raise BadInput(f"line {number} is no JSON object", remedy="nothing was queued")
        yield number, job


def _refuse(word: str) -> None:
    raise ValueError(word)  # NaN and Infinity are no JSON


Job = Mapping[str, Any]

# Without these most commands of a job are another program, or none. Everything else may be a secret.
_ALWAYS = re.compile(r"PATH|PYTHONPATH|PYTHONHOME|LD_LIBRARY_PATH|VIRTUAL_ENV|CONDA_(PREFIX|DEFAULT_ENV)")
# Slurm, or the shell that it starts, knows better.
_NEVER = re.compile(
    r"SLURM_.*|SLURMD_.*|SBATCH_.*|DIBS_.*|(CUDA|ROCR|HIP)_VISIBLE_DEVICES|GPU|GPU_DEVICE_ORDINAL|CUDA_DEVICE_ORDER"
    r"|_|SHLVL|PWD|OLDPWD|HOSTNAME|TMPDIR|SSH_.*|DISPLAY|TERM|COLUMNS|LINES"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HARMLESS = re.compile(r"[A-Za-z0-9_.,:/-]*")  # between the quotes of a shell
_UNSAID = "'\"\\"  # Slurm reads quotes in its own way
# What a job of dibs may ask for, in the words of a batch script.
_OURS = {
    "DIBS_JOB_ID": '"${{SLURM_JOB_ID:-{id}}}"',
    "DIBS_JOB_NAME": "{name}",
    "DIBS_ATTEMPT": '"$((${{SLURM_RESTART_COUNT:-0}} + 1))"',
    "DIBS_ARRAY_ID": '"${{SLURM_ARRAY_JOB_ID:-{array}}}"',
    "DIBS_ARRAY_TASK_ID": '"${{SLURM_ARRAY_TASK_ID:-{task}}}"',
    "DIBS_GPUS": '"${{CUDA_VISIBLE_DEVICES:-}}"',
    "DIBS_METRICS": '"${{DIBS_METRICS:-$PWD/metrics-${{SLURM_JOB_ID:-{id}}}}}"',
    "DIBS_CHECKPOINT_DIR": '"${{DIBS_CHECKPOINT_DIR:-$PWD/checkpoint-{id}}}"',
}


class ExportedScript(NamedTuple):
    text: str
    left_out: list[str]  # what dibs does for the job and the script does not


def script_of(
    jobs: Sequence[Job], environment: Mapping[str, str], umask: int | None, all_variables: bool
) -> ExportedScript:
    """The script of a job, or of all these tasks of an array."""
    job = jobs[0]
    _check_is_one(jobs)
    left_out = list(_left_out(job))
    what = f"Array {job['array']['id']}" if len(jobs) > 1 else f"Job {job_number(job)}"
    lines = [
        "#!/bin/bash",
        f"# {what} of dibs, and it needs no dibs: sbatch FILE, or bash FILE.",
        *(f"# Left out: {one}." for one in left_out),
        *(f"#SBATCH {one}" for one in _header(jobs)),
        "",
        *([f"umask {umask:04o}"] if umask is not None else []),
        *([f"cd {shlex.quote(job['workdir'])} || exit 1"] if job["workdir"] else []),
        *_exports(job, environment, all_variables),
        *(f"export {name}={value}" for name, value in _ours(job)),
        f"exec {shlex.join(job['words'])}",
    ]
    return ExportedScript("\n".join(lines) + "\n", left_out)


def _check_is_one(jobs: Sequence[Job]) -> None:
    job = jobs[0]
    if job["words"][-3:-2] and job["words"][-3].endswith("/dibs/api/work.py"):
        raise BadInput(
            f"cannot write job {job_number(job)} as a script: it calls a Python function, which dibs carries",
            remedy="put the call into a file, and add that as a command",
        )
    if len(jobs) == 1:
        return
    if len({(one["array"] or {}).get("id", -one["id"]) for one in jobs}) > 1:
        raise BadInput("a script is for one job or for one array", remedy="dibs export --sbatch 17, or 17_")
    for other in jobs[1:]:
        for key in ("words", "workdir", "env", *_WISHES):
            if _same(other[key]) != _same(job[key]):
                raise BadInput(
                    f"the tasks {job_number(job)} and {job_number(other)} of one array differ in {key}",
                    remedy="export them one by one",
                )


def _same(value: Any) -> Any:
    """Without the number of the task, which each has for itself."""
    return {**value, "SLURM_ARRAY_TASK_ID": ""} if isinstance(value, dict) else value


_WISHES = ("num_gpus", "gpu_type", "cpus", "mem_bytes", "time_limit_seconds", "priority", "on_options")


def _header(jobs: Sequence[Job]) -> Iterator[str]:
    """The options, in Slurm's words."""
    job = jobs[0]
    if job["name"]:
        yield f"--job-name={_quoted(job['name'])}"
    wishes = Wishes(num_gpus=job["num_gpus"], gpu_type=job["gpu_type"], cpus=job["cpus"], mem=job["mem_bytes"])
    wanted = Resources(
        wishes=wishes,
        time_limit=job["time_limit_seconds"],
        priority=job["priority"],
        options=tuple(job["on_options"].items()),
    )
    yield from (flag for flag in flags(wanted) if not flag.startswith("--kill-on-invalid-dep"))
    if job["output"]:
        yield f"--output={_quoted(job['output'])}"
    if job.get("error"):
        yield f"--error={_quoted(job['error'])}"
    if len(jobs) > 1:
        most = f"%{job['array']['most']}" if job["array"]["most"] else ""
        yield f"--array={show_ranges(one['array']['task'] for one in jobs)}{most}"
    if job["checkpoint"]:
        yield f"--signal=B:{job['checkpoint']['signal']}@{max(1, round(job['checkpoint']['seconds']))}"
    if job["begin_at"]:
        begin = time.localtime(parse_moment(job["begin_at"]))
        yield f"--begin={time.strftime('%Y-%m-%dT%H:%M:%S', begin)}"


def _left_out(job: Job) -> Iterator[str]:
    """What dibs does for this job and a script does not, each once."""
    found = dict.fromkeys(
        f"{field.not_in_script}{_which(field, job[key])}"
        for key, field in BY_KEY.items()
        if field.not_in_script and job.get(key) and (field.kind is not Kind.SHARE or job[key] != "1")
    )
    yield from found


def _which(field: Field, value: Any) -> str:
    if field.kind is not Kind.DEPENDENCIES:
        return ""
    return f" ({', '.join(str(one['job']) for one in value)})"


def _exports(job: Job, environment: Mapping[str, str], all_variables: bool) -> Iterator[str]:
    """Its own variables; of those that were there when it was added what a command is found by, or all."""
    chosen = {
        name: value
        for name, value in environment.items()
        if _NAME.fullmatch(name)
        and not _NEVER.fullmatch(name)
        and (all_variables or _ALWAYS.fullmatch(name))
        and name not in job["env"]
    }
    for name in sorted(chosen):
        yield f"export {name}={shlex.quote(chosen[name])}"
    for name, value in job["env"].items():
        if not _NAME.fullmatch(name):
            continue  # no shell can set it
        if name.startswith("SLURM_") and _HARMLESS.fullmatch(
            value
        ):  # for a script that was written for Slurm: there it says so itself
            yield f'export {name}="${{{name}:-{value}}}"'
        else:
            yield f"export {name}={shlex.quote(value)}"


def _ours(job: Job) -> Iterator[tuple[str, str]]:
    """What dibs tells its jobs, as far as this one asks for it; a task always knows which it is."""
    asked = " ".join(job["words"])
    array = job["array"] or {"id": job["id"], "task": ""}
    values = {"id": job["id"], "name": shlex.quote(job["name"]), "array": array["id"], "task": array["task"]}
    for name, value in _OURS.items():
        if name not in job["env"] and (name in asked or (name == "DIBS_ARRAY_TASK_ID" and job["array"])):
            yield name, value.format(**values)


def _quoted(text: str) -> str:
    """As Slurm reads it in a line of a script."""
    return shlex.quote("".join("_" if one in _UNSAID or not one.isprintable() else one for one in text))
