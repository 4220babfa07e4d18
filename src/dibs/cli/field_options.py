"""The options that set a job's fields, made from the table of fields."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dibs.cli.options import parsed
from dibs.model.fields import FIELDS, Field, Kind, Verb, fields_of

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_Function = TypeVar("_Function", bound=Callable[..., Any])
NONE = "none"  # takes a wish back
_OTHER = "Other options"
_WIDEST = 30  # characters of an option, beside which its sentence stands
# Of options that set no field, by the names of their parameters.
_OTHERS = {
    "What to run": ("files", "ignore", "_params", "shuffle", "seed", "samples", "shell", "snapshot"),
    "GPUs": ("gpus", "gpus_file", "no_wait", "ignore_processes", "min_free"),
    "Order": ("top", "before", "behind"),
    "Failures": ("fail_fast", "max_failures", "resume", "fresh"),
    "Surroundings and output": ("output_dir",),
}
GROUP_OF = {name: group for group, names in _OTHERS.items() for name in names} | {
    field.word: field.group for field in FIELDS if field.group
}
_AS_TEXT = frozenset({Kind.FOLDER, Kind.FILE, Kind.ARRAY})  # read when the whole call is known
_REPEATED = frozenset({Kind.NAMES, Kind.VARIABLES, Kind.MOUNTS, Kind.PATTERNS, Kind.DEPENDENCIES})


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
        if not value and self._field.kind is Kind.NAME:
            return value
        from dibs.inputs.wishes import read_field  # loaded only where an option is used

        with parsed(self, param, ctx):
            return read_field(self._field, value)


def write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """The options of a command, those of a group under its heading; the others come last."""
    parts: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
        if record is not None:
            parts.setdefault(GROUP_OF.get(param.name or "", _OTHER), []).append(record)
    others = parts.pop(_OTHER, [])
    width = max(len(flags) for records in parts.values() for flags, _ in records if len(flags) <= _WIDEST)
    for part, records in {**parts, _OTHER: others}.items():
        with formatter.section(part):
            formatter.write_dl([(flags.ljust(width), sentence) for flags, sentence in records])


def _option(field: Field, verb: Verb) -> Callable[[_Function], _Function]:
    is_edit = verb is Verb.EDIT
    takes_none = is_edit and field.takes_none
    sentence = field.sentence if is_edit else f"{field.sentence.removesuffix('.')}{_default(field)}."
    more: dict[str, Any] = {"help": sentence, "hidden": field.hidden}
    if field.kind is Kind.FLAG and (is_edit or field.default is None):
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
    if field.kind is Kind.DEPENDENCIES:
        more["shell_complete"] = _complete_jobs
    elif field.name == "project":
        more["shell_complete"] = _complete_projects
    return click.option(*field.flags, field.word, **more)


def _complete_jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    from dibs.cli.references import complete_job_list  # only where TAB was pressed

    return complete_job_list(ctx, param, incomplete)


def _complete_projects(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    from dibs.cli.references import complete_projects

    return complete_projects(ctx, param, incomplete)


def _default(field: Field) -> str:
    """` (default 10s)`, where a number is meant that is not 0."""
    if not field.default or not isinstance(field.default, int | float):
        return ""
    return f" (default {field.default:g}{field.bare_unit})"
