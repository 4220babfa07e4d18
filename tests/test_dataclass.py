"""`dibs.dataclass` against the standard library's: the same classes, made by both, behave alike."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import asdict, field, fields, replace
from typing import Any

import pytest

import dibs.dataclass

STANDARD = dataclasses.dataclass
OURS = dibs.dataclass.dataclass


def classes(dataclass: Callable[..., Any]) -> dict[str, Any]:
    """One class for each thing that a class of ours may ask for."""

    @dataclass(frozen=True, slots=True)
    class Point:
        """A point."""

        x: int
        y: int = 0

        @property
        def sum(self) -> int:
            return self.x + self.y

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Wish:
        name: str
        tags: list[str] = field(default_factory=list)
        secret: str = field(default="", repr=False)
        moment: float | None = field(default=None, compare=False)
        first: int = field(default=0, kw_only=False)

    @dataclass(slots=True)
    class Count:
        number: int = 0

    @dataclass(frozen=True)
    class Plain:
        self_: object = None
        type: str = "x"

    @dataclass
    class Nothing:
        pass

    @dataclass(frozen=True, slots=True)
    class Checked:
        value: int

        def __post_init__(self) -> None:
            if self.value < 0:
                raise ValueError("it is negative")

    return {one.__name__: one for one in (Point, Wish, Count, Plain, Nothing, Checked)}


CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Point", (1,), {}),
    ("Point", (1, 2), {}),
    ("Point", (), {"y": 2, "x": 1}),
    ("Point", (), {}),
    ("Point", (1, 2, 3), {}),
    ("Point", (1,), {"z": 3}),
    ("Wish", (7,), {"name": "a"}),
    ("Wish", (), {"name": "a", "tags": ["t"], "secret": "s", "moment": 1.5}),
    ("Wish", ("a", "b"), {}),
    ("Count", (), {}),
    ("Count", (3,), {}),
    ("Plain", (), {"self_": 1}),
    ("Nothing", (), {}),
    ("Nothing", (1,), {}),
    ("Checked", (1,), {}),
    ("Checked", (-1,), {}),
]


def outcome(act: Callable[[], Any]) -> Any:
    """What an act gives, or the kind and text of its error."""
    try:
        return act()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("call", CALLS, ids=str)
@pytest.mark.parametrize("times", [1, 2])  # the first instance compiles `__init__`
def test_instances_are_made_and_shown_alike(call, times):
    def made(dataclass: Callable[..., Any]) -> Any:
        name, values, named = call
        kind = classes(dataclass)[name]
        for _ in range(times - 1):
            outcome(lambda: kind(*values, **named))
        instance = kind(*values, **named)
        return repr(instance), asdict(instance), [one.name for one in fields(instance)], kind.__match_args__

    assert outcome(lambda: made(OURS)) == outcome(lambda: made(STANDARD))


@pytest.mark.parametrize(
    "act",
    [
        lambda Point, **_: Point(1, 2) == Point(1, 2),
        lambda Point, **_: Point(1, 2) == Point(1, 3),
        lambda Point, **_: Point(1, 2) == (1, 2),
        lambda Point, **_: Point(1) != Point(1),
        lambda Point, **_: hash(Point(1, 2)) == hash(Point(1, 2)) == hash((1, 2)),
        lambda Point, **_: len({Point(1), Point(1, 0), Point(2)}),
        lambda Point, **_: Point(1) < Point(2),
        lambda Point, **_: setattr(Point(1), "x", 2),
        lambda Point, **_: delattr(Point(1), "x"),
        lambda Point, **_: repr(replace(Point(1, 2), y=5)),
        lambda Point, **_: replace(Point(1, 2), z=5),
        lambda Point, **_: Point(3, 4).sum,
        lambda Point, **_: (Point.__doc__, Point.__slots__),
        lambda Point, **_: repr(copy.copy(Point(1, 2))),
        lambda Point, **_: repr(copy.deepcopy(Point([1], 2))),
        lambda Point, Checked, **_: Point(1) == Checked(1),
        lambda Wish, **_: Wish(name="a", moment=1.0) == Wish(name="a", moment=2.0),
        lambda Wish, **_: Wish(name="a").tags is Wish(name="a").tags,
        lambda Wish, **_: hash(Wish(name="a")),  # a list cannot be hashed
        lambda Count, **_: hash(Count()),
        lambda Count, **_: setattr(Count(), "number", 1),
        lambda Count, **_: setattr(Count(), "other", 1),
        lambda Count, **_: Count(float("nan")) == Count(float("nan")),
        lambda Plain, **_: (hash(Plain()) == hash(Plain()), vars(Plain())),
        lambda Plain, **_: setattr(Plain(), "type", 1),
        lambda Plain, **_: setattr(Plain(), "other", 1),
        lambda Nothing, **_: Nothing() == Nothing(),
        lambda Checked, **_: (Checked(1) == Checked(1), hash(Checked(1)) == hash((1,))),
        lambda Checked, **_: replace(Checked(1), value=-1),
    ],
)
def test_methods_do_the_same(act):
    assert outcome(lambda: act(**classes(OURS))) == outcome(lambda: act(**classes(STANDARD)))


def test_one_that_holds_itself_can_be_shown():
    kind = classes(OURS)["Count"]
    count = kind()
    count.number = count

    assert repr(count).endswith("Count(number=...)")


def test_a_class_below_a_frozen_one_may_have_attributes_of_its_own():
    def seen(dataclass: Callable[..., Any]) -> Any:
        class Below(classes(dataclass)["Plain"]):
            pass

        below = Below()
        below.other = 3
        del below.other
        return outcome(lambda: setattr(below, "type", 2)), outcome(lambda: delattr(below, "type"))

    assert seen(OURS) == seen(STANDARD)


@OURS(frozen=True, slots=True)
class Sent:
    word: str
    number: int = 0


def test_a_frozen_one_with_slots_can_be_pickled():
    assert pickle.loads(pickle.dumps(Sent("a", 2))) == Sent("a", 2)


def test_a_method_of_its_own_is_not_replaced_silently():
    with pytest.raises(TypeError, match="Odd has a __repr__ of its own"):

        @OURS(slots=True)
        class Odd:
            x: int

            def __repr__(self) -> str:
                return "odd"
