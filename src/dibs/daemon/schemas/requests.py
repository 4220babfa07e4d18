"""The JSON that clients may send, and the requests that the engine gets from it.

The models are strict: an unknown key, a boolean in place of a number and NaN are refused.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict  # pydantic reads the one in typing from Python 3.12 only

from dibs.errors import BadInput
from dibs.inputs.checks import check_place, check_request, check_text, environment_size
from dibs.metrics.patterns import MOST_PATTERNS, check_patterns
from dibs.model import fields
from dibs.model.fields import BY_KEY, Kind
from dibs.model.jobs import NOTHING, After, ArrayTask, Checkpoint, Command, Dependency, JobId, Request, with_values
from dibs.model.mounts import parse_mount
from dibs.model.places import LOCAL
from dibs.model.units import check_modules, is_gpu_id, parse_moment, parse_ranges, parse_share

MOST_JOBS = 5_000  # in one request
MOST_JOBS_OF_LIST = 1_000_000
MOST_IDS = 10_000
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_State = TypeVar("_State", bound=StrEnum)
_MOST_RANGES = 500
_MOST = 2**53  # the largest whole number that every JSON reader keeps exact


def _up_to(longest: int, least: int = 0) -> AfterValidator:
    """A limit on the characters of a text. Pydantic's own cannot count text that is not UTF-8."""

    def check(text: str) -> str:
        if not least <= len(text) <= longest:
            raise ValueError(f"it has {len(text)} characters; {least} to {longest} are allowed")
        if "\0" in text:
            raise ValueError("it contains a NUL byte")
        return text

    return AfterValidator(check)


def _described(longest: int, least: int = 0) -> Any:
    """The same, for the description of the API."""
    return Field(json_schema_extra={"minLength": least, "maxLength": longest, "pattern": r"^[^\u0000]*$"})


Text = Annotated[str, _up_to(4096), _described(4096)]
Name = Annotated[str, _up_to(255), _described(255)]
Word = Annotated[str, _up_to(131_071), _described(131_071)]
Key = Annotated[str, _up_to(255, 1), _described(255, 1)]
Id = Annotated[int, Field(ge=1, le=_MOST)]
Bytes = Annotated[int, Field(ge=1, le=_MOST)]
Seconds = Annotated[float, Field(gt=0, le=3.2e9)]
Share = Annotated[str, Field(json_schema_extra={"pattern": r"^[0-9]+(\.[0-9]+|/[0-9]+)?$", "examples": ["1/2"]})]
GpuIds = Annotated[list[Name], Field(max_length=1024)]
Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Like = Id | Literal["daemon"] | None
StateName = Literal[
    "queued",
    "held",
    "submitted",
    "running",
    "suspended",
    "succeeded",
    "failed",
    "cancelled",
    "timed_out",
    "lost",
]


@with_config(_STRICT)
class NewDependency(TypedDict):
    job: Id
    kind: NotRequired[Literal["ok", "any", "fail"]]


@with_config(_STRICT)
class NewArrayTask(TypedDict):
    task: Annotated[int, Field(ge=0, le=_MOST)]
    id: NotRequired[Annotated[int, Field(ge=1, le=_MOST)]]
    most: NotRequired[Annotated[int, Field(ge=1, le=1_000_000)] | None]


@with_config(_STRICT)
class NewCheckpoint(TypedDict):
    signal: Annotated[int, Field(ge=1, le=64)]
    seconds: Seconds


def _sent(field: fields.Field) -> Any:
    """The type of a field's value in a request. The default is allowed too."""
    kind: Any = _KINDS.get(field.kind)
    if field.kind in (Kind.COUNT, Kind.MODE):
        kind = Annotated[int, Field(ge=field.least, le=field.most)]
    elif field.kind is Kind.DURATION and field.default is not None:
        kind = Annotated[float, Field(ge=0, le=3.2e9)]  # a grace of 0 is allowed
    elif field.kind in (Kind.CHOICE, Kind.PLACE):
        kind = Literal["", *field.choices]
    return kind | None if field.default is None or field.kind is Kind.SHAPE else kind


