"""Generations of a population: who continues whom, with which parameters."""

import pytest

from dibs.sweeps.population import Member, NothingToContinue, next_generation
from sweeps.specs import a_sweep, numbers, values

METRIC = [{"name": "loss"}]


def a_population(*parameters, **more):
    return a_sweep(list(parameters), method="population", samples=80, metrics=METRIC, **more)


def test_the_worst_quarter_takes_over_from_the_best_with_changed_parameters():
    spec = a_population(numbers("lr", 1e-4, 1, scale="log"))
    members = [Member(number, {"lr": "0.01"}, float(number)) for number in range(1, 9)]

    found = next_generation(spec, 1, members)

    assert [one.continues for one in found[:6]] == [1, 2, 3, 4, 5, 6]
    assert {one.point["lr"] for one in found[:6]} == {"0.01"}
    assert {one.continues for one in found[6:]} <= {1, 2}
    assert all(one.point["lr"] != "0.01" for one in found[6:])
    assert found == next_generation(spec, 1, members)


def test_more_is_better_on_request_and_what_failed_is_replaced():
    spec = a_sweep(
        [numbers("lr", 0, 1)], method="population", samples=8, population=4, metrics=[{"name": "a", "goal": "max"}]
    )
    members = [Member(1, {"lr": "0.1"}, 1.0), Member(2, {"lr": "0.2"}, None), Member(3, {"lr": "0.3"}, 3.0)]

    assert [one.continues for one in next_generation(spec, 1, [*members, Member(4, {"lr": "0.4"}, 2.0)])] == [
        3,
        3,
        3,
        4,
    ]


def test_where_nothing_has_a_result_that_is_said():
    with pytest.raises(NothingToContinue, match="no trial of generation 2 has a result"):
        next_generation(a_population(numbers("lr", 0, 1)), 2, [Member(1, {"lr": "0"}, None)] * 8)


def test_changed_points_stay_in_their_ranges_and_fulfil_the_conditions():
    spec = a_population(
        numbers("n", 1, 4, integer=True),
        values("kind", "a", "b", "c"),
        numbers("m", 0.5, 0.9, when="kind == 'a'"),
        where=["n < 4"],
    )
    members = [Member(1, {"n": "3", "kind": "a", "m": "0.9"}, 0.0)]
    members += [Member(number, {"n": "1", "kind": "b", "m": None}, float(number)) for number in range(2, 9)]

    for generation in range(1, 40):
        for one in next_generation(spec, generation, members):
            assert one.point["n"] in ("1", "2", "3") and one.point["kind"] in ("a", "b", "c")
            assert (one.point["m"] is not None) == (one.point["kind"] == "a")
            assert one.point["m"] is None or 0.5 <= float(one.point["m"]) <= 0.9


def test_a_choice_that_the_better_one_does_not_have_is_drawn():
    spec = a_population(
        values("kind", "a", "b"), values("way", "x", "y", "z", when="kind == 'a'"), values("new", "p", "q")
    )
    members = [
        Member(number, {"kind": "b", "way": None, "new": "removed"}, float(number)) for number in range(1, 9)
    ]

    changed = [one.point for generation in range(1, 20) for one in next_generation(spec, generation, members)[6:]]

    assert {one["way"] for one in changed if one["kind"] == "a"} == {"x", "y", "z"}
    assert {one["way"] for one in changed if one["kind"] == "b"} == {None}
    assert {one["new"] for one in changed} == {"p", "q"}
