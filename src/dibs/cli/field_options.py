"""The options that set a job's fields, made from the table of fields, and what they say of a job."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dibs.cli.options import parsed
from dibs.cli.references import find_jobs
from dibs.client.adding import NOTHING
from dibs.client.client import Client
from dibs.errors import BadInput
from dibs.model.fields import BY_KEY, FIELDS, Field, Kind, Verb, fields_of
from dibs.model.jobs import to_json, with_values

if TYPE_CHECKING:
    from dibs.model.jobs import Dependency, Request

_Function = TypeVar("_Function", bound=Callable[..., Any])
NONE = "none"  # takes a wish back
ALL = ""  # instead of a variable's name: all that the job has
GROUP_OF = {field.word: field.group for field in FIELDS if field.group}
_AS_TEXT = frozenset({Kind.FOLDER, Kind.FILE, Kind.ARRAY})  # read when the whole call is known
_REPEATED = frozenset({Kind.NAMES, Kind.VARIABLES, Kind.DEPENDENCIES})


def field_options(verb: Verb) -> Callable[[_Function], _Function]:
    """Add the options of every field that this verb may set, in the order of the table."""

    def decorate(function: _Function) -> _Function:
        for field in reversed(fields_of(verb)):
            function = _option(field, verb)(function)
        return function

    return decorate


class FieldText(click.ParamType):  # type: ignore[type-arg]  # generic only in newer clicks
    """The text of an option, read as in a job list. For `dibs edit` the word `none` stays as it is."""

    def __init__(self, field: Field, *, takes_none: bool) -> None:
        self.name = field.word
        self._field = field
        self._takes_none = takes_none

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str) or (self._takes_none and value == NONE):
            return value
        if not value and self._field.default == "":
            return value
        from dibs.inputs.wishes import read_field  # loaded only where an option is used

        with parsed(self, param, ctx):
            return read_field(self._field, value)


def request_of(options: Mapping[str, Any], verb: Verb, base: "Request") -> "Request":
    """What every job of this call has in common: `base`, with what the options say."""
    values = _values(options, verb)
    said = list(given(options, verb))
    told = tuple((field.slurm_word, value) for field, value in said if field.kind is Kind.SYSTEM_OPTION)
    for field, value in said:
        if field.kind is Kind.VARIABLES:
            values[field.name] = tuple(_variables(value).items())
    request = with_values(base, {**values, "on_options": told} if told else values)
    if request.output:
        request = with_values(request, {"output": os.path.join(request.workdir, request.output)})
    if request.checkpoint is not None:
        from dibs.inputs.wishes import check_checkpoint

        check_checkpoint(request)
    return request


def queue_request_of(options: Mapping[str, Any], verb: Verb) -> "Request":
    """The same for the queue, where the folder and the umask are those of now."""
    workdir = _here() if options["workdir"] is None else ""
    return request_of(options, verb, replace(NOTHING, workdir=workdir, umask=_umask()))


def changes_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """What `dibs edit` is to change, as the keys of the API; variables and Slurm's options are `merges_of`."""
    values = _values(options, Verb.EDIT)
    if values.get("output"):
        values["output"] = os.path.abspath(values["output"])
    return {key: to_json(field, values[field.name]) for key, field in BY_KEY.items() if field.name in values}


def merges_of(options: Mapping[str, Any]) -> dict[str, dict[str, str | None]]:
    """What is laid over what a job has, by the keys of the API; None takes one away, or ALL."""
    found: dict[str, dict[str, str | None]] = {}
    for field, value in given(options, Verb.EDIT):
        if field.kind is Kind.SYSTEM_OPTION:
            told = None if value == NONE else value
            found.setdefault("on_options", {})[field.slurm_word] = told
        elif field.kind is Kind.VARIABLES:
            merged: dict[str, str | None] = {ALL: None} if NONE in value else {}
            found[field.key] = {**merged, **_variables([one for one in value if one != NONE])}
    return found


