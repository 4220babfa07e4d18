"""Points by their index: all of them, each once, and only those that were asked for."""

import itertools

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from dibs.errors import BadInput
from dibs.sweeps.conditions import Condition
from dibs.sweeps.grid import Grid, Permutation
from dibs.sweeps.points import Points
from dibs.sweeps.spec import Spec
from sweeps.specs import a_sweep, numbers, values


def all_of(points: Points, most: int = 500) -> list[dict[str, str | None]]:
    indexes = range(most if points.size is None else points.size)
    return [point for index in indexes if (point := points.at(index)) is not None]


def key(point: dict[str, str | None]) -> tuple[tuple[str, str | None], ...]:
    return tuple(point.items())


def choices(name: str) -> st.SearchStrategy[dict[str, object]]:
    texts = st.lists(st.one_of(st.none(), st.sampled_from("abc123")), min_size=1, max_size=4, unique=True)
    return texts.map(lambda found: values(name, *found))


def counted(name: str) -> st.SearchStrategy[dict[str, object]]:
    return st.integers(0, 3).map(lambda more: numbers(name, 1, 1 + more, integer=True))


GRIDS = st.tuples(
    st.one_of(choices("a"), counted("a")),
    st.one_of(choices("b"), counted("b")),
    st.one_of(choices("c"), counted("c")),
).map(list)
CONDITIONS = st.sampled_from(["", "a == 1", "a != 'x'", "a is None", "a in ('a', 1)", "a == 'never'"])


def possible_sweep(parameters: list[dict[str, object]], **more: object) -> Spec:
    """Conditions that no point fulfils are refused (test_possible.py)."""
    try:
        return a_sweep(parameters, **more)
    except BadInput as refusal:
        assert "no point fulfils" in refusal.message
        reject()


def test_a_grid_goes_through_nested_loops_in_order():
    spec = a_sweep([values("a", "x", "y"), numbers("n", 1, 3, integer=True)])

    points = all_of(Points(spec))

    assert [" ".join(point.values()) for point in points] == ["x 1", "x 2", "x 3", "y 1", "y 2", "y 3"]


@given(GRIDS, st.integers(0, 2**32 - 1))
def test_a_shuffled_grid_has_the_same_points(parameters, seed):
    in_order, shuffled = a_sweep(parameters), a_sweep(parameters, shuffle=True, seed=seed)

    expected = sorted(map(repr, all_of(Points(in_order))))

    assert sorted(map(repr, all_of(Points(shuffled)))) == expected


@given(GRIDS, CONDITIONS, CONDITIONS, st.sampled_from(["grid", "random"]), st.integers(0, 100))
def test_points_are_distinct_whatever_is_not_wanted(parameters, first, second, method, seed):
    parameters = [parameters[0], parameters[1] | {"when": first}, parameters[2] | {"when": second}]
    spec = possible_sweep(parameters, method=method, samples=9, seed=seed)

    points = all_of(Points(spec))

    assert len({key(point) for point in points}) == len(points)


@given(GRIDS, CONDITIONS)
def test_a_condition_loses_no_point(parameters, when):
    parameters = [parameters[0], parameters[1] | {"when": when}, parameters[2]]
    free = a_sweep([parameters[0], parameters[1] | {"when": ""}, parameters[2]])
    spec = possible_sweep(parameters)

    points = {key(point) for point in all_of(Points(spec))}

    condition = Condition(when, ["a"]) if when else None
    for point in all_of(Points(free)):
        is_wanted = condition is None or condition.holds(point)
        assert key(point if is_wanted else point | {"b": None}) in points


@given(GRIDS, st.sampled_from(["a == b", "a != b or c == 1", "not (b is None)", "a * 2 > b"]), st.booleans())
def test_every_point_fulfils_where_and_none_that_does_is_lost(parameters, where, shuffle):
    spec = possible_sweep(parameters, where=[where], shuffle=shuffle)
    condition = Condition(where, "abc")

    points = all_of(Points(spec))

    expected = [point for point in all_of(Points(a_sweep(parameters))) if condition.holds(point)]
    assert sorted(map(repr, points)) == sorted(map(repr, expected))


def test_a_parameter_that_is_not_wanted_is_none():
    spec = a_sweep(
        [values("optimizer", "sgd", "adam"), values("momentum", "0.5", "0.9", when="optimizer == 'sgd'")]
    )

    points = all_of(Points(spec))

    assert [tuple(point.values()) for point in points] == [("sgd", "0.5"), ("sgd", "0.9"), ("adam", None)]


