"""Whose turn it is."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.policy.turns import in_turn, joined, served_after, trimmed, weight
from policy.builders import a_job


def of(project, count, **wishes):
    return [a_job(project=project, **wishes) for _ in range(count)]


def test_priority_goes_before_everything():
    low, high = a_job(project="a"), a_job(project="b", priority=5)

    line = in_turn([low, high], {"a": 0, "b": 1000})

    assert line == [high, low]


def test_within_a_project_the_oldest_goes_first_unless_it_was_moved():
    first, second, moved = of("a", 3)
    moved = replace(moved, rank=first.id - 0.5)

    line = in_turn([second, first, moved], {})

    assert line == [moved, first, second]


def test_projects_take_turns():
    a, b = of("a", 3), of("b", 2)

    line = in_turn([*a, *b], {})

    assert line == [a[0], b[0], a[1], b[1], a[2]]


def test_the_project_that_was_served_least_goes_first():
    a, b = of("a", 2), of("b", 2)

    line = in_turn([*b, *a], {"a": 1, "b": 2.5})

    assert line == [a[0], a[1], b[0], b[1]]


def test_a_wide_job_counts_for_as_many_turns_as_it_has_gpus():
    wide, narrow = of("a", 2, gpus=3), of("b", 4)

    line = in_turn([*wide, *narrow], {})

    assert line == [wide[0], narrow[0], narrow[1], narrow[2], wide[1], narrow[3]]


@pytest.mark.parametrize(
    ("wishes", "counts"), [({}, 1), ({"gpus": 0}, 1), ({"gpus": 4}, 4), ({"gpus": 2, "share": "1/4"}, 0.5)]
)
def test_what_a_turn_counts(wishes, counts):
    assert weight(a_job(**wishes)) == counts


def test_turns_at_a_high_priority_count_for_the_rest_too():
    urgent, a, b = of("a", 2, priority=1), of("a", 2), of("b", 2)

    line = in_turn([*urgent, *a, *b], {})

    assert line[:4] == [*urgent, *b]


def test_one_job_is_not_lost_behind_a_hundred_thousand():
    many, one = of("many", 100_000), a_job(project="one")

    line = in_turn([*many, one], {"many": 7.0})

    assert one in line[:2]


def test_a_project_that_nobody_has_met_stands_with_the_least_served():
    old, other, new = a_job(project="old"), a_job(project="other"), a_job(project="new")

    line = in_turn([old, other, new], {"old": 500, "other": 400})

    assert line == [new, other, old]


def test_a_project_that_comes_back_has_saved_nothing():
    served = {"busy": 1000.0, "other": 990.0, "idle": 3.0}

    found = joined(served, "idle", {"busy", "other"})

    assert found == {"busy": 1000.0, "other": 990.0, "idle": 990.0}


def test_a_project_does_not_shed_its_turns_by_leaving_for_a_moment():
    served = {"a": 18.0, "b": 10.0}

    found = joined(served, "a", {"b"})

    assert found == served


def test_a_project_that_worked_alone_owes_nobody_anything():
    alone = {"a": 1000.0}

    met = joined(alone, "b", set())
    back = joined(met, "a", {"b"})

    assert met["b"] == 1000
    assert back["a"] == 1000


def test_projects_that_come_together_stand_together():
    served = {"busy": 1000.0}
    active = {"busy", "b", "c"}

    for project in ("b", "c"):
        served = joined(served, project, active)

    assert served == dict.fromkeys(active, 1000.0)


def test_the_first_project_of_all_begins_at_nothing():
    assert joined({}, "a", set()) == {"a": 0.0}


PROJECTS = st.sampled_from("abcde")


@given(st.lists(st.tuples(PROJECTS, st.integers(0, 2)), max_size=30), st.dictionaries(PROJECTS, st.floats(0, 99)))
def test_everybody_stands_in_line_once_and_priorities_in_order(jobs, served):
    waiting = [a_job(project=project, priority=priority) for project, priority in jobs]

    line = in_turn(waiting, served)

    assert sorted(job.id for job in line) == [job.id for job in waiting]
    priorities = [job.request.priority for job in line]
    assert priorities == sorted(priorities, reverse=True)
    for project in "abcde":
        orders = [job.order for job in line if job.request.project == project]
        assert orders == sorted(orders)


@given(st.integers(2, 5), st.integers(1, 60), st.booleans())
def test_equal_projects_get_equal_turns(projects, rounds, have_joined):
    names = "abcde"[:projects]
    waiting = [job for name in names for job in of(name, rounds)]
    served: dict[str, float] = {}
    for number, name in enumerate(names if have_joined else ""):
        served = joined(served, name, names[:number])
    turns = Counter(dict.fromkeys(names, 0))

    for _ in range(rounds):
        job = in_turn(waiting, served)[0]
        waiting.remove(job)
        served = served_after(served, job)
        turns[job.request.project] += 1

    # One turn more where nobody said that a project has come: its first turn is a guess.
    assert max(turns.values()) - min(turns.values()) <= (1 if have_joined else 2)


@given(st.lists(PROJECTS, max_size=60))
def test_a_project_that_comes_and_goes_gets_no_more_than_one_that_stays(history):
    """`stays` always has work; each other project comes for one job at a time."""
    served: dict[str, float] = {"stays": 0.0}
    for project in history:
        before = served.get(project, 0.0)
        served = joined(served, project, {"stays"})
        line = in_turn([*of("stays", 1), a_job(project=project)], served)

        assert served[project] >= max(before, served["stays"])
        assert line[0].request.project == "stays"
        for job in line:
            served = served_after(served, job)


@given(st.dictionaries(PROJECTS, st.integers(0, 20).map(float)), st.sets(PROJECTS), PROJECTS)
def test_what_is_forgotten_makes_no_difference(served, active, project):
    active = active & served.keys()
    if project in active:
        return

    kept = trimmed(served, active)

    assert joined(kept, project, active)[project] == joined(served, project, active)[project]
    assert active <= kept.keys()