_KINDS = {
    Kind.SIZE: Bytes,
    Kind.VRAM: Bytes,
    Kind.SHAPE: Literal["auto"],
    Kind.SHARE: Share,
    Kind.GPU_IDS: GpuIds,
    Kind.NAME: Name,
    Kind.NAMES: Annotated[list[Name], Field(max_length=64)],
    Kind.KEY: Name,
    Kind.FLAG: bool,
    Kind.DURATION: Seconds,
    Kind.MOMENT: Moment,
    Kind.FOLDER: Text,
    Kind.FILE: Text,
    Kind.VARIABLES: dict[Text, Word],
    Kind.MODULES: Annotated[list[Name], Field(max_length=32)],
    Kind.MOUNTS: Annotated[list[Text], Field(max_length=64)],
    Kind.PATTERNS: Annotated[list[Text], Field(max_length=MOST_PATTERNS)],
    Kind.CAUSES: Annotated[list[Name], Field(max_length=32)],
    Kind.CHECKPOINT: NewCheckpoint,
    Kind.DEPENDENCIES: Annotated[list[NewDependency], Field(max_length=10_000)],
    Kind.ARRAY: NewArrayTask,
    Kind.SYSTEM_OPTIONS: Annotated[dict[Name, Name], Field(max_length=32)],
}

if TYPE_CHECKING:
    NewJob = dict[str, Any]
    Change = dict[str, Any]
else:
    _Wishes = TypedDict("_Wishes", {key: _sent(field) for key, field in fields.BY_KEY.items()}, total=False)

    @with_config(_STRICT)
    class NewJob(_Wishes, total=False):
        """A new job. Every key but the command has a default."""

        command: Word
        words: Annotated[list[Word], Field(min_length=1, max_length=100_000)]
        shell: Text

    @with_config(_STRICT)
    class Change(NewJob, total=False):
        """Changes to a job that has not started: its fields, and its place in the queue."""

        top: bool
        before: Id
        behind: Id


@with_config(_STRICT)
class NewPart(TypedDict):
    """Where the jobs of a request stand in a list that is sent in several requests, one after another."""

    offset: Annotated[int, Field(ge=0, le=MOST_JOBS_OF_LIST)]  # jobs of the list before them
    jobs: Annotated[int, Field(ge=1, le=MOST_JOBS_OF_LIST)]  # of the whole list


@with_config(_STRICT)
class NewJobs(TypedDict):
    """Jobs that are accepted together, or not at all. The same key again returns the same numbers.

    More jobs than one request may have are sent as a list: requests with the same key, each with its `part`. The
    jobs are added with the last part.
    """

    key: Key
    environment: NotRequired[dict[Text, Word]]
    like: NotRequired[Like]  # instead of an environment: that of a job, or of the daemon
    code: NotRequired[dict[str, Any] | None]
    defaults: NotRequired[NewJob]
    part: NotRequired[NewPart]
    jobs: Annotated[list[NewJob], Field(min_length=1, max_length=MOST_JOBS)]


@with_config(_STRICT)
class Check(TypedDict):
    environment: NotRequired[dict[Text, Word]]
    like: NotRequired[Like]
    defaults: NotRequired[NewJob]
    jobs: Annotated[list[NewJob], Field(min_length=1, max_length=MOST_JOBS)]


@with_config(_STRICT)
class NewSweepBody(TypedDict):
    """A search over parameters. Its jobs have the defaults. The same key again returns the same number."""

    key: Key
    environment: NotRequired[dict[Text, Word]]
    like: NotRequired[Like]
    code: NotRequired[dict[str, Any] | None]
    defaults: NotRequired[NewJob]
    spec: dict[str, Any]


@with_config(_STRICT)
class CheckSweep(TypedDict):
    key: NotRequired[Key]
    environment: NotRequired[dict[Text, Word]]
    like: NotRequired[Like]
    code: NotRequired[dict[str, Any] | None]
    defaults: NotRequired[NewJob]
    spec: dict[str, Any]


