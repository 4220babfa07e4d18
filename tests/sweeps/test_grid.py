"""Grids are counted and indexed, never written out."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.errors import BadInput
from dibs.sweeps.grid import Grid
from dibs.sweeps.permutation import Permutation

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
