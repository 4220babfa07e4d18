"""`simple_hypersearch`: the commands of a hyperparameter search, one a line, for a scheduler to read.

Its options and the lines of `grid` are those of simple_gpu_scheduler's tool; docs/compat.md has what differs.
"""

import argparse
import os
import re
import string
import sys
from collections.abc import Iterator, Sequence

from dibs.errors import BadInput
from dibs.sweeps.grid import Grid
from dibs.sweeps.params import split_params
from dibs.sweeps.template import LineTemplate

_PARAMETER = "--parameter"
# argparse took every beginning of a long option for the whole of it, and so do we.
_FLAGS = ("-p", *(_PARAMETER[:end] for end in range(3, len(_PARAMETER) + 1)))


def main() -> None:
    """The console script."""
    try:
        sys.exit(_run(sys.argv[1:]))
    except BadInput as error:
        # Escaped: an argument may hold bytes that the terminal's encoding has no letters for.
        sentence = f"simple_hypersearch: error: {error.message}; {error.remedy}\n"
        sys.stderr.buffer.write(sentence.encode("utf-8", "backslashreplace"))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _run(argv: Sequence[str]) -> int:
    parameters, rest = split_params(argv, _FLAGS)
    options = _parser().parse_args(rest)
    grid = Grid.of(parameters)
    template = _template(options.command_pattern, grid, is_raw=options.raw)
    seed = None
    if options.sampling_mode == "shuffled_grid":
        seed = int.from_bytes(os.urandom(8), "big") if options.seed is None else options.seed
    points = grid.points(seed=seed, samples=options.n_samples)
    return _print(template.expand(point) for point in points)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="simple_hypersearch",
        usage='%(prog)s "COMMAND with {NAME}" -p NAME VALUES... [-p NAME VALUES...] [options]',
        description="Print one command for each combination of parameter values.",
        epilog='%(prog)s "train.py --lr {lr} --bs {bs}" -p lr 0.1 0.01 -p bs 32 64 prints four commands.',
    )
    parser.add_argument("command_pattern", help="the command, with {NAME} where a value belongs")
    parser.add_argument(
        "--sampling-mode",
        choices=["shuffled_grid", "grid"],
        default="shuffled_grid",
        help="the order of the combinations (default: shuffled_grid)",
    )
    parser.add_argument("--n-samples", type=int, help="print only so many (default: all)")
    parser.add_argument("--seed", type=int, help="makes the shuffled order the same each time")
    parser.add_argument("--raw", action="store_true", help="do not quote values: the shell reads them")
    # Only for --help: split_params takes these before argparse, which would stop at a value like -1e-3.
    parser.add_argument(
        "-p",
        _PARAMETER,
        nargs="+",
        action="append",
        metavar=("NAME", "VALUES"),
        help="a parameter and its values",
    )
    return parser


def _template(pattern: str, grid: Grid[str], *, is_raw: bool) -> LineTemplate:
    if "\0" in pattern:
        raise BadInput("the command contains a NUL byte", remedy="no program can be given one")
    for name, values in zip(grid.names, grid.values, strict=True):
        if any("\n" in value for value in values):
            raise BadInput(f"a value of {name} has a line break", remedy="every line printed is one command")
    has_escapes = _has_old_escapes(pattern, grid)
    return LineTemplate(pattern, grid.names, allow_unused=True, halve_braces=has_escapes, is_raw=is_raw)


def _has_old_escapes(pattern: str, grid: Grid[str]) -> bool:
    """Whether the original would have taken the pattern; then `{{` was its way to write `{`.

    Patterns it choked on, with JSON or `${VAR}` in them, have their braces kept.
    """
    try:
        fields = [field for field in string.Formatter().parse(pattern) if field[1] is not None]
    except ValueError:
        return False
    for _, field, layout, conversion in fields:
        name = re.split(r"[.\[]", field or "")[0]
        if name not in grid.names:
            return False
        if layout or conversion or field != name:
            raise BadInput(f"cannot change how {name} is written", remedy=f"write {{{name}}} alone")
    return True


def _print(commands: Iterator[str]) -> int:
    out = sys.stdout.buffer
    try:
        for command in commands:
            out.write(os.fsencode(command) + b"\n")
            out.flush()  # a scheduler at the other end starts with the first line, not with the first 8 KiB
    except OSError as error:
        # Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # `| head` has seen enough
            raise BadInput(
                f"cannot write the commands: {error.strerror}", remedy="make room, or use a pipe"
            ) from error
    return 0