@with_config(_STRICT)
class SweepAct(TypedDict):
    action: Literal["stop", "hold", "release", "resume", "retry-failed", "edit"]
    samples: NotRequired[Annotated[int, Field(ge=1, le=_MOST)]]
    parallel: NotRequired[Annotated[int, Field(ge=1, le=100_000)]]
    running: NotRequired[Literal["stop", "keep"]]  # with `stop`: what becomes of trials that run
    # With `edit`, as in the spec; parameters take the place of those with their names.
    metrics: NotRequired[list[dict[str, Any]]]
    parameters: NotRequired[list[dict[str, Any]]]
    where: NotRequired[list[str]]
    target: NotRequired[float]  # of its only metric


@with_config(_STRICT)
class ActFilter(TypedDict, total=False):
    """The conditions of a list of jobs. Without states, those that the action is for."""

    state: Annotated[list[StateName], Field(max_length=16)]
    project: Name
    name: Name
    tag: Name
    user: Name
    text: Annotated[str, _up_to(200), _described(200)]  # in the name, the command or the project; or the number
    since: Annotated[str, _up_to(60), _described(60)]  # RFC 3339, or seconds since the epoch
    array: Id
    ids: Annotated[str, _up_to(15_000), _described(15_000)]  # numbers like 1-5,8
    without: Annotated[list[Id], Field(max_length=MOST_IDS)]  # numbers that are not meant
    failed: bool


@with_config(_STRICT)
class Act(TypedDict):
    action: Literal["kill", "hold", "release", "retry", "suspend", "resume", "priority"]
    ids: NotRequired[Annotated[list[Id], Field(min_length=1, max_length=MOST_IDS)]]
    filter: NotRequired[ActFilter]
    signal: NotRequired[Annotated[int, Field(ge=1, le=64)] | None]
    priority: NotRequired[Annotated[int, Field(ge=BY_KEY["priority"].least, le=BY_KEY["priority"].most)]]
    dry_run: NotRequired[bool]  # change nothing, and name the jobs that would be tried


@with_config(_STRICT)
class GpuAct(TypedDict):
    action: Literal["drain", "undrain", "add", "remove"]
    gpus: Annotated[list[Key], Field(min_length=1, max_length=1024)]
    why: NotRequired[Name]


@with_config(_STRICT)
class Pause(TypedDict, total=False):
    project: Name


@with_config(_STRICT)
class Clean(TypedDict, total=False):
    older_seconds: Annotated[float, Field(ge=0, le=3.2e9)]
    state: Annotated[list[StateName], Field(max_length=16)]
    project: Name


@with_config(_STRICT)
class Forget(TypedDict, total=False):
    """Which measured needs to forget: those of one shape, or all."""

    shape: Text | None


@with_config(_STRICT)
class StopOrder(TypedDict, total=False):
    jobs: bool


@with_config(_STRICT)
class OpenPage(TypedDict, total=False):
    """Where the page listens, and whether it is read-only. An address that other machines can reach needs TLS."""

    host: Key
    port: Annotated[int, Field(ge=1, le=65_535)]
    certificate: Text
    key: Text
    read_only: bool


@with_config(_STRICT)
class Nothing(TypedDict, total=False):
    """An empty object."""


def requests_of(
    jobs: Sequence[NewJob], defaults: NewJob, environment: Mapping[str, str], place: str = LOCAL
) -> tuple[Request, ...]:
    """The requests of a call: each job's own keys on top of the defaults.

    `place` is where jobs run that name no place.
    """
    for key, value in environment.items():
        check_variable(key, value)
    size = environment_size(environment)
    base = apply(replace(NOTHING, on=_place(place, "on")), defaults)
    # Not dataclasses.replace: it looks at two dozen fields again for every one of a hundred thousand jobs.
    shared = {field.name: getattr(base, field.name) for field in dataclass_fields(base) if field.name != "command"}
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
            raise BadInput(
                f"job {number} of this call: {error.message}", remedy=error.remedy, field=error.field
            ) from error
        found.append(request)
    return tuple(found)


def apply(request: Request, job: Mapping[str, Any]) -> Request:
    """The request with this job's keys set."""
    values = {}
    for key, value in job.items():
        if (field := BY_KEY.get(key)) is not None:
            reader = _READERS.get(field.kind)
            try:
                values[field.name] = value if reader is None else reader(value, key)
            except BadInput as error:
                error.field = error.field or key
                raise
    if values.get("on") == "":
        values.setdefault("on_options", ())  # they belong to the place where it no longer runs
    if command := _command(job):
        values["command"] = command
    return with_values(request, values)


