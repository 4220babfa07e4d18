"""Jobs for several GPUs get those that are best connected."""

from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.policy.links import Candidate, best_set
from dibs.policy.schedule import schedule
from examples import examples
from policy.builders import a_job, a_machine, key, placed

NEAR, FAR = 60, 10  # two links of NVLink, and the way through the processors


def links_of(**pairs):
    """`_0_1=60`, and so on."""
    found = {}
    for pair, quality in pairs.items():
        one, other = sorted(key(int(number)) for number in pair.strip("_").split("_"))
        found[one, other] = quality
    return found


def islands(*groups):
    """All cards of a group are near to each other, and far from the others."""
    island = {number: place for place, group in enumerate(groups) for number in group}
    return {
        tuple(sorted((key(one), key(other)))): NEAR if island[one] == island[other] else FAR
        for one, other in combinations(island, 2)
    }


# The cube mesh of eight V100: one or two links of NVLink to four others, none to the rest.
CUBE_MESH = links_of(
    _0_1=50, _0_2=50, _0_3=60, _0_4=60, _1_2=60, _1_3=50, _1_5=60, _2_3=60, _2_6=50, _3_7=50,
    _4_5=50, _4_6=50, _4_7=60, _5_6=60, _5_7=50, _6_7=60,
    _0_5=FAR, _0_6=FAR, _0_7=FAR, _1_4=FAR, _1_6=FAR, _1_7=FAR, _2_4=FAR, _2_5=FAR, _2_7=FAR, _3_4=FAR,
    _3_5=FAR, _3_6=FAR,
)  # fmt: skip


def gpus_of(machine, job, links):
    return placed(schedule(machine.with_waiting(job, links=links)))[job.id]


def test_two_gpus_come_from_one_island():
    machine = a_machine(8, busy=[0, 1, 2])
    links = islands(range(4), range(4, 8))

    assert gpus_of(machine, a_job(2), links) == [4, 5]  # 3 is left alone, and would be far from the others


def test_four_gpus_wait_for_no_better_set_than_there_is():
    machine = a_machine(8, busy=[0, 1, 2, 4])
    links = islands(range(4), range(4, 8))

    assert gpus_of(machine, a_job(4), links) == [3, 5, 6, 7]  # the only four


def test_jobs_of_one_plan_fill_one_island_each():
    machine = a_machine(8)
    first, second = a_job(4), a_job(4)

    plan = schedule(machine.with_waiting(first, second, links=islands([0, 2, 4, 6], [1, 3, 5, 7])))

    assert placed(plan) == {first.id: [0, 2, 4, 6], second.id: [1, 3, 5, 7]}


@pytest.mark.parametrize(
    ("busy", "wanted", "gpus"),
    [
        ([], 2, [0, 3]),  # two links, not one
        ([0], 2, [2, 3]),  # as strong as 1 and 2, and what is left is connected better
        ([], 4, [0, 1, 2, 3]),  # one side of the cube: every two are linked
        ([0, 3], 2, [1, 2]),
        ([0, 1], 4, [4, 5, 6, 7]),
        ([1, 2, 3, 4, 5], 2, [6, 7]),
    ],
)
def test_on_a_cube_mesh_the_strongest_links_are_used(busy, wanted, gpus):
    machine = a_machine(8, busy=busy)

    assert gpus_of(machine, a_job(wanted), CUBE_MESH) == gpus


def test_preferred_gpus_go_before_well_connected_ones():
    machine = a_machine(4)
    links = islands([0, 1], [2, 3])

    assert gpus_of(machine, a_job(2, prefer=["0", "3"]), links) == [0, 3]


def test_what_goes_with_a_preferred_gpu_is_near_to_it():
    machine = a_machine(4)
    links = islands([0, 1], [2, 3])

    assert gpus_of(machine, a_job(2, prefer=["3"]), links) == [3, 2]


def test_a_job_for_one_gpu_breaks_up_no_pair_while_another_card_does():
    machine = a_machine(4, busy=[0])
    links = islands([0, 1], [2, 3])

    assert gpus_of(machine, a_job(), links) == [1]


def test_a_job_for_one_gpu_takes_the_emptiest_first_all_the_same():
    machine = a_machine(3, taken={2: "1/2"})
    links = islands([0, 1], [2])

    assert gpus_of(machine, a_job(share="1/2"), links) == [0]


def test_without_links_the_order_of_the_pool_decides():
    machine = a_machine(4, busy=[1])

    assert gpus_of(machine, a_job(2), {}) == [0, 2]


@st.composite
def choices(draw, most=8):
    cards = draw(st.integers(1, most))
    links = {
        (key(one), key(other)): draw(st.sampled_from([0, 10, 20, 50, 60]))
        for one, other in combinations(range(cards), 2)
        if draw(st.integers(0, 5))
    }
    candidates = [
        Candidate(
            key(number),
            (draw(st.sampled_from([0, 0, 1])),),
            Fraction(draw(st.sampled_from([0, 0, 1])), 2),
            draw(st.sampled_from([0.0, 0.0, 1.0])),
        )
        for number in range(cards)
    ]
    return candidates, draw(st.integers(1, cards)), links


def connection(chosen, links):
    pairs = [links.get((min(a.key, b.key), max(a.key, b.key)), 0) for a, b in combinations(chosen, 2)]
    return (min(pairs, default=0), sum(pairs))


def test_the_weakest_link_counts_before_the_sum_of_all():
    links = links_of(_0_1=60, _0_2=60, _1_2=0, _0_3=20, _1_3=20, _2_3=0)
    cards = [Candidate(key(number)) for number in range(4)]

    assert [one.key for one in best_set(cards, 3, links)] == [key(0), key(1), key(3)]


@given(choices())
@settings(max_examples=examples(300), deadline=None)
def test_no_other_set_that_fits_is_better(choice):
    candidates, count, links = choice

    chosen = best_set(candidates, count, links)

    assert len({one.key for one in chosen}) == count
    ranks = sorted(one.rank for one in chosen)
    assert ranks == sorted(one.rank for one in candidates)[:count]
    rivals = [other for other in combinations(candidates, count) if sorted(one.rank for one in other) == ranks]
    assert connection(chosen, links) == max(connection(other, links) for other in rivals)


@given(choices())
def test_the_same_choice_is_made_again(choice):
    candidates, count, links = choice

    assert best_set(candidates, count, links) == best_set(candidates, count, links)


def test_a_choice_too_large_to_be_searched_is_a_good_one_and_comes_at_once():
    cards = [Candidate(key(number)) for number in range(64)]
    links = islands(*[range(first, first + 16) for first in range(0, 64, 16)])

    chosen = best_set(cards[9:], 16, links)

    assert connection(chosen, links)[0] == NEAR
    assert len(chosen) == 16
