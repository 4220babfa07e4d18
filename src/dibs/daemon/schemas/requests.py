"""What may be sent to the API.

It is strict: a key that is not known, a truth where a number belongs and a NaN are refused.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict  # pydantic reads the one in typing from Python 3.12 only

from dibs.model import fields
from dibs.model.fields import Kind

MOST_JOBS = 5_000  # in one call
MOST_IDS = 10_000
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_MOST = 2**53  # the largest whole number that every JSON reader keeps exact


def _up_to(longest: int, least: int = 0) -> AfterValidator:
    """Text up to so many characters. Not pydantic's own limit: it cannot count text that is no UTF-8."""

    def check(text: str) -> str:
        if not least <= len(text) <= longest:
            raise ValueError(f"it has {len(text)} characters, and {least} to {longest} are taken")
        if "\0" in text:
            raise ValueError("it contains a NUL byte")
        return text

    return AfterValidator(check)


def _told(longest: int, least: int = 0) -> Any:
    """The same, for the description of the API."""
    return Field(json_schema_extra={"minLength": least, "maxLength": longest, "pattern": r"^[^\u0000]*$"})


Text = Annotated[str, _up_to(4096), _told(4096)]
Name = Annotated[str, _up_to(255), _told(255)]
Word = Annotated[str, _up_to(131_071), _told(131_071)]
Key = Annotated[str, _up_to(255, 1), _told(255, 1)]
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
    most: NotRequired[Annotated[int, Field(ge=1, le=1_000_000)] | None]


@with_config(_STRICT)
class NewCheckpoint(TypedDict):
    signal: Annotated[int, Field(ge=1, le=64)]
    seconds: Seconds


def _sent(field: fields.Field) -> Any:
    """What may be sent under the key of a field. What it is without a wish may be sent as well."""
    kind: Any = _KINDS.get(field.kind)
    if field.kind in (Kind.COUNT, Kind.MODE):
        kind = Annotated[int, Field(ge=field.least, le=field.most)]
    elif field.kind is Kind.DURATION and field.default is not None:
        kind = Annotated[float, Field(ge=0, le=3.2e9)]  # no grace is a wish
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
        """What somebody asks for. Everything but the command has a default."""

        command: Word
        words: Annotated[list[Word], Field(min_length=1, max_length=100_000)]
        shell: Text

    @with_config(_STRICT)
    class Change(NewJob, total=False):
        """What is to be different about a job that has not started, and where it is to stand."""

        top: bool
        before: Id


@with_config(_STRICT)
class NewJobs(TypedDict):
    """Jobs that are accepted together, or not at all. The same key again gets the same numbers."""

    key: Key
    environment: NotRequired[dict[Text, Word]]
    like: NotRequired[Like]  # instead of an environment: that of a job, or of the daemon
    code: NotRequired[dict[str, Any] | None]
    defaults: NotRequired[NewJob]
    jobs: Annotated[list[NewJob], Field(min_length=1, max_length=MOST_JOBS)]


@with_config(_STRICT)
class Check(TypedDict):
    environment: NotRequired[dict[Text, Word]]
    like: NotRequired[Like]
    defaults: NotRequired[NewJob]
    jobs: Annotated[list[NewJob], Field(min_length=1, max_length=MOST_JOBS)]


@with_config(_STRICT)
class NewSweepBody(TypedDict):
    """A search over parameters. Its jobs are like the defaults; the same key again gets the same number."""

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


@with_config(_STRICT)
class ActFilter(TypedDict, total=False):
    state: Annotated[list[StateName], Field(max_length=16)]
    project: Name
    name: Name
    tag: Name
    text: Annotated[str, _up_to(200), _told(200)]  # in the name, the command or the project; or the number
    failed: bool


@with_config(_STRICT)
class Act(TypedDict):
    action: Literal["kill", "hold", "release", "retry"]
    ids: NotRequired[Annotated[list[Id], Field(min_length=1, max_length=MOST_IDS)]]
    filter: NotRequired[ActFilter]
    signal: NotRequired[Annotated[int, Field(ge=1, le=64)] | None]


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
    """Which lessons are to be forgotten; without a shape all."""

    shape: Text | None


@with_config(_STRICT)
class StopOrder(TypedDict, total=False):
    jobs: bool


@with_config(_STRICT)
class OpenPage(TypedDict, total=False):
    """Where the page is to be, and what its reader may do. Another address than this machine's own needs TLS."""

    host: Key
    port: Annotated[int, Field(ge=1, le=65_535)]
    certificate: Text
    key: Text
    read_only: bool


@with_config(_STRICT)
class Nothing(TypedDict, total=False):
    """There is nothing to be said."""
