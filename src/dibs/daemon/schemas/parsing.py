"""From what was sent to requests that the engine takes."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from dibs.daemon.schemas.requests import NewJob
from dibs.errors import BadInput
from dibs.inputs.checks import check_request, check_text, environment_size
from dibs.model.field_values import with_values
from dibs.model.fields import BY_KEY, Kind
from dibs.model.jobs import After, ArrayTask, Checkpoint, Command, Dependency, JobId, Request, Wishes
from dibs.model.places import LOCAL, check_place
from dibs.model.pool import is_gpu_id
from dibs.model.units import parse_moment, parse_share
from dibs.model.warm import check_modules


def requests_of(
    jobs: Sequence[NewJob], defaults: NewJob, environment: Mapping[str, str], place: str = LOCAL
) -> tuple[Request, ...]:
    """Each job as its own keys on top of the defaults. A thousand that differ in their command share the rest.

    `place` is where those run that do not say.
    """
    for key, value in environment.items():
        check_variable(key, value)
    size = environment_size(environment)
    base = apply(replace(_NOTHING, on=_place(place, "on")), defaults)
    # Not dataclasses.replace: it looks at two dozen fields again for every one of a hundred thousand jobs.
    shared = {field.name: getattr(base, field.name) for field in fields(base) if field.name != "command"}
    shell = defaults.get("shell", "bash")
    found = []
    for number, job in enumerate(jobs, 1):
        try:
            if job.keys() == _COMMAND:
                request = Request(command=Command.line(job["command"], shell), **shared)
            else:
                request = apply(base, _with_its_shell(job, defaults))
            check_request(request, size)
            check_place(request)
        except BadInput as error:
            if len(jobs) == 1:
                raise
            raise BadInput(f"job {number} of this call: {error.message}", remedy=error.remedy) from error
        found.append(request)
    return tuple(found)


def apply(request: Request, job: Mapping[str, Any]) -> Request:
    """The request with this job's keys set."""
    values = {
        field.name: _READERS[field.kind](value, key) if field.kind in _READERS else value
        for key, value in job.items()
        if (field := BY_KEY.get(key)) is not None
    }
    if values.get("on") == "":
        values.setdefault("on_options", ())  # they were for the place that it runs on no more
    if command := _command(job):
        values["command"] = command
    return with_values(request, values)


def moment(text: str, what: str) -> float:
    """Seconds since the epoch out of an RFC 3339 time, or out of the number itself."""
    if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", text):
        return float(text)
    return parse_moment(text, what)


def check_variable(key: str, value: str) -> None:
    if not key or "=" in key:
        raise BadInput(f"{key[:60]!r} is no name of a variable", remedy="it is text without a =")
    check_text(key, "the name of a variable")
    check_text(value, f"the variable {key}")


def _with_its_shell(job: NewJob, defaults: NewJob) -> NewJob:
    """A command and its shell belong together, wherever each of them was given."""
    if "words" in job or "words" in defaults or not job.keys() & {"command", "shell"}:
        return job
    return {"command": defaults.get("command", ""), "shell": defaults.get("shell", "bash"), **job}


def _command(job: Mapping[str, Any]) -> Command | None:
    if "words" in job:
        exact = Command.exact(job["words"])
        return Command(exact.words, job["command"]) if "command" in job else exact
    if "command" in job:
        return Command.line(job["command"], job.get("shell", "bash"))
    return None


# -- single values -----------------------------------------------------------------------------------------


def _text(value: str, key: str) -> str:
    check_text(value, key)
    return value


def _texts(value: list[str], key: str) -> tuple[str, ...]:
    return tuple(_text(item, key) for item in value)


def _folder(value: str, key: str) -> str:
    if value and not value.startswith("/"):
        raise BadInput(f"the {key} {value[:60]!r} is not absolute", remedy="the daemon has a folder of its own")
    return _text(value, key)


def _variables(value: dict[str, str], key: str) -> tuple[tuple[str, str], ...]:
    for name, setting in value.items():
        check_variable(name, setting)
    return tuple(value.items())


def _share(value: str | None, key: str) -> Any:
    return None if value is None else parse_share(value)


def _gpu_ids(value: list[str], key: str) -> tuple[str, ...]:
    for gpu in value:
        if not is_gpu_id(gpu):
            raise BadInput(f"cannot read {gpu[:60]!r} as a GPU in `{key}`", remedy="name GPUs like 0 or GPU-3f2a")
        check_text(gpu, key)
    if len(set(value)) < len(value):
        raise BadInput(f"a GPU is named twice in `{key}`", remedy="name every GPU once")
    return tuple(value)


def _after(value: list[dict[str, Any]], key: str) -> tuple[Dependency, ...]:
    found = {item["job"]: Dependency(JobId(item["job"]), After(item.get("kind", "ok"))) for item in value}
    if len(found) < len(value):
        raise BadInput("a job is named twice in `after`", remedy="name every job once")
    return tuple(found.values())


def _begin(value: str | None, key: str) -> float | None:
    return None if value is None else moment(value, key)


def _array(value: dict[str, Any] | None, key: str) -> ArrayTask | None:
    return None if value is None else ArrayTask(JobId(0), value["task"], value.get("most"))


def _checkpoint(value: dict[str, Any] | None, key: str) -> Checkpoint | None:
    return None if value is None else Checkpoint(value["signal"], float(value["seconds"]))


def _place(value: str, key: str) -> str:
    return "" if value == LOCAL else value


def _on_options(value: dict[str, str], key: str) -> tuple[tuple[str, str], ...]:
    return tuple((_text(name, key), _text(told, key)) for name, told in value.items())


def _seconds(value: float | None, key: str) -> float | None:
    return None if value is None else float(value)


_Reader = Callable[[Any, str], Any]
_NOTHING = Request(command=Command((), ""), wishes=Wishes())
_COMMAND = {"command"}
_READERS: dict[Kind, _Reader] = {  # all others are as they were sent
    Kind.SHAPE: lambda value, key: value or "",
    Kind.SHARE: _share,
    Kind.GPU_IDS: _gpu_ids,
    Kind.NAME: _text,
    Kind.NAMES: _texts,
    Kind.KEY: _text,
    Kind.DURATION: _seconds,
    Kind.MOMENT: _begin,
    Kind.FOLDER: _folder,
    Kind.FILE: _folder,
    Kind.VARIABLES: _variables,
    Kind.MODULES: lambda value, key: check_modules(value),
    Kind.CAUSES: _texts,
    Kind.CHECKPOINT: _checkpoint,
    Kind.DEPENDENCIES: _after,
    Kind.ARRAY: _array,
    Kind.CHOICE: _text,
    Kind.PLACE: _place,
    Kind.SYSTEM_OPTIONS: _on_options,
}
