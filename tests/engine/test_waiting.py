"""The head of the queue in memory never loses a job and never shows one twice."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.engine.turn import state
from dibs.engine.turn.state import NeedsMore, WaitingWindow
from dibs.model.jobs import Job, JobId, Wishes
from dibs.store.codec import class_of
from engine.world import a_request
from examples import examples

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

    def line(self) -> "Line":
        """The line as an engine that comes back would make it."""
        window = WaitingWindow.over(class_of, self.kinds(), len(self.jobs), self.now)
        window.load_delayed(self.load_delayed(window.boundary, window.delayed_limit))
        return Line(self, window)


class Line:
    """A window that loads what it needs, and is copied with every change, as an engine does."""

    def __init__(self, queue: Queue, window: WaitingWindow | None = None) -> None:
        self.queue = queue
        self.window = window or WaitingWindow(class_of)

    @property
    def count(self) -> int:
        return self.window.count

    def add(self, job: Job) -> None:
        self.window = self.window.copy()
        self.window.add(job)

    def remove(self, job: Job) -> None:
        self.window = self.window.copy()
        self.window.remove(job)

    def first(self, each, now: float) -> list[Job]:
        while True:
            tried = self.window.copy()
            try:
                found = tried.first(each, now)
            except NeedsMore as need:
                self.load(need, now)
            else:
                self.window = tried
                return found

    def load(self, need: NeedsMore, now: float) -> None:
        self.window = window = self.window.copy()
        if need.name is None:
            window.load_delayed(self.queue.load_delayed(window.boundary, window.delayed_limit))
        else:
            limit = window.limit(need.name)
            window.load(need.name, self.queue.load(need.name, max(now, window.latest), limit), limit)


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
@settings(max_examples=examples(300), deadline=None)
def test_it_always_shows_what_a_plain_list_would(steps):
    kept, state.KEPT = state.KEPT, 2
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
        state.KEPT = kept


def test_a_long_queue_costs_no_memory(monkeypatch):
    monkeypatch.setattr(state, "KEPT", 10)
    queue = Queue()
    line = queue.line()

    for number in range(1, 1001):
        queue.jobs.append(Job(id=JobId(number), request=a_request()))
        line.add(queue.jobs[-1])

    assert line.count == 1000
    assert sum(len(kept.jobs) for kept in line.window._classes.values()) <= 20


def test_a_delayed_job_is_shown_when_its_moment_has_come():
    line = Line(Queue())
    line.add(Job(id=JobId(1), request=a_request(), not_before=7.5))

    before, at = line.first(one_each, 7.4), line.first(one_each, 7.5)

    assert (before, [job.id for job in at]) == ([], [1])
    assert line.window.next_due is None


@pytest.mark.parametrize("share", ["1/2", "0.5"])
def test_the_same_wish_written_differently_is_the_same_kind(share):
    line = Line(Queue())
    line.add(Job(id=JobId(1), request=a_request(share="1/2")))

    line.add(Job(id=JobId(2), request=a_request(share=share)))

    assert len(line.window._classes) == 1
    assert line.first(lambda _: 2, 0.0)[1].request.wishes.share == Fraction(1, 2)


def test_a_plan_looks_at_so_many_kinds_of_each_project(monkeypatch):
    """With `--vram auto` each script is a kind of its own: ten thousand of them must not make a plan slow."""
    monkeypatch.setattr(state, "_MOST_CLASSES", 3)
    line = Line(Queue())
    for number in range(1, 21):
        wishes = Wishes(shape=f"/job_{number}.sh")
        request = replace(a_request("x"), wishes=wishes, project="late" if number > 15 else "early")
        line.add(Job(id=JobId(number), request=request))

    assert [job.id for job in line.first(one_each, 0.0)] == [1, 2, 3, 16, 17, 18]
    line.remove(line.first(one_each, 0.0)[0])
    assert [job.id for job in line.first(one_each, 0.0)] == [2, 3, 4, 16, 17, 18]


def test_a_copy_is_changed_alone():
    window = WaitingWindow(class_of)
    window.add(Job(id=JobId(1), request=a_request()))
    window.add(Job(id=JobId(2), request=a_request(), not_before=5.0))

    copy = window.copy()
    copy.remove(copy.first(one_each, 0.0)[0])
    copy.first(one_each, 9.0)
    copy.add(Job(id=JobId(3), request=a_request()))

    assert [job.id for job in window.first(lambda _: 9, 0.0)] == [1]
    assert (window.count, window.next_due) == (2, 5.0)


def test_jobs_that_are_loaded_when_their_moment_has_come_are_not_shown_twice():
    queue = Queue()
    queue.jobs = [Job(id=JobId(number), request=a_request(), not_before=5.0) for number in (1, 2)]
    line = queue.line()
    queue.jobs.append(Job(id=JobId(3), request=a_request()))
    line.add(queue.jobs[-1])
    line.window._classes[class_of(a_request())].has_more = True

    assert [job.id for job in line.first(lambda _: 9, 6.0)] == [1, 2, 3]