def dependencies_of(options: Mapping[str, Any], verb: Verb, client: Client) -> "list[Dependency] | None":
    """The jobs that come first, by their numbers; a name or `@` is asked for. None: nothing was said of them."""
    rows = [(field, texts) for field, texts in given(options, verb) if field.kind is Kind.DEPENDENCIES]
    if not rows:
        return None
    from dibs.model.jobs import After, Dependency, JobId

    found: dict[int, Dependency] = {}
    for field, texts in rows:
        references = [one.strip() for text in texts for one in text.split(",") if one.strip()]
        if not references:
            raise BadInput(f"{field.flags[-1]} names no job", remedy="name jobs like 12,13")
        if verb is Verb.EDIT and references == [NONE]:
            continue
        kind = After(field.choices[0])
        for number in find_jobs(client, references):
            if number in found and found[number].kind is not kind:
                raise BadInput(f"job {number} is to be waited for in two ways", remedy="keep one of them")
            found[number] = Dependency(JobId(number), kind)
    return list(found.values())


def given(options: Mapping[str, Any], verb: Verb) -> Iterator[tuple[Field, Any]]:
    """The fields of which something was said, and what. A flag that was not given says nothing."""
    for field in fields_of(verb):
        value = options[field.word]
        # An empty name is no name, and for `dibs edit` that is a change; no folder is called nothing.
        is_empty = value is False or (value == "" and field.kind is not Kind.FOLDER)
        if value is not None and value != () and (verb is Verb.EDIT or not is_empty):
            yield field, value


def write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """The options of a command, those of a group under its heading."""
    parts: dict[str, list[tuple[str, str]]] = {"Options": []}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
        if record is not None:
            parts.setdefault(GROUP_OF.get(param.name or "", "Options"), []).append(record)
    for part, records in parts.items():
        with formatter.section(part):
            formatter.write_dl(records)


def _values(options: Mapping[str, Any], verb: Verb) -> dict[str, Any]:
    """What was said, by the names of the fields, as far as it can be known from the options alone."""
    is_edit = verb is Verb.EDIT
    values: dict[str, Any] = {}
    for field, value in given(options, verb):
        match field.kind:
            case Kind.ARRAY | Kind.DEPENDENCIES | Kind.VARIABLES | Kind.SYSTEM_OPTION:
                pass
            case Kind.VRAM:
                values["vram"], values["shape"] = (None, "") if value == NONE else value
            case Kind.NAMES:
                values[field.name] = _names(field, [one for one in value if not is_edit or one != NONE])
            case Kind.FOLDER:
                values[field.name] = _folder(value)
            case _:
                values[field.name] = field.default if is_edit and field.takes_none and value == NONE else value
    return values


def _names(field: Field, texts: Sequence[str]) -> tuple[str, ...]:
    if not texts:
        return ()
    from dibs.inputs.wishes import read_field

    found: tuple[str, ...] = read_field(field, texts)
    return found


def _variables(words: Sequence[str]) -> dict[str, str]:
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise BadInput(f"cannot read {word[:60]!r} as a variable", remedy="write it like --env SEED=1")
        found[name] = value
    return found


def _folder(chosen: str) -> str:
    """A folder that is there, absolute."""
    if "\0" in chosen or not os.path.isdir(path := os.path.expanduser(chosen)):
        raise BadInput(f"there is no folder {chosen}", remedy="make it, or name another with -C")
    return os.path.abspath(path)


def _option(field: Field, verb: Verb) -> Callable[[_Function], _Function]:
    is_edit = verb is Verb.EDIT
    takes_none = is_edit and field.takes_none
    sentence = field.sentence if is_edit else f"{field.sentence.removesuffix('.')}{_default(field)}."
    more: dict[str, Any] = {"help": sentence, "hidden": field.hidden}
    if field.kind is Kind.FLAG and is_edit:
        return click.option(f"{field.flags[0]}/{field.negative}", field.word, default=None, **more)
    if field.kind is Kind.FLAG:
        return click.option(*field.flags, field.word, is_flag=True, **more)
    if field.kind in (Kind.CHOICE, Kind.PLACE):
        more["type"] = click.Choice((*field.choices, *([NONE] if takes_none else [])))
    else:
        more["metavar"] = field.metavar
        if field.kind in _REPEATED:
            more["multiple"] = True
        elif field.kind not in _AS_TEXT:
            more["type"] = FieldText(field, takes_none=takes_none)
    return click.option(*field.flags, field.word, **more)


def _default(field: Field) -> str:
    """` (default 10s)`, where a number is meant that is not 0."""
    if not field.default or not isinstance(field.default, int | float):
        return ""
    return f" (default {field.default:g}{field.bare_unit})"


def _umask() -> int:
    """This process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise BadInput(
            "the folder you are in has been removed", remedy="change to one, or name it with -C"
        ) from None
