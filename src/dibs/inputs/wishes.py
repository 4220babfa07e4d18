"""Reads a job's fields as users write them: in `[...]`, in JSON lines, as options and as keywords in Python.

Text and numbers mean the same: `time: 45`, `time: "45"` and `[time=45]` are all 45 minutes, as in Slurm,
and `vram: 18` is 18 GiB like `[vram=18]`. JSON may also have the unit in the key, as in the API and in
`dibs export`: `time_limit_seconds: 2700`.
"""

import os
import re
import reprlib
import signal
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from numbers import Integral, Real
from typing import Any

from dibs.errors import BadInput
from dibs.inputs.checks import check_text, check_variable_name
from dibs.inputs.entries import shorten
from dibs.model.fields import Field, Kind, Verb, fields_of
from dibs.model.jobs import Cause, Checkpoint, Command, Request, retry_name, retry_names, with_values
from dibs.model.places import LOCAL, parse_place
from dibs.model.units import AUTO, check_modules, is_gpu_id, parse_duration, parse_share, parse_size, parse_vram

_LONGEST_VALUE = 4096  # characters, for everything but a command and a variable
_LONGEST_NAME = 255  # characters
_LARGEST_SIZE = 2**53  # bytes
_LONGEST_TIME = 3.2e9  # seconds
_TRUE, _FALSE = ("yes", "true", "1"), ("no", "false", "0")
_FURTHEST_START = timedelta(days=366 * 10)
_A_MINUTE = timedelta(minutes=1)  # as long as the clock still shows it, a time is not over
_CLOCK = r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?"
_CLOCKS = {"midnight": "00:00", "noon": "12:00", "teatime": "16:00"}
LISTED = {name: field for field in fields_of(Verb.LIST) for name in (field.word, field.key) if name}
WORDS = tuple(LISTED)
ONLY_IN_MAPPINGS = tuple(
    field.word for field in fields_of(Verb.LIST) if field.kind in (Kind.VARIABLES, Kind.COMMAND)
)
# Words whose nearest match by spelling would be a wrong suggestion.
_MEANT = {"gpus": "num_gpus", "gpu": "num_gpus", "retry": "retries"}


def job_from(mapping: Mapping[str, object], defaults: Request, shell: str = "bash") -> Request:
    """The job that a mapping describes; other fields come from `defaults`."""
    if "command" not in mapping:
        raise BadInput("the job has no command", remedy='give it one: {"command": "python train.py"}')
    return apply_wishes(defaults, mapping, shell)


def apply_wishes(
    request: Request,
    mapping: Mapping[str, object],
    shell: str = "bash",
    *,
    known: Mapping[str, Field] = LISTED,
) -> Request:
    """The request with the mapping's fields set; BadInput for an unknown word or an invalid value."""
    values: dict[str, Any] = {}
    options: dict[str, str] = {}  # of the system that runs it
    for word, value in mapping.items():
        field = known.get(word)
        if field is None:
            raise unknown_word(word, known)
        if field.kind is Kind.COMMAND:
            values["command"] = _command(value, shell)
            continue
        if word != field.word and mapping.get(field.word, AUTO) != AUTO:
            raise BadInput(f"{field.word} and {field.key} are both given", remedy="keep one of them")
        read = read_field(field, value) if word == field.word else _read_key(field, value)
        match field.kind:
            case Kind.VRAM if word == field.word:
                size, values["shape"] = read
                if field.key not in mapping:
                    values[field.name] = size
            case Kind.VARIABLES:
                values[field.name] = tuple({**dict(request.env), **read}.items())
            case Kind.FOLDER:
                values[field.name] = os.path.join(request.workdir, read)
            case Kind.SYSTEM_OPTION:
                options[field.slurm_word] = read
            case _:
                values[field.name] = read
    if options or values.get("on") == LOCAL:
        before = {} if values.get("on") == LOCAL else dict(request.on_options)
        values["on_options"] = tuple({**before, **options}.items())
    return with_values(request, values)


def read_field(field: Field, value: object) -> Any:
    """The value of a field as a user wrote it: text, a number, or a list. Raises BadInput."""
    return _READERS[field.kind](value, field)