def read_moment(text: str, what: str) -> float:
    """Seconds since the epoch out of an RFC 3339 time, or out of the number itself."""
    if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", text):
        return float(text)
    return parse_moment(text, what)


def read_states(text: str, kind: type[_State]) -> tuple[_State, ...]:
    """States with commas between them."""
    try:
        return tuple(kind(word.strip()) for word in text.split(",") if word.strip())
    except ValueError:
        raise BadInput(
            f"there is no such state in {text[:60]!r}", remedy=f"states are {', '.join(kind)}"
        ) from None


def check_variable(key: str, value: str) -> None:
    if not key or "=" in key:
        raise BadInput(f"{key[:60]!r} is not a name of a variable", remedy="a name is not empty and has no =")
    check_text(key, "the name of a variable")
    check_text(value, f"the variable {key}")


def _with_its_shell(job: NewJob, defaults: NewJob) -> NewJob:
    """The job with its command and its shell, either of which may come from the defaults."""
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


def ranges(text: str) -> tuple[tuple[int, int], ...]:
    """`1-5,8` as ranges that include both ends."""
    try:
        found = parse_ranges(text) if text else []
    except ValueError as error:
        raise BadInput(f"cannot read {str(error)[:40]!r} as job numbers", remedy="write them like 1-5,8") from None
    if len(found) > _MOST_RANGES:
        raise BadInput(
            f"{len(found)} ranges of jobs are too many", remedy=f"ask for at most {_MOST_RANGES} at once"
        )
    return tuple((one.start, one.stop - 1) for one in found)


def numbers(text: str, most: int) -> list[JobId]:
    """`1-5,8` as numbers, each once."""
    spans = ranges(text)
    if sum(max(0, last - first + 1) for first, last in spans) > most:
        raise BadInput(f"these are more than {most} jobs", remedy=f"ask for at most {most} at once")
    return list(dict.fromkeys(JobId(number) for first, last in spans for number in range(first, last + 1)))


# -- single values -----------------------------------------------------------------------------------------


def _text(value: str, key: str) -> str:
    check_text(value, key)
    return value


def _texts(value: list[str], key: str) -> tuple[str, ...]:
    return tuple(_text(item, key) for item in value)


def _folder(value: str, key: str) -> str:
    if value and not value.startswith("/"):
        raise BadInput(f"the {key} {value[:60]!r} is not absolute", remedy="give a path that begins with /")
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
    return None if value is None else read_moment(value, key)


def _array(value: dict[str, Any] | None, key: str) -> ArrayTask | None:
    return None if value is None else ArrayTask(JobId(value.get("id", 0)), value["task"], value.get("most"))


def _checkpoint(value: dict[str, Any] | None, key: str) -> Checkpoint | None:
    return None if value is None else Checkpoint(value["signal"], float(value["seconds"]))


def _place(value: str, key: str) -> str:
    return "" if value == LOCAL else value


def _on_options(value: dict[str, str], key: str) -> tuple[tuple[str, str], ...]:
    return tuple((_text(name, key), _text(told, key)) for name, told in value.items())


def _mounts(value: list[str], key: str) -> tuple[str, ...]:
    return tuple(str(parse_mount(_text(text, key))) for text in value)


def _patterns(value: list[str], key: str) -> tuple[str, ...]:
    return check_patterns([_text(text, key) for text in value])


def _seconds(value: float | None, key: str) -> float | None:
    return None if value is None else float(value)


_Reader = Callable[[Any, str], Any]
_COMMAND = {"command"}
_READERS: dict[Kind, _Reader] = {  # values of other kinds are used as they were sent
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
    Kind.MOUNTS: _mounts,
    Kind.PATTERNS: _patterns,
    Kind.CAUSES: _texts,
    Kind.CHECKPOINT: _checkpoint,
    Kind.DEPENDENCIES: _after,
    Kind.ARRAY: _array,
    Kind.CHOICE: _text,
    Kind.PLACE: _place,
    Kind.SYSTEM_OPTIONS: _on_options,
}
