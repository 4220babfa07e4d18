"""The order of jobs (priority, fair turns, age) and of GPUs (gpu_order)."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.errors import BadInput
from dibs.model.gpus import Gpu
from dibs.policy.schedule import fair_order, schedule, served_after, weight, with_project, without_idle
from dibs.policy.snapshot import CardView, Order, parse_order
from dibs.settings import check_value
from policy.builders import Machine, a_job, a_machine, placed


def of(project, count, **wishes):
    return [a_job(project=project, **wishes) for _ in range(count)]


def test_priority_goes_before_everything():
    low, high = a_job(project="a"), a_job(project="b", priority=5)

    line = fair_order([low, high], {"a": 0, "b": 1000})

    assert line == [high, low]


def test_within_a_project_the_oldest_goes_first_unless_it_was_moved():
    first, second, moved = of("a", 3)
    moved = replace(moved, rank=first.id - 0.5)

    line = fair_order([second, first, moved], {})

    assert line == [moved, first, second]


def test_projects_take_turns():
    a, b = of("a", 3), of("b", 2)

    line = fair_order([*a, *b], {})

    assert line == [a[0], b[0], a[1], b[1], a[2]]


def test_the_project_that_was_served_least_goes_first():
    a, b = of("a", 2), of("b", 2)

    line = fair_order([*b, *a], {"a": 1, "b": 2.5})

    assert line == [a[0], a[1], b[0], b[1]]


def test_a_wide_job_counts_for_as_many_turns_as_it_has_gpus():
    wide, narrow = of("a", 2, gpus=3), of("b", 4)

    line = fair_order([*wide, *narrow], {})

    assert line == [wide[0], narrow[0], narrow[1], narrow[2], wide[1], narrow[3]]


@pytest.mark.parametrize(
    ("wishes", "counts"), [({}, 1), ({"gpus": 0}, 1), ({"gpus": 4}, 4), ({"gpus": 2, "share": "1/4"}, 0.5)]
)
def test_what_a_turn_counts(wishes, counts):
    assert weight(a_job(**wishes)) == counts


def test_turns_at_a_high_priority_count_for_the_rest_too():
    urgent, a, b = of("a", 2, priority=1), of("a", 2), of("b", 2)

    line = fair_order([*urgent, *a, *b], {})

    assert line[:4] == [*urgent, *b]


def test_one_job_is_not_lost_behind_a_hundred_thousand():
    many, one = of("many", 100_000), a_job(project="one")

    line = fair_order([*many, one], {"many": 7.0})

    assert one in line[:2]


def test_an_unknown_project_stands_with_the_least_served():
    old, other, new = a_job(project="old"), a_job(project="other"), a_job(project="new")

    line = fair_order([old, other, new], {"old": 500, "other": 400})

    assert line == [new, other, old]


def test_a_project_that_comes_back_has_saved_nothing():
    served = {"busy": 1000.0, "other": 990.0, "idle": 3.0}

    found = with_project(served, "idle", {"busy", "other"})

    assert found == {"busy": 1000.0, "other": 990.0, "idle": 990.0}


def test_a_project_does_not_shed_its_turns_by_leaving_for_a_moment():
    served = {"a": 18.0, "b": 10.0}

    found = with_project(served, "a", {"b"})

    assert found == served


def test_a_project_that_worked_alone_has_no_debt():
    alone = {"a": 1000.0}

    met = with_project(alone, "b", set())
    back = with_project(met, "a", {"b"})

    assert met["b"] == 1000
    assert back["a"] == 1000


def test_projects_that_come_together_stand_together():
    served = {"busy": 1000.0}
    active = {"busy", "b", "c"}

    for project in ("b", "c"):
        served = with_project(served, project, active)

    assert served == dict.fromkeys(active, 1000.0)


def test_the_first_project_of_all_begins_at_nothing():
    assert with_project({}, "a", set()) == {"a": 0.0}


PROJECTS = st.sampled_from("abcde")


@given(st.lists(st.tuples(PROJECTS, st.integers(0, 2)), max_size=30), st.dictionaries(PROJECTS, st.floats(0, 99)))
def test_every_job_stands_in_line_once_and_priorities_in_order(jobs, served):
    waiting = [a_job(project=project, priority=priority) for project, priority in jobs]

    line = fair_order(waiting, served)

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
        served = with_project(served, name, names[:number])
    turns = Counter(dict.fromkeys(names, 0))

    for _ in range(rounds):
        job = fair_order(waiting, served)[0]
        waiting.remove(job)
        served = served_after(served, job)
        turns[job.request.project] += 1

    # One turn more where it was not told that a project has come: its first turn is a guess.
    assert max(turns.values()) - min(turns.values()) <= (1 if have_joined else 2)


@given(st.lists(PROJECTS, max_size=60))
def test_a_project_that_comes_and_goes_gets_no_more_than_one_that_stays(history):
    """`stays` always has work; each other project comes for one job at a time."""
    served: dict[str, float] = {"stays": 0.0}
    for project in history:
        before = served.get(project, 0.0)
        served = with_project(served, project, {"stays"})
        line = fair_order([*of("stays", 1), a_job(project=project)], served)

        assert served[project] >= max(before, served["stays"])
        assert line[0].request.project == "stays"
        for job in line:
            served = served_after(served, job)


@given(st.dictionaries(PROJECTS, st.integers(0, 20).map(float)), st.sets(PROJECTS), PROJECTS)
def test_what_is_forgotten_makes_no_difference(served, active, project):
    active = active & served.keys()
    if project in active:
        return

    kept = without_idle(served, active)

    assert with_project(kept, project, active)[project] == with_project(served, project, active)[project]
    assert active <= kept.keys()


def in_order(text, machine, temperatures=()):
    """The machine as the engine would show it to the policy."""
    order = parse_order(text)
    warm = dict(enumerate(temperatures))

    def ranked(view: CardView) -> CardView:
        gpu = view.card.gpu
        return CardView(
            card=view.card, taken=view.taken, first=order.first(gpu), then=order.then(gpu, warm.get(gpu.index))
        )

    return Machine(tuple(map(ranked, machine.views)))


@pytest.mark.parametrize(
    ("text", "taken", "gpu"),
    [
        ("emptiest", {}, 0),
        ("emptiest", {0: "1/2"}, 1),
        ("last", {}, 3),
        ("last", {3: "1/2"}, 2),  # a card of one's own goes before the higher number
        ("coolest", {}, 2),
        ("coolest", {2: "1/2"}, 1),
        ("2,1", {}, 2),
        ("2,1", {2: "1/2"}, 2),  # named ones are filled up first
        ("2,1", {2: "1"}, 1),
        ("3", {3: "1"}, 0),
    ],
)
def test_the_first_in_the_order_is_taken(text, taken, gpu):
    machine = in_order(text, a_machine(4, taken=taken), temperatures=[60, 35, 30])
    job = a_job(share="1/2")

    plan = schedule(machine.with_waiting(job))

    assert placed(plan) == {job.id: [gpu]}


def test_what_a_job_prefers_goes_before_the_order():
    machine = in_order("last", a_machine(4))
    job = a_job(prefer=["1"])

    assert placed(schedule(machine.with_waiting(job))) == {job.id: [1]}


def test_a_card_may_be_named_by_its_uuid():
    order = parse_order("GPU-3f,0")

    assert [order.first(Gpu(key=key, index=0)) for key in ("GPU-3f2a", "GPU-77b1")] == [0, 1]
    assert order.first(Gpu(key="GPU-1", index=5)) == 2


@pytest.mark.parametrize("text", ["", "hottest", "0,0", "1,,2", "0;1"])
def test_what_cannot_be_meant_is_refused(text):
    with pytest.raises(BadInput, match="as an order of GPUs"):
        parse_order(text)


@pytest.mark.parametrize(
    "text", ["emptiest", "coolest", "last", "3,2", "0:1,GPU-3f2a", "AMD-7", "MIG-4b/1", "0,,1"]
)
def test_what_can_be_set_is_what_can_be_read(text):
    """The settings lie below the policy and have words of their own for it."""

    def refusal(read):
        try:
            read()
        except BadInput:
            return True
        return False

    setting = refusal(lambda: check_value("gpu_order", text, "here"))
    policy = refusal(lambda: parse_order(text))

    assert setting or not policy


def test_without_a_word_the_emptiest_goes_first():
    assert parse_order("emptiest") == Order()
