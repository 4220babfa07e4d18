"""The books on the cards: who makes a card busy, which comes first, and what is left to others."""

from datetime import UTC, datetime

import pytest

from dibs.engine.turn.state import OpenAttempt
from dibs.engine.watch.cards import Cards
from dibs.engine.watch.sharing_rules import SharingRules, sharing_rules
from dibs.gpus.processes import BusyRules
from dibs.model.gpus import Card, Claim, Gpu, GpuProcess, GpuReading, Pool, Reading
from dibs.model.jobs import Attempt, Command, Job, JobId, Request
from dibs.policy.snapshot import WHOLE, Order
from dibs.settings import Settings
from engine.world import a_request

ROOT = "/state/attempts/0"


class Books:
    """Two cards, on which processes live in the attempts that `folders` names."""

    def __init__(self, **more):
        self.folders = {}
        self.open = {}
        gpus = [Gpu(key=f"g{index}", index=index, cpus=more.pop(f"cpus{index}", ())) for index in range(2)]
        self.cards = Cards(
            Pool(cards=tuple(Card(gpu=gpu) for gpu in gpus)),
            is_ours=lambda pid: pid in self.folders,
            is_alive=lambda pid: True,
            folder_of=lambda pid: self.folders.get(pid),
            **more,
        )

    def see(self, *processes, temperatures=(None, None)):
        """What is on card 0."""
        self.cards.saw(
            Reading(
                at=datetime.now(UTC),
                gpus=tuple(
                    GpuReading(
                        gpu=card.gpu,
                        temperature=temperatures[card.gpu.index],
                        processes=processes if card.gpu.index == 0 else (),
                    )
                    for card in self.cards.pool.cards
                ),
            )
        )

    def begin(self, number=3, gpu=0):
        job = Job(id=JobId(number), request=Request(command=Command.line("true")))
        claim = Claim(gpu=f"g{gpu}", index=gpu, share=WHOLE)
        folder = f"{ROOT}/{number}.1"
        attempt = Attempt(job=job.id, number=1, claims=(claim,), boot_id="", opened_at=0.0, folder=folder)
        self.open[attempt.key] = OpenAttempt(job, attempt)
        return attempt

    def end(self, attempt):
        del self.open[attempt.key]
        self.cards.left(claim.gpu for claim in attempt.claims)

    @property
    def blocked(self):
        return [view.blocked for view in self.cards.board().views(self.open)]


def a_process(pid, *, kind="compute", memory=3 << 30):
    return GpuProcess(pid=pid, user="ann", memory=memory, kind=kind)


def test_a_process_without_a_job_makes_a_card_busy():
    books = Books()

    books.see(a_process(7))

    assert books.blocked == ["is busy (ann, pid 7, 3G)", ""]


def test_the_process_of_a_job_on_its_own_card_does_not():
    books = Books()
    attempt = books.begin()
    books.folders[7] = attempt.folder

    books.see(a_process(7))

    assert books.blocked == ["", ""]


def test_a_process_that_outlives_its_job_keeps_the_card_busy_until_it_is_gone():
    books = Books()
    attempt = books.begin()
    books.folders[7] = attempt.folder
    books.see(a_process(7))

    books.end(attempt)
    before = books.blocked
    books.see(a_process(7))
    lingering = books.blocked
    books.see()

    assert before == ["is being looked at", ""]
    assert lingering == ["is busy (ann, pid 7, 3G, left by job 3)", ""]
    assert books.blocked == ["", ""]


def test_what_an_ended_job_left_is_not_taken_for_the_next_one():
    books = Books()
    books.folders[7] = f"{ROOT}/2.1"
    books.begin(number=3)

    books.see(a_process(7))

    assert books.blocked[0] == "is busy (ann, pid 7, 3G, left by job 2)"


def test_a_job_on_a_card_that_it_was_not_given_makes_that_card_busy():
    books = Books()
    books.folders[7] = books.begin(gpu=1).folder

    books.see(a_process(7))

    assert books.blocked == ["is busy (ann, pid 7, 3G, of job 3)", ""]


