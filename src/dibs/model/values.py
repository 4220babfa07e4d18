"""Copies of frozen values."""

from typing import Any, TypeVar

_T = TypeVar("_T")


def changed(value: _T, **changes: Any) -> _T:
    """What `dataclasses.replace` does, in half the time; for what is done at every job.

    Only for slotted dataclasses that check nothing when they are made. A wrong name is an AttributeError.
    """
    kind = type(value)
    new = object.__new__(kind)
    put = object.__setattr__
    for name in kind.__slots__:  # type: ignore[attr-defined]
        put(new, name, getattr(value, name))
    for name in changes:
        put(new, name, changes[name])
    return new
