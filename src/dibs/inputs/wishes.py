"""The wish words: one table for `[...]` prefixes, for mappings from Python and for JSON lines.

Text and numbers mean the same: `time: 45`, `time: "45"` and `[time=45]` are all 45 minutes, as in Slurm,
and `vram: 18` is 18 GiB like `[vram=18]`.
"""

import os
import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

from dibs.errors import BadInput
from dibs.inputs.checks import check_text
from dibs.inputs.entry import shorten
from dibs.model.jobs import Command, Request
from dibs.model.places import LOCAL, SLURM_OPTIONS, parse_option, parse_place
from dibs.model.pool import is_gpu_id
from dibs.model.units import parse_count, parse_duration, parse_share, parse_size, parse_vram
from dibs.model.warm import check_modules

_LONGEST_VALUE = 4096  # characters, for everything but a command and a variable
_LONGEST_NAME = 255  # characters
_TRUE, _FALSE = ("yes", "true", "1"), ("no", "false", "0")


def job_from(mapping: Mapping[str, object], defaults: Request, shell: str = "bash") -> Request:
    """The job that a mapping describes; what it leaves out comes from `defaults`."""
    if "command" not in mapping:
        raise BadInput("the job has no command", remedy='give it one: {"command": "python train.py"}')
    return apply_wishes(defaults, mapping, shell)


def apply_wishes(request: Request, mapping: Mapping[str, object], shell: str = "bash") -> Request:
    """The request with the mapping's words set. Strict: what cannot be meant raises BadInput."""
    wishes: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    told: dict[str, str] = {}  # to the system that runs it
    for word, value in mapping.items():
        if word == "command":
            fields["command"] = _command(value, shell)
        elif word == "env":
            fields["env"] = tuple({**dict(request.env), **_variables(value)}.items())
        elif word == "workdir":
            fields["workdir"] = os.path.join(request.workdir, _folder(value))
        elif word == "vram":
            wishes["vram"], wishes["shape"] = _OF_WISHES[word](value, word)
        elif word in _ON_OPTIONS:
            told[_ON_OPTIONS[word]] = parse_option(_ON_OPTIONS[word], _text(value, word))
        elif word in _OF_WISHES:
            wishes[word] = _OF_WISHES[word](value, word)
        elif word in _OF_REQUEST:
            field, read = _OF_REQUEST[word]
            fields[field] = read(value, word)
        else:
            raise unknown_word(word)
    if told or fields.get("on") == LOCAL:
        before = {} if fields.get("on") == LOCAL else dict(request.on_options)
        fields["on_options"] = tuple({**before, **told}.items())
    return replace(request, wishes=replace(request.wishes, **wishes), **fields)


def unknown_word(word: object) -> BadInput:
    """The refusal of a word that is not in the table, with the nearest one that is."""
    import difflib  # only the mistaken pay for it

    text = str(word)[:100].replace("-", "_")
    # A letter away from cpus, but not what is meant.
    near = ["num_gpus"] if text in ("gpus", "gpu") else difflib.get_close_matches(text, WORDS, n=1)
    remedy = f"did you mean {near[0]}?" if near else f"dibs knows {', '.join(WORDS)}"
    return BadInput(f"there is no wish called {reprlib.repr(word)}", remedy=remedy)


def _command(value: object, shell: str) -> Command:
    if isinstance(value, str):
        return Command.line(str(value), shell)
    if isinstance(value, list | tuple) and value and all(isinstance(word, str) for word in value):
        return Command.exact([str(word) for word in value])
    raise _wrong(value, "command", "it is a line of text, or a list of words that no shell touches")


