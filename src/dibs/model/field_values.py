"""Values of a job's fields: in a request, and in JSON as the API and `dibs export` have them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from dibs.model.fields import BESIDE_COMMAND, BY_KEY, Field, Kind
from dibs.model.jobs import Request
from dibs.model.units import AUTO, format_moment

_OF_GPUS = frozenset(field.name for field in BESIDE_COMMAND if field.of_gpus)


def with_values(request: Request, values: Mapping[str, Any]) -> Request:
    """The request with these values, by the names of their fields."""
    changes = {name: value for name, value in values.items() if name not in _OF_GPUS}
    if len(changes) < len(values):
        of_gpus = {name: value for name, value in values.items() if name in _OF_GPUS}
        changes["wishes"] = replace(request.wishes, **of_gpus)
    return replace(request, **changes) if changes else request


def to_json(field: Field, value: Any) -> Any:
    """A value as JSON has it under the key of its field."""
    write = _WRITERS.get(field.kind)
    return value if write is None or value is None else write(value)


def request_json(request: Request) -> dict[str, Any]:
    """Everything that was asked for, but for the command."""
    return {
        key: value if write is None or value is None else write(value)
        for (key, write), value in zip(_KEYS, values_of(request), strict=True)
    }


_WRITERS: dict[Kind, Callable[[Any], Any]] = {
    Kind.SHAPE: lambda shape: AUTO if shape else None,
    Kind.SHARE: str,
    Kind.GPU_IDS: list,
    Kind.NAMES: list,
    Kind.MODULES: list,
    Kind.CAUSES: list,
    Kind.VARIABLES: dict,
    Kind.SYSTEM_OPTIONS: dict,
    Kind.MOMENT: format_moment,
    Kind.DEPENDENCIES: lambda after: [{"job": one.job, "kind": str(one.kind)} for one in after],
    Kind.ARRAY: lambda array: {"task": array.task, "most": array.most},
    Kind.CHECKPOINT: lambda checkpoint: {"signal": checkpoint.signal, "seconds": checkpoint.seconds},
}
_KEYS = tuple((key, _WRITERS.get(field.kind)) for key, field in BY_KEY.items())
# What a request has in each field that has a key, in the order of BY_KEY; in one call, because lists are long.
values_of: Callable[[Request], tuple[Any, ...]] = attrgetter(
    *(f"wishes.{field.name}" if field.of_gpus else field.name for field in BY_KEY.values())
)