def unknown_word(word: object, known: Mapping[str, Field] = LISTED) -> BadInput:
    """The error for an unknown word, with the nearest known one."""
    import difflib  # only needed for an error: it would slow down every start

    text = str(word)[:100].replace("-", "_")
    near = [_MEANT[text]] if text in _MEANT else difflib.get_close_matches(text, known, n=1)
    words = ", ".join(word for word, field in known.items() if word == field.word)
    remedy = f"did you mean {near[0]}?" if near else f"dibs knows {words}"
    return BadInput(f"there is no wish called {reprlib.repr(word)}", remedy=remedy)


def _read_key(field: Field, value: object) -> Any:
    """A value under the JSON key of a field, which has the unit in it."""
    if value is None and field.default is None:
        return None
    if field.kind is Kind.DURATION:
        if isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) <= _LONGEST_TIME:
            return float(value)
        raise _wrong(value, field.key, "it is a number of seconds")
    if isinstance(value, Integral) and not isinstance(value, bool) and 1 <= int(value) <= _LARGEST_SIZE:
        return int(value)
    raise _wrong(value, field.key, "it is a whole number of bytes")


def _command(value: object, shell: str) -> Command:
    if isinstance(value, str):
        return Command.line(str(value), shell)
    if isinstance(value, list | tuple) and value and all(isinstance(word, str) for word in value):
        return Command.exact([str(word) for word in value])
    raise _wrong(value, "command", "it is a line of text, or a list of words that no shell touches")


def _variables(value: object, field: Field) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise _wrong(value, field.word, 'it is a mapping like {"SEED": "1"}')
    variables = {}
    for key, setting in value.items():
        if not isinstance(key, str):
            raise _wrong(key, "the name of a variable", "it is text")
        check_variable_name(key)
        if not isinstance(setting, str):
            setting = _number(setting, f"the variable {key}")
        check_text(setting, f"the variable {key}")
        variables[key] = str(setting)
    return variables


def _folder(value: object, field: Field) -> str:
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str) or not path:
        raise _wrong(value, field.word, "it is the path of a folder")
    return os.path.expanduser(_text(path, field.word))


def _file(value: object, field: Field) -> str:
    return _not_empty(os.fspath(value) if isinstance(value, os.PathLike) else value, field, _LONGEST_VALUE)


def _key(value: object, field: Field) -> str:
    return _not_empty(value, field, _LONGEST_NAME)


def _not_empty(value: object, field: Field, most: int) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise _wrong(value, field.word, f"it is text of 1 to {most} characters")
    return _text(value, field.word)


def _count(value: object, field: Field) -> int:
    text = _text(value, field.word).strip()
    sign = "[+-]?" if field.least < 0 else ""
    if not re.fullmatch(sign + "[0-9]{1,9}", text) or not field.least <= int(text) <= field.most:
        raise _wrong(value, field.word, f"it is a whole number from {field.least:,} to {field.most:,}")
    return int(text)


def _gpu_ids(value: object, field: Field) -> tuple[str, ...]:
    ids = tuple(_text(part, field.word).strip() for part in _parts(value, field))
    if not ids or not all(is_gpu_id(gpu_id) for gpu_id in ids):
        raise _wrong(value, field.word, "name GPUs like 0,1")
    if len(set(ids)) < len(ids):
        raise _wrong(value, field.word, "name every GPU once; slots belong to --gpus")
    return ids


def _name(value: object, field: Field) -> str:
    if not isinstance(value, str):
        raise _wrong(value, field.word, "a name is text")
    if len(value) > _LONGEST_NAME:
        raise _wrong(value, field.word, f"a name has at most {_LONGEST_NAME} characters")
    return _text(value, field.word)


def _system_option(text: str, field: Field) -> str:
    from dibs.model.slurm_options import check_option  # few jobs have any

    check_option(field.slurm_word, text)
    return text


def _names(value: object, field: Field) -> tuple[str, ...]:
    tags = tuple(dict.fromkeys(_name(tag, field).strip() for tag in _parts(value, field)))
    if not all(tags):
        raise _wrong(value, field.word, "write them like a,b")
    return tags


