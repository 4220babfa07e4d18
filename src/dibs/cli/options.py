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
GPU_IDS = Parsed("ids", _ids)
