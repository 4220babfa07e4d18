"""`dibs lessons`: what jobs with `--vram auto` were seen to need."""

import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from dibs.cli.output import one_line, say, show, show_json, styled, table
from dibs.client.client import connect
from dibs.errors import BadInput
from dibs.model.units import show_size

_EPILOG = """\b
Examples:
  dibs lessons
  dibs lessons --forget '/data/ann/net/train.py --bs --lr'
  dibs lessons --forget all
"""


@click.command(epilog=_EPILOG)
@click.option("--forget", metavar="SHAPE", help="Forget what is known of this shape; all: of every shape.")
@click.option("--json", "as_json", is_flag=True, help="Print a list, or how many were forgotten.")
def lessons(forget: str | None, as_json: bool) -> int:
    """Show what jobs with --vram auto were measured to need, by their shape: script and names of arguments.

    And which programs could not be suspended.
    """
    client = connect(os.environ)
    if forget is not None:
        removed = client.forget_lessons(None if forget == "all" else forget)
        if not removed and forget != "all":
            raise BadInput(f"nothing is known of {forget[:200]!r}", remedy="`dibs lessons` lists every shape")
        if as_json:
            show_json({"removed": removed})
        else:
            say(f"forgot {removed} lesson{'' if removed == 1 else 's'}")
        return 0
    found = client.lessons()
    if as_json:
        show_json(found)
    elif not found:
        say("nothing was learned yet: `dibs add --vram auto` lets dibs find out what a job needs")
    else:
        show("\n".join(_table(found)))
    return 0


def _table(found: list[dict[str, Any]]) -> list[str]:
    headings = ["peak", "booked", "CPUs", "memory", "runs", "GPU", "suspending", "shape"]
    rows = [
        [*_numbers(one), one_line(one["gpu"], 60), _obstacle(one), one_line(one["shape"], 500)] for one in found
    ]
    if not any(one["obstacle"] for one in found):  # few programs have one
        for row in (headings, *rows):
            del row[-2]
    # Nothing is cut: the shape is what `--forget` wants to have.
    heading, *lines = table(headings, rows, width=sys.maxsize, shrink=len(headings) - 1)
    return [styled(heading, "bold"), *lines]


def _obstacle(lesson: Mapping[str, Any]) -> str:
    return f"no: {lesson['obstacle']}" if lesson["obstacle"] else ""


def _numbers(lesson: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    booked = lesson["booked_vram_bytes"]
    return (
        show_size(lesson["peak_vram_bytes"]),
        "the card" if lesson["needs_card"] else show_size(booked),
        f"{lesson['cpus']:.1f}",
        show_size(lesson["peak_mem_bytes"]),
        str(lesson["runs"]),
    )