def _mounts(value: object, field: Field) -> tuple[str, ...]:
    """One mount or a list of them: a comma is part of a path. Sources are made absolute, as seen from here."""
    texts = value if isinstance(value, list | tuple) else [value]
    return tuple(_mount(_not_empty(text, field, _LONGEST_VALUE)) for text in texts)


def _mount(text: str) -> str:
    from dibs.model.mounts import parse_mount  # few jobs need it

    source, colon, rest = text.partition(":")
    return str(parse_mount(os.path.abspath(os.path.expanduser(source)) + colon + rest))


def _patterns(value: object, field: Field) -> tuple[str, ...]:
    """One expression or a list of them: a comma is part of an expression."""
    from dibs.metrics.patterns import check_patterns  # few jobs need it

    texts = value if isinstance(value, list | tuple) else [value]
    return check_patterns([_not_empty(text, field, _LONGEST_VALUE) for text in texts])


def _modules(value: object, field: Field) -> tuple[str, ...]:
    return check_modules([_name(name, field).strip() for name in _parts(value, field)])


def _causes(value: object, field: Field) -> tuple[str, ...]:
    return parse_causes(",".join(_name(cause, field) for cause in _parts(value, field)))


def _moment(value: object, field: Field) -> float:
    if isinstance(value, datetime):
        return value.timestamp()
    return parse_begin(_not_empty(value, field, _LONGEST_NAME), datetime.now())


def _duration(value: object, field: Field) -> Any:
    if field.bare_unit and not isinstance(value, str):
        value = _number(value, field.word) + field.bare_unit
    return _in_units(parse_duration)(value, field)


def _choice(value: object, field: Field) -> str:
    if not isinstance(value, str) or value not in field.choices:
        *others, last = field.choices
        raise _wrong(value, field.word, f"it is {', '.join(others)} or {last}")
    return value


def _flag(value: object, field: Field) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUE + _FALSE:
        return value.lower() in _TRUE
    raise _wrong(value, field.word, "write yes or no")


def _parts(value: object, field: Field) -> Sequence[object]:
    return list(value) if isinstance(value, list | tuple) else _text(value, field.word).split(",")


def _text(value: object, word: str) -> str:
    """A short text, or a number as it would be typed."""
    if not isinstance(value, str):
        return _number(value, word)
    if len(value) > _LONGEST_VALUE:
        raise _wrong(value, word, f"it has at most {_LONGEST_VALUE} characters")
    check_text(value, word)
    return str(value)


def _number(value: object, word: str) -> str:
    # A bool is an Integral, and numpy's integers are not ints.
    if isinstance(value, bool) or not isinstance(value, Integral | Real):
        raise _wrong(value, word, "leave it out, or give text or a number")
    if isinstance(value, Integral) and abs(int(value)) >= 10**18:
        raise _wrong(value, word, "that is too large")
    return str(value)


def _wrong(value: object, word: str, remedy: str) -> BadInput:
    return BadInput(f"cannot read {shorten(reprlib.repr(value))} as {word}", remedy=remedy)


_Reader = Callable[[object, Field], Any]


def _in_units(parse: Callable[[str], Any]) -> _Reader:
    def read(value: object, field: Field) -> Any:
        try:
            return parse(_text(value, field.word))
        except BadInput as error:
            raise _wrong(value, field.word, error.remedy) from error

    return read


_READERS: dict[Kind, _Reader] = {
    Kind.COUNT: _count,
    Kind.ARRAY_LIMIT: _count,
    Kind.SIZE: _in_units(parse_size),
    Kind.VRAM: _in_units(parse_vram),
    Kind.SHARE: _in_units(parse_share),
    Kind.GPU_IDS: _gpu_ids,
    Kind.NAME: _name,
    Kind.NAMES: _names,
    Kind.KEY: _key,
    Kind.FLAG: _flag,
    Kind.DURATION: _duration,
    Kind.MOMENT: _moment,
    Kind.FOLDER: _folder,
    Kind.FILE: _file,
    Kind.VARIABLES: _variables,
    Kind.MODULES: _modules,
    Kind.MOUNTS: _mounts,
    Kind.PATTERNS: _patterns,
    Kind.CAUSES: _causes,
    Kind.CHECKPOINT: lambda value, field: parse_checkpoint(_not_empty(value, field, _LONGEST_NAME)),
    Kind.CHOICE: _choice,
    Kind.PLACE: lambda value, field: parse_place(_text(value, field.word)),
    Kind.SYSTEM_OPTION: lambda value, field: _system_option(_text(value, field.word), field),
}


