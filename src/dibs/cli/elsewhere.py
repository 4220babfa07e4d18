"""Options that say where jobs run: here, or on Slurm, and what Slurm is told."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from dibs.model.places import PLACES, SHOWN_OPTIONS, SLURM_OPTIONS

_Function = TypeVar("_Function", bound=Callable[..., Any])
HEADING = "On Slurm"
_HELP = {
    "partition": "The partition it waits in.",
    "account": "The account that is charged.",
    "qos": "The quality of service.",
    "constraint": "What its node must have.",
}
# As click calls them.
NAMES = ("on", *(name.replace("-", "_") for name in SLURM_OPTIONS))


def elsewhere_options(function: _Function) -> _Function:
    """Add --on, --partition and the like."""
    for name in reversed(SLURM_OPTIONS):
        is_shown = name in SHOWN_OPTIONS
        metavar = "LIST" if name == "constraint" else "NAME"
        function = click.option(f"--{name}", metavar=metavar, help=_HELP.get(name), hidden=not is_shown)(function)
    return click.option(
        "--on", type=click.Choice(PLACES), help="Run here, or on Slurm (default: the setting default_backend)."
    )(function)


def told(options: Mapping[str, Any]) -> dict[str, str]:
    """What Slurm is to be told, by Slurm's own words."""
    from dibs.model.places import parse_option

    given = {name: options[name.replace("-", "_")] for name in SLURM_OPTIONS}
    return {name: parse_option(name, text) for name, text in given.items() if text is not None}


def write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """The options of a command, those about Slurm under a heading of their own."""
    parts: dict[str, list[tuple[str, str]]] = {"Options": [], HEADING: []}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
        if record is not None:
            parts[HEADING if param.name in NAMES else "Options"].append(record)
    for part, records in parts.items():
        if records:
            with formatter.section(part):
                formatter.write_dl(records)