def test_what_depends_on_something_that_is_not_wanted_is_not_wanted():
    spec = a_sweep(
        [values("a", "1", "2"), values("b", "1", "2", when="a == 1"), values("c", "1", "2", when="b == 2")]
    )

    points = all_of(Points(spec))

    assert [tuple(point.values()) for point in points] == [
        ("1", "1", None),
        ("1", "2", "1"),
        ("1", "2", "2"),
        ("2", None, None),
    ]


def test_a_million_million_points_are_counted_and_found_at_once():
    spec = a_sweep([values(name, *map(str, range(100))) for name in "abcdef"], shuffle=True, where=["a != b"])

    points = Points(spec)

    assert points.size == 10**12
    assert points.at(10**12 - 1) != points.at(10**12 - 2)
    assert points.count() is None


def test_a_range_of_a_million_million_whole_numbers_is_not_written_out():
    spec = a_sweep([numbers("n", 0, 10**12, integer=True), numbers("x", 0, 1, step=1e-6)])

    points = Points(spec)

    assert points.size == (10**12 + 1) * (10**6 + 1)
    assert points.at(points.size - 1) == {"n": "1000000000000", "x": "1"}


@pytest.mark.parametrize("index", [-1, 6])
def test_there_is_nothing_outside_of_a_grid(index):
    points = Points(a_sweep([values("a", "x", "y"), numbers("n", 1, 3, integer=True)]))

    with pytest.raises(IndexError):
        points.at(index)


def test_random_points_of_dense_ranges_have_no_end():
    spec = a_sweep([numbers("lr", 1e-5, 1, scale="log"), values("bs", "32", "64")], method="random", samples=5)

    points = Points(spec)

    assert points.size is None
    assert points.at(10_000) is not None


@given(st.integers(0, 2**32 - 1), st.permutations(range(30)))
def test_a_point_is_the_same_in_whatever_order_it_is_asked_for(seed, order):
    spec = a_sweep([numbers("n", 1, 20, integer=True, scale="log")], method="random", samples=5, seed=seed)
    in_order = Points(spec)
    expected = [in_order.at(index) for index in range(30)]

    mixed = Points(spec)

    assert {index: mixed.at(index) for index in order} == dict(enumerate(expected))


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_drawn_points_are_distinct_also_where_there_are_few(seed):
    spec = a_sweep(
        [numbers("n", 1, 4, integer=True, scale="log"), numbers("x", 0, 1, when="n == 4")],
        method="random",
        samples=5,
        seed=seed,
    )

    points = all_of(Points(spec))

    assert len({key(point) for point in points}) == len(points)
    assert {point["n"] for point in points} == {"1", "2", "3", "4"}
    assert sum(point["n"] != "4" for point in points) == 3


def test_draws_of_few_values_have_an_end():
    x = {"name": "x", "values": ["1", "2", "3"], "weights": [0.9, 0.1, 0.0]}
    points = Points(a_sweep([x], method="random", samples=10, seed=1))
    assert not points.is_end(0)

    found = all_of(points, 100)

    assert sorted(str(point["x"]) for point in found) == ["1", "2"]
    last = max(index for index in range(100) if points.at(index) is not None)
    assert not points.is_end(last) and points.is_end(last + 1)


def test_a_population_begins_with_equal_points_only_where_there_are_few():
    metric = [{"name": "a", "goal": "max"}]
    spec = a_sweep([values("x", "1", "2")], method="population", population=4, samples=8, metrics=metric)
    points = Points(spec)

    found = [point for index in range(1002) if (point := points.at(index)) is not None]

    assert sorted(str(point["x"]) for point in found[:2]) == ["1", "2"]
    assert len(found) == 4 and not points.is_end(1002)


def test_random_choices_are_drawn_without_repetition():
    spec = a_sweep([values("a", *"12345"), values("b", *"12345")], method="random", samples=25, seed=8)

    points = Points(spec)

    assert points.size == 25
    assert len({key(point) for point in all_of(points)}) == 25


def test_the_same_seed_gives_the_same_points_for_ever():
    spec = a_sweep(
        [numbers("lr", 1e-5, 1, scale="log"), values("bs", "32", "64")], method="random", samples=5, seed=7
    )

    points = Points(spec)

    assert [tuple(points.at(index).values()) for index in range(3)] == [
        ("0.00239957", "32"),
        ("0.0126146", "32"),
        ("0.23124", "64"),
    ]


def test_another_parameter_does_not_change_what_the_others_draw():
    rate = numbers("lr", 1e-5, 1, scale="log")
    alone = Points(a_sweep([rate], method="random", samples=5, seed=3))
    together = Points(a_sweep([values("new", "1", "2"), rate], method="random", samples=5, seed=3))

    assert [alone.at(index)["lr"] for index in range(9)] == [together.at(index)["lr"] for index in range(9)]


