"""A job as a batch script that runs without dibs: `dibs export --sbatch 17`."""

import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dibs.cli.words import number
from dibs.errors import BadInput
from dibs.model.fields import BY_KEY, Field, Kind
from dibs.model.ranges import show_ranges
from dibs.model.units import parse_moment

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
    what = f"Array {job['array']['id']}" if len(jobs) > 1 else f"Job {number(job)}"
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
            f"cannot write job {number(job)} as a script: it calls a Python function, which dibs carries",
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
                    f"the tasks {number(job)} and {number(other)} of one array differ in {key}",
                    remedy="export them one by one",
                )


def _same(value: Any) -> Any:
    """Without the number of the task, which each has for itself."""
    return {**value, "SLURM_ARRAY_TASK_ID": ""} if isinstance(value, dict) else value


_WISHES = ("num_gpus", "gpu_type", "cpus", "mem_bytes", "time_limit_seconds", "priority", "on_options")


def _header(jobs: Sequence[Job]) -> Iterator[str]:
    """The options, in Slurm's words."""
    from dibs.backends.protocol import Wanted
    from dibs.backends.slurm.flags import flags
    from dibs.model.jobs import Wishes

    job = jobs[0]
    if job["name"]:
        yield f"--job-name={_quoted(job['name'])}"
    wishes = Wishes(num_gpus=job["num_gpus"], gpu_type=job["gpu_type"], cpus=job["cpus"], mem=job["mem_bytes"])
    wanted = Wanted(
        wishes=wishes,
        time_limit=job["time_limit_seconds"],
        priority=job["priority"],
        options=tuple(job["on_options"].items()),
    )
    yield from (flag for flag in flags(wanted) if not flag.startswith("--kill-on-invalid-dep"))
    if job["output"]:
        yield f"--output={_quoted(job['output'])}"
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