def parse_causes(text: str) -> tuple[str, ...]:
    """The causes that `gpu-oom,lost` names, each once."""
    if not text.strip():
        return ()
    causes = {retry_name(cause): cause.value for cause in Cause}
    known = {name: causes[name] for name in retry_names()}
    found = []
    for word in text.split(","):
        name = retry_name(word)
        if name not in known:
            raise BadInput(
                f"there is no cause called {word.strip()[:60]!r}", remedy=f"dibs knows {', '.join(known)}"
            )
        found.append(known[name])
    return tuple(dict.fromkeys(found))


def parse_checkpoint(text: str) -> Checkpoint:
    """`USR1@60`: a signal, and how many seconds before the time limit it is sent."""
    match = re.fullmatch(r"(?:[BR]+:)?(?:SIG)?([A-Z0-9]{1,10})@([0-9]{1,6})", text.strip().upper())
    number = 0
    if match:
        name = match[1]
        number = int(name) if name.isdigit() else int(getattr(signal, f"SIG{name}", 0))
    if not match or not 1 <= number <= 64 or not int(match[2]):
        raise BadInput(f"cannot read {text[:60]!r} as a signal and seconds", remedy="write it like USR1@60")
    return Checkpoint(number, float(match[2]))


def check_checkpoint(request: Request) -> None:
    """Raise BadInput for a signal that would be sent before the start, or never."""
    checkpoint, limit = request.checkpoint, request.time_limit
    if checkpoint is not None and (limit is None or checkpoint.seconds >= limit):
        raise BadInput(
            "--checkpoint-signal comes before the time limit", remedy="give a longer one with -t, such as -t 4h"
        )


def parse_begin(text: str, now: datetime) -> float:
    """The time of `22:00`, `2026-12-01 08:00`, `+2h` or `tomorrow`, in seconds since the epoch.

    A time without a date is the next such time of this machine's clock. A number after `+` is in minutes, as in
    other options; in Slurm's `now+60` it is in seconds, as in Slurm.
    """
    moment = _parse_moment(text.strip().lower(), now)
    if moment is None:
        raise BadInput(
            f"cannot read {text[:60]!r} as a time to begin",
            remedy="write it like 22:00, 2026-12-01 08:00, +2h or tomorrow",
        )
    ahead = moment - (now.astimezone(moment.tzinfo) if moment.tzinfo else now)
    if ahead > _FURTHEST_START:
        raise BadInput(f"{text[:60]!r} is more than ten years from now", remedy="begin earlier")
    if ahead <= -_A_MINUTE:
        raise BadInput(f"{text[:60]!r} is over", remedy="leave it out to start at once, or name a later time")
    return moment.timestamp()


def _parse_moment(text: str, now: datetime) -> datetime | None:
    if text.startswith("now"):
        rest = text.removeprefix("now").strip()
        return now if not rest else _later(rest, now, "s")
    if text.startswith("+"):
        return _later(text, now, "")
    if text == "today":
        return now
    if text == "tomorrow":
        return now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    if clock := re.fullmatch(_CLOCK, _CLOCKS.get(text, text)):
        return _next(int(clock[1]), int(clock[2]), int(clock[3] or 0), now)
    if not re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return None
    try:
        return datetime.fromisoformat(text.upper())
    except ValueError:
        return None


def _later(text: str, now: datetime, unit: str) -> datetime | None:
    amount = text.removeprefix("+").strip()
    if not text.startswith("+") or not amount:
        return None
    if amount.isdigit():
        amount += unit
    try:
        return now + timedelta(seconds=parse_duration(amount))
    except (BadInput, OverflowError):
        return None


def _next(hour: int, minute: int, second: int, now: datetime) -> datetime | None:
    try:
        moment = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
    except ValueError:
        return None
    return moment if moment > now else moment + timedelta(days=1)
