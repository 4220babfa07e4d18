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


def _priority(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 10**9
    if not -999_999 <= number <= 999_999 or not text.strip().lstrip("+-").isascii():
        raise BadInput(f"cannot read {text!r} as a priority", remedy="it is a whole number; higher goes first")
    return number


def _modules(text: str) -> tuple[str, ...]:
    from dibs.model.warm import parse_modules

    return parse_modules(text)


def count(least: int, most: int = 999_999) -> Parsed:
    """A whole number in plain digits."""

    def parse(text: str) -> int:
        is_number = re.fullmatch(r"[0-9]{1,9}", text.strip())
        if not is_number or not least <= int(text) <= most:
            limit = f" to {most:,}" if is_number or len(text) > 9 else ""
            raise BadInput(
                f"cannot read {text[:60]!r} as a number", remedy=f"it is a whole number from {least}{limit}"
            )
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
WARM = click.option(
    "--warm",
    type=Parsed("modules", _modules),
    default=(),
    metavar="MODULES",
    help="Fork Python jobs from a process that has imported these: torch,numpy.",
)
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

# -- options of `dibs add` and `dibs sweep` alike -------------------------------------------------

GPU_TYPE = click.option("--gpu-type", default="", metavar="NAME", help="A part of the card's name: h200.")
CPUS = click.option("--cpus", type=count(1), metavar="N", help="CPUs each job books.")
MEM = click.option("--mem", type=SIZE, metavar="SIZE", help="Memory of the machine each job books.")
PRIORITY = click.option(
    "--priority", type=Parsed("number", _priority), default=0, metavar="N", help="Higher goes first (default 0)."
)
NAME = click.option("-J", "--name", default="", metavar="NAME", help="What the jobs are called.")
PROJECT = click.option(
    "-P", "--project", default="", metavar="NAME", help="What they belong to; projects take turns."
)
TAG = click.option(
    "--tag", "tags", multiple=True, metavar="WORD", help="A word to find them by; may be given again."
)
RETRY_ON = click.option(
    "--retry-on", default="", metavar="CAUSES", help="Try again only after these: gpu-oom,lost,exit-code."
)
RESTARTABLE = click.option(
    "--restartable", is_flag=True, help="May run again when nobody saw its end, as after a power cut."
)
ENV = click.option(
    "--env", "env", multiple=True, metavar="K=V", help="A variable for the jobs; may be given again."
)
SNAPSHOT = click.option("--snapshot", is_flag=True, help="Keep a copy of the code as it is now, and run in it.")
NOTIFY = click.option("--notify", type=click.Choice(["end", "failure"]), default=None, help="Tell you about it.")
