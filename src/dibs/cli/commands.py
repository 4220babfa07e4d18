"""A command behind `--` and parameters that fill it, as `dibs run`, `add` and `sweep` read them."""

from typing import TYPE_CHECKING

import click

from dibs.cli.field_options import write_options
from dibs.errors import BadInput

if TYPE_CHECKING:
    from dibs.sweeps.params import Parameters


class CommandWithArguments(click.Command):
    """Takes `-p NAME VALUES...` and everything behind `--` out before click reads the options.

    Slurm's spellings of options become ours on the way.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        params: Parameters = []
        rest = list(args)
        if "-p" in args or "--param" in args:
            from dibs.sweeps.params import split_params

            try:
                params, rest = split_params(args)
            except BadInput:
                if not ctx.resilient_parsing:
                    raise
                rest = []  # TAB was pressed behind an unfinished -p
        command: list[str] | None = None
        if "--" in rest:
            place = rest.index("--")
            rest, command = rest[:place], rest[place + 1 :]
        ctx.meta["params"], ctx.meta["command"], ctx.meta["words"] = params, command, list(args)
        if any(word.startswith("--") for word in rest):
            from dibs.inputs.slurm import translate_options

            rest = translate_options(rest)
        try:
            return super().parse_args(ctx, rest)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click forgets it where an option lacks its value
            if isinstance(error, click.NoSuchOption) and command is None:
                ctx.meta["hint"] = "a command and its options stand behind --"
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_options(self, ctx, formatter)