def _variables(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise _wrong(value, "env", 'it is a mapping like {"SEED": "1"}')
    variables = {}
    for key, setting in value.items():
        if not isinstance(key, str) or not key or "=" in key:
            raise _wrong(key, "the name of a variable", "it is text without a =")
        if not isinstance(setting, str):
            setting = _number(setting, f"the variable {key}")
        check_text(key, "the name of a variable")
        check_text(setting, f"the variable {key}")
        variables[key] = str(setting)
    return variables


def _folder(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise _wrong(value, "workdir", "it is the path of a folder")
    return os.path.expanduser(_text(value, "workdir"))


def _gpu_ids(value: object, word: str) -> tuple[str, ...]:
    listed = list(value) if isinstance(value, list | tuple) else _text(value, word).split(",")
    ids = tuple(_text(part, word).strip() for part in listed)
    if not ids or not all(is_gpu_id(gpu_id) for gpu_id in ids):
        raise _wrong(value, word, "name GPUs like 0,1")
    if len(set(ids)) < len(ids):
        raise _wrong(value, word, "name every GPU once; slots belong to --gpus")
    return ids


def _name(value: object, word: str) -> str:
    if not isinstance(value, str):
        raise _wrong(value, word, "a name is text")
    if len(value) > _LONGEST_NAME:
        raise _wrong(value, word, f"a name has at most {_LONGEST_NAME} characters")
    return _text(value, word)


def _tags(value: object, word: str) -> tuple[str, ...]:
    listed = list(value) if isinstance(value, list | tuple) else _text(value, word).split(",")
    tags = tuple(dict.fromkeys(_name(tag, word).strip() for tag in listed))
    if not all(tags):
        raise _wrong(value, word, "write them like a,b")
    return tags


def _modules(value: object, word: str) -> tuple[str, ...]:
    listed = list(value) if isinstance(value, list | tuple) else _text(value, word).split(",")
    return check_modules([_name(name, word).strip() for name in listed])


def _priority(value: object, word: str) -> int:
    text = _text(value, word)
    if not re.fullmatch(r"[+-]?[0-9]{1,6}", text):
        raise _wrong(value, word, "it is a whole number; higher goes first")
    return int(text)


def _place(value: object, word: str) -> str:
    return parse_place(_text(value, word))


def _truth(value: object, word: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUE + _FALSE:
        return value.lower() in _TRUE
    raise _wrong(value, word, "write yes or no")


def _text(value: object, word: str) -> str:
    """A short text, or a number as it would be typed."""
    if not isinstance(value, str):
        return _number(value, word)
    if len(value) > _LONGEST_VALUE:
        raise _wrong(value, word, f"it has at most {_LONGEST_VALUE} characters")
    check_text(value, word)
    return str(value)


def _number(value: object, word: str) -> str:
    # bool is a number to Python and numpy's are not ints: ask for the kind, and for truth first.
    if isinstance(value, bool) or not isinstance(value, Integral | Real):
        raise _wrong(value, word, "leave it out, or give text or a number")
    if isinstance(value, Integral) and abs(int(value)) >= 10**18:
        raise _wrong(value, word, "that is too large")
    return str(value)


def _wrong(value: object, word: str, remedy: str) -> BadInput:
    return BadInput(f"cannot read {shorten(reprlib.repr(value))} as {word}", remedy=remedy)


_Reader = Callable[[object, str], Any]


def _in_units(parse: Callable[[str], Any]) -> _Reader:
    def read(value: object, word: str) -> Any:
        try:
            return parse(_text(value, word))
        except BadInput as error:
            raise _wrong(value, word, error.remedy) from error

    return read


_count = _in_units(lambda text: parse_count(text, "a count"))

_OF_WISHES: dict[str, _Reader] = {
    "num_gpus": _count,
    "vram": _in_units(parse_vram),
    "share": _in_units(parse_share),
    "only": _gpu_ids,
    "prefer": _gpu_ids,
    "gpu_type": _name,
    "cpus": _in_units(lambda text: parse_count(text, "a number of CPUs", least=1)),
    "mem": _in_units(parse_size),
}
_OF_REQUEST: dict[str, tuple[str, _Reader]] = {
    "retries": ("retries", _count),
    "time": ("time_limit", _in_units(parse_duration)),
    "name": ("name", _name),
    "priority": ("priority", _priority),
    "restartable": ("restartable", _truth),
    "bind": ("bind", _truth),
    "warm": ("warm", _modules),
    "project": ("project", _name),
    "tags": ("tags", _tags),
    "on": ("on", _place),
}
_ON_OPTIONS = {name.replace("-", "_"): name for name in SLURM_OPTIONS}
WORDS = (*_OF_WISHES, *_OF_REQUEST, *_ON_OPTIONS, "workdir", "env", "command")
ONLY_IN_MAPPINGS = ("env", "command")