@pytest.mark.parametrize(
    ("rules", "busy"),
    [
        (BusyRules(), [True, False]),
        (BusyRules(ignore_memory=1 << 30), [False, False]),
        (BusyRules(respect_graphics=True), [True, True]),
    ],
)
def test_who_counts_can_be_set(rules, busy):
    found = []
    for process in (a_process(7, memory=200 << 20), a_process(8, kind="graphics")):
        books = Books(rules=SharingRules(busy=rules))
        books.see(process)
        found.append(bool(books.blocked[0]))

    assert found == busy


def test_the_order_reaches_the_policy():
    coolest, named = (
        Books(rules=SharingRules(order=Order("coolest"))),
        Books(rules=SharingRules(order=Order(ids=("1",)))),
    )
    coolest.see(temperatures=(70, 30))

    assert [view.then for view in coolest.cards.board().views({})] == [70, 30]
    assert [view.first for view in named.cards.board().views({})] == [1, 0]


def test_the_settings_say_how_we_behave():
    settings = Settings(gpu_order="last", min_free=2, respect_graphics=True, ignore_memory=5)

    assert sharing_rules(settings) == SharingRules(BusyRules(True, 5), Order("last"), 2)
    assert sharing_rules(Settings()) == SharingRules()


@pytest.mark.parametrize(
    ("cpus0", "cpus1", "gpus", "near"),
    [
        ((0, 1), (2, 3), [0], (0, 1)),
        ((0, 1), (1, 2), [0, 1], (0, 1, 2)),
        ((0, 1), (), [0, 1], ()),  # the CPUs of one of them are not known
        ((), (), [0], ()),
    ],
)
def test_the_cpus_near_some_cards_are_those_near_any_of_them(cpus0, cpus1, gpus, near):
    books = Books(cpus0=cpus0, cpus1=cpus1)

    claims = [Claim(gpu=f"g{index}", index=index, share=WHOLE) for index in gpus]

    assert books.cards.cpus_near(claims) == near


# -- with an engine ------------------------------------------------------------------------------------


def test_an_engine_leaves_cards_to_others_and_says_so(make_world):
    world = make_world(1, 1, 1)
    world.engine.cards.rules = SharingRules(min_free=1)

    jobs = world.submit(*[a_request(f"job {number}") for number in range(3)])

    assert world.running() == [jobs[0].id, jobs[1].id]
    assert ("waits", (jobs[2].id, "waits: 1 GPU is left to others (min_free)")) in world.told()
    world.end(jobs[0])
    assert world.running() == [jobs[1].id, jobs[2].id]


def test_cards_that_another_program_holds_are_not_those_left_to_it(make_world):
    other = make_world(1, 1, 1, name="other")
    theirs = other.submit(a_request("theirs"))
    ours = make_world(1, 1, 1, name="ours")
    ours.engine.cards.rules = SharingRules(min_free=1)

    jobs = ours.submit(a_request("one"), a_request("two"))

    assert ours.running() == [jobs[0].id]
    other.end(theirs[0])
    ours.advance(2)
    assert ours.running() == [jobs[0].id, jobs[1].id]


def test_of_the_cards_that_a_job_wants_together_only_those_are_called_held_that_are(make_world):
    other, ours = make_world(1, 1, name="other"), make_world(1, 1, name="ours")
    other.submit(a_request("theirs"))

    ours.submit(a_request("wide", gpus=2), a_request("narrow"))

    (told,) = [what[1] for kind, what in ours.told() if kind == "waits"]
    assert "GPU 0 is held by" in told and "GPU 1" not in told
    assert ours.running() == []  # the second card is kept for the first job in line


def test_what_wants_more_than_is_ever_left_is_refused(make_world):
    world = make_world(1, 1)
    world.engine.cards.rules = SharingRules(min_free=1)

    (job,) = world.submit(a_request(gpus=2))

    assert world.outcome(job).message == "it wants 2 GPUs, but 1 of 2 is left to others (min_free)"
