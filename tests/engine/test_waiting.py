"""The head of the queue in memory never loses a job and never shows one twice."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.engine import waiting
from dibs.engine.waiting import WaitingLine
from dibs.model.jobs import Job, JobId, Wishes
from dibs.store.codec import class_of
from engine.world import a_request

KINDS = [{}, {"gpus": 2}, {"share": "1/2"}]


def one_each(_wishes) -> int:
    return 1


class Queue:
    """The store's side as a plain list."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.last = 0
        self.now = 0.0

    def load(self, kind: str, now: float, limit: int) -> list[Job]:
        return [job for job in self.ready(now) if class_of(job.request) == kind][:limit]

    def load_delayed(self, after: tuple[float, int], limit: int) -> list[Job]:
        late = [job for job in self.jobs if job.not_before is not None and (job.not_before, job.id) > after]
        return sorted(late, key=lambda job: (job.not_before, job.id))[:limit]

    def ready(self, now: float) -> list[Job]:
        due = [job for job in self.jobs if job.not_before is None or job.not_before <= now]
        return sorted(due, key=lambda job: (-job.request.priority, job.id))

    def kinds(self) -> list[str]:
        return sorted({class_of(job.request) for job in self.jobs})

    def first(self, each: int) -> list[JobId]:
        found = [job for kind in self.kinds() for job in self.load(kind, self.now, each)]
        return [job.id for job in sorted(found, key=lambda job: (-job.request.priority, job.id))]

    def line(self) -> WaitingLine:
        """The line as an engine that comes back would make it."""
        line = WaitingLine(self.load, self.load_delayed)
        line.restore(self.kinds(), len(self.jobs), self.now)
        return line


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2), st.integers(0, 1)),
        st.tuples(st.just("add"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("take"), st.integers(1, 4), st.integers(0, 3)),
        st.tuples(st.just("retry"), st.integers(0, 5), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.integers(-3, 5), st.just(0)),
        st.tuples(st.just("come back"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_it_always_shows_what_a_plain_list_would(steps):
    kept, waiting._KEPT = waiting._KEPT, 2
    try:
        queue = Queue()
        line = queue.line()
        taken: list[Job] = []
        clock = 0.0
        for act, one, two in steps:
            if act == "add":
                queue.last += 1
                job = Job(id=JobId(queue.last), request=a_request(priority=two, **KINDS[one]))
                queue.jobs.append(job)
                line.add(job)
            elif act == "take":
                # A limit that the line keeps in memory: it never shows more of a kind than it keeps.
                queue.now = max(queue.now, clock)
                most = min(one, 2)
                shown = line.first(lambda _, most=most: most, clock)
                assert [job.id for job in shown] == queue.first(most)
                for job in shown[:two]:
                    line.remove(job)
                    queue.jobs = [other for other in queue.jobs if other.id != job.id]
                    taken.append(job)
            elif act == "retry" and taken:
                not_before = None if two == 0 else clock + two
                job = replace(taken.pop(one % len(taken)), not_before=not_before)
                queue.jobs.append(job)
                line.add(job)
            elif act == "wait":
                clock += one  # sometimes backwards
            elif act == "come back":
                queue.now = clock
                line = queue.line()
            assert line.count == len(queue.jobs)

        queue.now = clock = max(clock, queue.now) + 100
        left = []
        while shown := line.first(one_each, clock):
            line.remove(shown[0])
            left.append(shown[0].id)
            queue.jobs = [job for job in queue.jobs if job.id != shown[0].id]
        assert queue.jobs == [], "lost"
        assert len(set(left)) == len(left), "twice"
        assert line.count == 0
    finally:
        waiting._KEPT = kept


def test_a_long_queue_costs_no_memory(monkeypatch):
    monkeypatch.setattr(waiting, "_KEPT", 10)
    queue = Queue()
    line = queue.line()

    for number in range(1, 1001):
        queue.jobs.append(Job(id=JobId(number), request=a_request()))
        line.add(queue.jobs[-1])

    assert line.count == 1000
    assert sum(len(kept.jobs) for kept in line._classes.values()) <= 20


def test_a_delayed_job_is_shown_when_its_moment_has_come():
    line = WaitingLine(Queue().load)
    line.add(Job(id=JobId(1), request=a_request(), not_before=7.5))

    before, at = line.first(one_each, 7.4), line.first(one_each, 7.5)

    assert (before, [job.id for job in at]) == ([], [1])
    assert line.next_due is None


@pytest.mark.parametrize("share", ["1/2", "0.5"])
def test_the_same_wish_written_differently_is_the_same_kind(share):
    line = WaitingLine(Queue().load)
    line.add(Job(id=JobId(1), request=a_request(share="1/2")))

    line.add(Job(id=JobId(2), request=a_request(share=share)))

    assert len(line._classes) == 1
    assert line.first(lambda _: 2, 0.0)[1].request.wishes.share == Fraction(1, 2)


def test_a_plan_looks_at_so_many_kinds_of_each_project(monkeypatch):
    """With `--vram auto` each script is a kind of its own: ten thousand of them must not make a plan slow."""
    monkeypatch.setattr(waiting, "_MOST_CLASSES", 3)
    line = WaitingLine(lambda kind, now, limit: [])
    for number in range(1, 21):
        wishes = Wishes(shape=f"/job_{number}.sh")
        request = replace(a_request("x"), wishes=wishes, project="late" if number > 15 else "early")
        line.add(Job(id=JobId(number), request=request))

    assert [job.id for job in line.first(one_each, 0.0)] == [1, 2, 3, 16, 17, 18]
    line.remove(line.first(one_each, 0.0)[0])
    assert [job.id for job in line.first(one_each, 0.0)] == [2, 3, 4, 16, 17, 18]
