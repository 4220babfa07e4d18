"""Options that several commands share, and how their text is read."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from dibs.errors import BadInput
from dibs.model.units import is_gpu_id, parse_duration, parse_size


class ParsedOption(click.ParamType):  # type: ignore[type-arg]  # generic only in newer clicks
    """An option whose text is read by one of our own parsers."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        with parsed(self, param, ctx):
            return self.parse(value)


@contextmanager
def parsed(
    kind: click.ParamType,  # type: ignore[type-arg]  # generic only in newer clicks
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> Iterator[None]:
    """What our own parsers refuse is refused as click does it, with the option."""
    try:
        yield
    except BadInput as error:
        kind.fail(f"{error.message}; {error.remedy}", param, ctx)


def _ids(text: str) -> tuple[str, ...]:
    ids = tuple(part.strip() for part in text.split(","))
    for one in ids:
        if not is_gpu_id(one):
            raise BadInput(f"cannot read {one!r} as a GPU", remedy="name GPUs like 0 or 0,1")
    if len(set(ids)) != len(ids):
        raise BadInput(f"{text!r} names a GPU twice", remedy="name each GPU once")
    return ids


def count(least: int, most: int = 999_999) -> ParsedOption:
    """A whole number in plain digits."""

    def parse(text: str) -> int:
        is_number = re.fullmatch(r"[0-9]{1,9}", text.strip())
        if not is_number or not least <= int(text) <= most:
            limit = f" to {most:,}" if is_number or len(text) > 9 else ""
            raise BadInput(
                f"cannot read {text[:60]!r} as a number", remedy=f"it is a whole number from {least}{limit}"
            )
        return int(text)

    return ParsedOption("number", parse)


SIZE = ParsedOption("size", parse_size)
TIME = ParsedOption("time", parse_duration)
GPU_IDS = ParsedOption("ids", _ids)

# -- options of several commands that are no fields of a job -------------------------------------

INPUTS = click.argument("inputs", nargs=-1, metavar="")
FILE = click.option("-f", "--file", "files", multiple=True, metavar="FILE", help="A job list; may be given again.")
PARAM = click.option(
    "-p", "--param", "_params", metavar="NAME VALUES...", help="Fill {NAME} in the command; again for more."
)
SHUFFLE = click.option("--shuffle", is_flag=True, help="Take the parameter combinations in random order.")
SEED = click.option("--seed", type=count(0), metavar="N", help="Makes --shuffle the same each time.")
SAMPLES = click.option("--samples", type=count(1), metavar="N", help="Take only N of the combinations.")
SHELL = click.option("--shell", default="bash", metavar="SHELL", help="The shell for job lines (default bash).")
SNAPSHOT = click.option(
    "--snapshot", is_flag=True, help="Run in a copy of the code as it is now; what jobs write there is kept."
)
IGNORE = click.option(
    "--ignore",
    multiple=True,
    metavar="OPTION",
    help="Read a #SBATCH script without this line; may be given again.",
)
