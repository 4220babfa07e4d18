"""`dataclass` as in the standard library, at a tenth of its cost when a module is imported.

The standard library writes and compiles up to six methods for each class. `dibs run` has 120 classes and makes
instances of half of them; compiling was half of the time of its imports. Here `__init__` is compiled when the
first instance is made, and the other methods are closures over the names of the fields. Instances are made and
compared as fast as there. Fields, slots, `replace`, `asdict` and `__match_args__` are the standard library's own.

A class may ask for `frozen`, `slots` and `kw_only`. Each of its fields is a parameter of `__init__`. A class with
one of these methods of its own is refused.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

_NO_VALUE = object()  # stands for what a default factory makes


def _dataclass(
    cls: type[Any] | None = None, /, *, frozen: bool = False, slots: bool = False, kw_only: bool = False
) -> Any:
    def made(cls: type[Any]) -> type[Any]:
        # Without a docstring the standard library computes the signature, which takes as long as all the rest.
        cls.__doc__ = cls.__doc__ or cls.__name__
        cls = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
        _add_methods(cls, dataclasses.fields(cls), frozen, slots)
        return cls

    return made if cls is None else made(cls)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass


def _add_methods(cls: Any, fields: tuple[Field[Any], ...], frozen: bool, slots: bool) -> None:
    names = frozenset(field.name for field in fields)
    compared = _values([field.name for field in fields if field.compare])

    def __init__(self: Any, *values: Any, **named: Any) -> None:
        cls.__init__ = _compiled_init(cls, fields, frozen)
        cls.__init__(self, *values, **named)

    def __eq__(self: Any, other: Any) -> Any:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(compared(self))

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    methods: list[Callable[..., Any]] = [__init__, __eq__, __repr__]
    if frozen:
        methods += [__hash__, __setattr__, __delattr__]
        if slots:
            methods += [__getstate__, __setstate__]  # pickle and copy would use `__setattr__`
    for method in methods:
        if method.__name__ in vars(cls):
            raise TypeError(
                f"{cls.__name__} has a {method.__name__} of its own: use the standard library's dataclass"
            )
        setattr(cls, method.__name__, method)
    if not frozen:
        cls.__hash__ = None


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the values of these attributes as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda instance: tuple(getattr(instance, name) for name in names)


def _compiled_init(cls: type[Any], fields: tuple[Field[Any], ...], frozen: bool) -> Callable[..., None]:
    scope: dict[str, Any] = {"_set": object.__setattr__, "_NO_VALUE": _NO_VALUE}
    positional, by_name, body = ["self"], ["*"], []
    for field in fields:
        name = value = field.name
        parameter = name
        if field.default is not MISSING:
            scope[f"_default_{name}"] = field.default
            parameter = f"{name}=_default_{name}"
        elif field.default_factory is not MISSING:
            scope[f"_make_{name}"] = field.default_factory
            parameter = f"{name}=_NO_VALUE"
            value = f"_make_{name}() if {name} is _NO_VALUE else {name}"
        (by_name if field.kw_only else positional).append(parameter)
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = positional + (by_name if len(by_name) > 1 else [])
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"]), scope)
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


@recursive_repr()
def __repr__(self: Any) -> str:
    shown = ", ".join(
        f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr
    )
    return f"{self.__class__.__qualname__}({shown})"


def __getstate__(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def __setstate__(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
