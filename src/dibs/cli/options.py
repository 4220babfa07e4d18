"""Options that several commands share, and how their text becomes wishes."""

import re
from collections.abc import Callable
from typing import Any

import click

from dibs.errors import BadInput


class Parsed(click.ParamType):  # type: ignore[type-arg]  # generic only in newer clicks
    """An option whose text is read by one of our own parsers."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except BadInput as error:
            self.fail(f"{error.message}; {error.remedy}", param, ctx)


def _late(name: str) -> Callable[[str], Any]:
    """A parser of model/units.py, loaded when an option is used."""

    def parse(text: str) -> Any:
        from dibs.model import units

        return getattr(units, name)(text)

    return parse


def _ids(text: str) -> tuple[str, ...]:
    from dibs.model.pool import is_gpu_id

    ids = tuple(part.strip() for part in text.split(","))
    for one in ids:
        if not is_gpu_id(one):
            raise BadInput(f"cannot read {one!r} as a GPU", remedy="name GPUs like 0 or 0,1")
    if len(set(ids)) != len(ids):
        raise BadInput(f"{text!r} names a GPU twice", remedy="name each GPU once")
    return ids


def count(least: int) -> Parsed:
    """A whole number in plain digits."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,6}", text.strip()) or int(text) < least:
            raise BadInput(f"cannot read {text!r} as a number", remedy=f"it is a whole number from {least}")
        return int(text)

    return Parsed("number", parse)


SIZE = Parsed("size", _late("parse_size"))
TIME = Parsed("time", _late("parse_duration"))
SHARE = Parsed("share", _late("parse_share"))
VRAM_SIZE = Parsed("size", _late("parse_vram"))  # bytes, and whether they are to be learned
GPU_IDS = Parsed("ids", _ids)

# -- options of `dibs run` and `dibs add` alike ---------------------------------------------------

INPUTS = click.argument("inputs", nargs=-1, metavar="")
FILE = click.option("-f", "--file", "files", multiple=True, metavar="FILE", help="A job list; may be given again.")
NUM_GPUS = click.option(
    "-n", "--num-gpus", type=count(0), metavar="N", help="How many GPUs each job wants (default 1)."
)
PREFER = click.option("--prefer", type=GPU_IDS, metavar="IDS", help="GPUs to take first when they are free.")
ONLY = click.option("--only", type=GPU_IDS, metavar="IDS", help="Use these GPUs only, and wait for them.")
SHARE_OPTION = click.option(
    "--share", type=SHARE, metavar="PART", help="The part of a GPU each job books: 0.5 or 1/3."
)
VRAM = click.option(
    "--vram",
    type=VRAM_SIZE,
    default=(None, ""),
    metavar="SIZE",
    help="GPU memory each job books: 12G, or auto for what its like needed.",
)
BIND = click.option("--bind", is_flag=True, help="Keep each job to the CPUs near its GPUs.")
TIME_LIMIT = click.option(
    "-t", "--time", "time_limit", type=TIME, metavar="TIME", help="Longest time of a job: 2h, 90s."
)
GRACE = click.option("--grace", type=TIME, metavar="TIME", help="Time between TERM and KILL (default 10s).")
RETRIES = click.option(
    "--retries", type=count(0), default=0, metavar="N", help="Try a failed job again, with growing pauses."
)
PARAM = click.option(
    "-p", "--param", "_params", metavar="NAME VALUES...", help="Fill {NAME} in the command; again for more."
)
SHUFFLE = click.option("--shuffle", is_flag=True, help="Take the parameter combinations in random order.")
SEED = click.option("--seed", type=count(0), metavar="N", help="Makes --shuffle the same each time.")
SAMPLES = click.option("--samples", type=count(1), metavar="N", help="Only so many of the combinations.")
SHELL = click.option("--shell", default="bash", metavar="SHELL", help="The shell for job lines (default bash).")
WORKDIR = click.option("-C", "--workdir", metavar="DIR", help="Run the jobs in this folder.")