def test_the_next_point_is_found_behind_those_left_out():
    points = Points(a_sweep([numbers("n", 0, 999, integer=True)], where=["n % 100 == 99"]))

    assert points.next(0) == (100, {"n": "99"})
    assert points.next(100, most=50) == (150, None)
    assert points.next(950) == (1000, {"n": "999"})
    assert points.next(1000) == (1000, None)


def test_a_condition_that_nothing_fulfils_does_not_take_for_ever():
    points = Points(a_sweep([numbers("x", 0, 1)], method="random", samples=5, where=["round(x, 2) == 0.001"]))

    assert points.next(0, most=100) == (100, None)


def test_the_points_that_there_really_are_can_be_counted():
    points = Points(a_sweep([numbers("n", 0, 999, integer=True)], where=["n % 100 == 99"]))

    assert points.size == 1000
    assert points.count() == 10


@pytest.mark.parametrize(
    "parameters",
    [
        [values("a", "1", "2", when="b == 1"), values("b", "1", "2")],
        [values("a", "1", "2", when="a == 1")],
        [values("a", "1", "2", when="b == 1"), values("b", "1", "2", when="a == 1")],
    ],
)
def test_a_parameter_depends_only_on_those_before_it(parameters):
    with pytest.raises(BadInput) as refusal:
        a_sweep(parameters)

    assert "which does not come before it" in refusal.value.message


AXES = st.lists(st.integers(1, 4), min_size=1, max_size=5)


@given(AXES)
def test_the_order_is_that_of_nested_loops(sizes):
    axes = [(f"p{place}", [str(n) for n in range(size)]) for place, size in enumerate(sizes)]

    points = list(Grid.of(axes).points())

    assert [tuple(point.values()) for point in points] == list(itertools.product(*(v for _, v in axes)))


@given(st.integers(1, 300), st.integers())
def test_a_shuffle_meets_every_point_once(n, seed):
    permutation = Permutation(n, seed)

    order = [permutation[index] for index in range(n)]

    assert sorted(order) == list(range(n))


@given(st.integers(1, 10**40), st.integers(), st.data())
def test_a_shuffle_of_any_size_stays_inside_and_keeps_points_apart(n, seed, data):
    permutation = Permutation(n, seed)
    places = data.draw(st.sets(st.integers(0, n - 1), max_size=20))

    images = {permutation[place] for place in places}

    assert len(images) == len(places)
    assert all(0 <= image < n for image in images)


def test_every_order_of_three_points_comes_up_about_as_often():
    seeds = range(1200)

    orders = [tuple(Permutation(3, seed)[index] for index in range(3)) for seed in seeds]

    counts = [orders.count(order) for order in itertools.permutations(range(3))]
    assert min(counts) > 140
    assert max(counts) < 260


def test_the_same_seed_gives_the_same_order_for_ever():
    grid = Grid.of([("a", list("xyz")), ("b", list("12"))])

    order = ["".join(point.values()) for point in grid.points(seed=1)]

    assert " ".join(order) == "y2 x2 y1 x1 z2 z1"


def test_a_million_million_points_cost_nothing():
    grid = Grid.of([(name, [str(n) for n in range(100)]) for name in "abcdef"])

    drawn = list(grid.points(seed=3, samples=100))

    assert grid.size == 10**12
    assert len({tuple(point.values()) for point in drawn}) == 100


def test_a_grid_beyond_what_len_can_count_still_works():
    grid = Grid.of([(f"p{n}", [str(i) for i in range(100)]) for n in range(1000)])

    [point] = grid.points(seed=1, samples=1)

    assert grid.size == 100**1000
    assert len(set(point.values())) > 50


def test_more_samples_than_points_are_all_of_them():
    grid = Grid.of([("a", ["1", "2"])])

    points = list(grid.points(samples=99))

    assert points == [{"a": "1"}, {"a": "2"}]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ([], "no parameter"),
        ([("lr", [])], "lr has no values"),
        ([("lr", ["1"]), ("lr", ["2"])], "lr is given twice"),
        ([("1r", ["1"])], "'1r'"),
        ([("", ["1"])], "''"),
        ([("a b", ["1"])], "'a b'"),
        ([("lr", ["1\0"])], "NUL"),
        ([(f"p{n}", ["1"]) for n in range(1001)], "at most 1000"),
    ],
)
def test_parameters_that_cannot_be_meant_are_refused(parameters, words):
    with pytest.raises(BadInput) as refusal:
        Grid.of(parameters)

    assert words in refusal.value.message
    assert refusal.value.remedy


@pytest.mark.parametrize("samples", [0, -1])
def test_fewer_than_one_sample_is_refused(samples):
    grid = Grid.of([("a", ["1"])])

    with pytest.raises(BadInput) as refusal:
        grid.points(samples=samples)

    assert str(samples) in refusal.value.message
