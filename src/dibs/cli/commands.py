"""What `dibs run` and `dibs add` have in common: a command behind `--`, and parameters that fill it."""

import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.field_options import write_options
from dibs.cli.output import one_line
from dibs.errors import BadInput
from dibs.model.jobs import Command, Request

if TYPE_CHECKING:
    from dibs.sweeps.grid import Grid
    from dibs.sweeps.params import Parameters

_FOR_A_SHELL = frozenset(" \t|&;<>()$`\\\"'*?[]#~%\n")


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


def check_words(options: dict[str, Any], line: Sequence[str], verb: str) -> None:
    """Refuse words that are no option, and say where they were most likely meant to stand."""
    words = [word for word in options["inputs"] if word != "-"]
    if not words:
        return

    numbers = list(takewhile(str.isdigit, words))
    if options.get("gpus") and numbers:
        remedy = f"write --gpus {','.join([options['gpus'].strip(' ,'), *numbers])}"
    elif all(map(os.path.isfile, words)):
        named = " ".join(f"-f {shlex.quote(word)}" for word in words)
        remedy = f"a job list stands behind -f: dibs {verb} {named}"
    else:
        place = list(line).index(words[0])
        meant = shlex.join(["dibs", verb, *line[:place], "--", *line[place:]])
        remedy = f"a command stands behind --, a job list behind -f: {meant}"
    raise BadInput(f"cannot use {words[0]!r} here", remedy=one_line(remedy, 500))


def check_parameters(options: dict[str, Any], params: object, command: list[str] | None, verb: str) -> None:
    """Refuse parameters without a command, and a command that is none."""
    if params and command is None:
        raise BadInput("-p fills {NAME} in a command", remedy="put the command behind --")
    if not params and (options["shuffle"] or options["samples"] or options["seed"] is not None):
        raise BadInput("--shuffle, --seed and --samples are for -p", remedy="give parameters with -p NAME VALUES")
    if command is not None and not command:
        raise BadInput("there is no command behind --", remedy=f"dibs {verb} -- python train.py")


def with_command(defaults: Request, words: Sequence[str], shell: str) -> Request:
    """Words are executed as they are; a single one with blanks in it is a line for the shell."""
    if len(words) == 1 and not os.path.exists(words[0]) and set(words[0]) & _FOR_A_SHELL:
        return replace(defaults, command=Command.line(words[0], shell))
    return replace(defaults, command=Command.exact(words))


def choose_seed(options: dict[str, Any], warnings: list[str]) -> int | None:
    """The seed of a shuffle, made up and told where none was given; None where nothing is shuffled."""
    if not options["shuffle"]:
        return None
    if options["seed"] is None:
        seed = int.from_bytes(os.urandom(4), "big")
        warnings.append(f"shuffled with --seed {seed}")
        return seed
    return int(options["seed"])


def points(
    defaults: Request,
    words: Sequence[str],
    grid: "Grid[str]",
    shell: str,
    *,
    seed: int | None,
    samples: int | None,
) -> Iterator[Request]:
    """One job for each combination of the parameters; checked now, made as they are wanted."""
    from dibs.sweeps.template import LineTemplate, WordsTemplate

    chosen = grid.points(seed=seed, samples=samples)
    if len(words) == 1:
        line = LineTemplate(words[0], grid.names)
        return (with_command(defaults, [line.expand(point)], shell) for point in chosen)
    template = WordsTemplate(words, grid.names)
    return (with_command(defaults, template.expand(point), shell) for point in chosen)


def is_piped() -> bool:
    """Whether a list may come in on stdin: not from a terminal, nor from /dev/null as under cron."""
    try:
        return not stat.S_ISCHR(os.fstat(0).st_mode)
    except OSError:
        return False
