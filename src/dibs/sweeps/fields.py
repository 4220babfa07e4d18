"""JSON taken apart key by key, so strictly that a typing error is told and not ignored."""

import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from dibs.errors import BadInput

_Default = TypeVar("_Default", int, None)


class Fields:
    """An object of JSON. Each key is asked for once; `end` refuses what nobody asked for."""

    def __init__(self, given: Any, owner: str) -> None:
        """`owner` is what the sentences call it, as `the sweep` or `the parameter lr`."""
        if not isinstance(given, Mapping):
            raise BadInput(f"cannot read {owner}: it is not an object with keys", remedy=_REMEDY)
        self._given = given
        self._owner = owner
        self._asked: set[str] = set()

    def has(self, key: str) -> bool:
        """Whether the key is there with a value; null is as good as nothing."""
        self._asked.add(key)
        return self._given.get(key) is not None

    def text(self, key: str, default: str | None = None) -> str:
        """A text; where there is no default it must be there."""
        value = self._take(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a text")
        return value

    def texts(self, key: str) -> list[str]:
        values = self._list(key)
        if not all(isinstance(value, str) for value in values):
            raise self._wrong(key, "a list of texts")
        return values

    def values(self, key: str) -> list[str | None]:
        """Texts or null; numbers and truths become texts as JSON writes them."""
        return [self._value(key, value) for value in self._list(key)]

    def number(self, key: str) -> float:
        value = self._take(key, None)
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            raise self._wrong(key, "a number")
        return float(value)

    def whole(self, key: str, default: _Default) -> int | _Default:
        if not self.has(key):
            return default
        value = self._given[key]
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, "a whole number")
        return value

    def truth(self, key: str) -> bool:
        value = self._take(key, False)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def one_of(self, key: str, words: Any, default: str) -> Any:
        """One of the words of a Literal."""
        value = self._take(key, default)
        if value not in get_args(words):
            raise self._wrong(key, " or ".join(word or "empty" for word in get_args(words)))
        return value

    def object(self, key: str) -> "Fields":
        """Another object in this one; an empty one where it is not there."""
        return Fields(self._take(key, {}), f"{key} of {self._owner}")

    def objects(self, key: str) -> "list[Fields]":
        return [Fields(value, f"{key} {place} of {self._owner}") for place, value in enumerate(self._list(key), 1)]

    def end(self) -> None:
        """Refuse the keys that nobody asked for."""
        for key in self._given:
            if key not in self._asked:
                known = ", ".join(sorted(self._asked))
                raise BadInput(
                    f"cannot read {self._owner}: there is no key {key!r}", remedy=f"the keys are {known}"
                )

    def _take(self, key: str, default: Any) -> Any:
        self._asked.add(key)
        value = self._given.get(key)
        return default if value is None else value

    def _list(self, key: str) -> list[Any]:
        values = self._take(key, [])
        if not isinstance(values, list | tuple):
            raise self._wrong(key, "a list")
        return list(values)

    def _value(self, key: str, value: Any) -> str | None:
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, int | float) and _is_finite(value):
            return json.dumps(value)
        raise self._wrong(key, "a list of texts, numbers and null")

    def _wrong(self, key: str, wanted: str) -> BadInput:
        missing = self._given.get(key) is None
        return BadInput(
            f"cannot read {self._owner}: {key} is {'missing' if missing else 'not ' + wanted}",
            remedy=f"{key} is {wanted}",
        )


_REMEDY = 'as {"command": "train --lr {lr}", "parameters": [{"name": "lr", "values": ["0.1"]}]}'


def _is_finite(value: int | float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number of 400 digits
        return False
