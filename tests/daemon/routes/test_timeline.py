"""What ran when: every attempt of a time, and no other."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from daemon.daemon_process import DaemonProcess
from dibs.daemon import attempt_search
from dibs.daemon.routes.timeline import TimelineSearch
from dibs.model.jobs import Cause, JobId, Outcome
from dibs.model.suspensions import Suspension, SuspensionPhase
from dibs.store.listing import Span
from dibs.store.store import Store
from store.builders import an_attempt, submit
from stories.outside import wait_until

WELL, BADLY = Outcome(exit_code=0), Outcome(exit_code=1, cause=Cause.EXIT_CODE)


@pytest.fixture
def store(tmp_path) -> Iterator[Store]:
    one = Store(str(tmp_path / "store.db"))
    yield one
    one.close()


def ran(store: Store, *times: tuple[float, float | None], outcome: Outcome = WELL, again: bool = False) -> int:
    """A job that ran from then to then, and again; `again`: and waits to be tried once more."""
    (job,) = submit(store, f"job {store.queue.next_number()}")
    with store.turn():
        store._db.execute("update jobs set queued_at = 0 where id = ?", (job.id,))
        for number, (begin, end) in enumerate(times, 1):
            attempt = replace(an_attempt(job, number), opened_at=begin)
            store.open_attempt(attempt)
            if end is not None:
                is_last = number == len(times)
                store.end_attempt(attempt, outcome, end, None if is_last and not again else end)
    return job.id


def gathered(store: Store, since: float, until: float, limit: int = 100) -> TimelineSearch:
    found = TimelineSearch(store.listing.spans, since, until, limit)
    asyncio.run(found.run())
    return found


def bars(found: TimelineSearch) -> list[tuple[int, int]]:
    return [(span.job, span.attempt) for span in found.found]


def test_attempts_that_ran_in_that_time_are_found_and_no_others(store: Store):
    ran(store, (0, 9))  # over before it
    within = ran(store, (12, 15))
    around = ran(store, (2, 90))
    into = ran(store, (5, 10))
    out_of = ran(store, (20, 50), outcome=BADLY)
    ran(store, (21, 30))  # began after it
    runs = ran(store, (1, None))
    ran(store, (22, None))
    submit(store, "waits")

    found = gathered(store, 10, 20)

    assert bars(found) == [(runs, 1), (around, 1), (into, 1), (within, 1), (out_of, 1)]
    assert not found.is_partial


def test_earlier_attempts_are_found_wherever_their_job_stands(store: Store):
    over = ran(store, (10, 11), (30, 40), outcome=BADLY)
    runs = ran(store, (12, 13), (31, None), outcome=BADLY)
    waits = ran(store, (14, 15), outcome=BADLY, again=True)
    held = ran(store, (16, 17), outcome=BADLY, again=True)
    with store.turn():
        store.queue.hold([held], "")
    retried = ran(store, (18, 19), outcome=BADLY)
    with store.turn():
        store.queue_again(retried)

    found = gathered(store, 10, 20)

    assert bars(found) == [(over, 1), (runs, 1), (waits, 1), (held, 1), (retried, 1)]
    assert [(span.state, span.cause) for span in found.found[:2]] == [("failed", "exit code")] * 2
    assert bars(gathered(store, 30, 35)) == [(over, 2), (runs, 2)]


def test_of_too_many_the_oldest_are_left_out(store: Store):
    for begin in range(50):
        ran(store, (begin, begin + 1), outcome=WELL if begin % 3 else BADLY)

    found = gathered(store, 0, 100, limit=10)

    assert [span.started_at for span in found.found] == list(range(40, 50))
    assert found.is_partial
    assert not gathered(store, 0, 100, limit=50).is_partial


def test_many_that_end_at_the_same_moment_are_all_found(store: Store, monkeypatch):
    monkeypatch.setattr(attempt_search, "AT_ONCE", 3)
    jobs = [ran(store, (5, 10)) for _ in range(11)]

    assert sorted(job for job, _ in bars(gathered(store, 8, 12))) == jobs
    assert sorted(job for job, _ in bars(gathered(store, 6, 8))) == jobs


def test_what_was_not_looked_at_is_said_to_be_missing(store: Store, monkeypatch):
    monkeypatch.setattr(attempt_search, "_MOST_LOOKED_AT", 3)
    for _ in range(5):
        ran(store, (0, 50))

    found = gathered(store, 10, 20)

    assert (len(found.found), found.is_partial) == (3, True)


def test_a_bar_knows_its_cards(store: Store):
    ran(store, (10, 11))

    assert gathered(store, 0, 20).found == [
        Span(1, 1, "", "", (3,), 10.0, 11.0, state="succeeded", cause=None, share=Fraction(1, 3))  # type: ignore[arg-type]
    ]


def stood_still(
    store: Store, job: int, number: int, since: float | None, until: float | None, **more: Any
) -> None:
    phase = SuspensionPhase.SUSPENDED if until is None else SuspensionPhase.OVER
    times = {"began_at": since or 0.0, "suspended_at": since, "ended_at": until}
    one = Suspension(number=number, phase=phase, why="by you", resumes=False, **{**times, **more})
    with store.turn():
        store.suspensions.put((JobId(job), 1), one)


def test_a_bar_knows_when_its_attempt_stood_still(store: Store):
    runs, over, never = ran(store, (0, None)), ran(store, (1, 20)), ran(store, (2, None))
    stood_still(store, runs, 1, 3, 6, resuming_at=5.0)
    stood_still(store, runs, 2, 8, None, frees_cards=False)
    stood_still(store, over, 1, 15, 23)  # its end was found later than it was
    stood_still(store, never, 1, None, 9)  # it could not be suspended

    first, second, third = gathered(store, 0, 30).found

    assert [(one.since, one.until, one.frees_cards) for one in first.suspended] == [(3, 6, True), (8, None, False)]
    assert first.off_cards(30) == [(3, 5)]
    assert [(one.since, one.until) for one in second.suspended] == second.off_cards(30) == [(15, 20)]
    assert third.suspended == ()
    assert [str(span.state) for span in (first, second, third)] == ["suspended", "succeeded", "running"]


def test_the_api_shows_when_an_attempt_stood_still(suspending: DaemonProcess):
    job = suspending.add({"command": "sleep 60", "only": ["0"]})
    for action, phase in (("suspend", "suspended"), ("resume", "over"), ("suspend", "suspended")):
        wait_until(lambda: suspending.state(job) in ("running", "suspended"))
        suspending.post("/v1/jobs/act", {"action": action, "ids": [job]})
        wait_until(lambda phase=phase: suspending.job(job)["suspension"]["phase"] == phase)

    (bar,) = suspending.get("/v1/timeline")["attempts"]

    assert (bar["state"], bar["ended_at"]) == ("suspended", None)
    first, second = bar["suspended"]
    assert bar["started_at"] < first["since_at"] < first["until_at"] < second["since_at"]
    assert (second["until_at"], second["frees_cards"]) == (None, True)
    suspending.post("/v1/jobs/act", {"action": "kill", "ids": [job]})


def test_the_api_shows_shares_and_the_time_before_the_daemon(daemon: DaemonProcess):
    packed = daemon.add({"command": "true", "share": "1/8", "only": ["0"]})
    daemon.wait(packed)

    found = daemon.get("/v1/timeline")

    assert [one["share"] for one in found["attempts"]] == [0.125]
    assert [(one["gpu"], one["use"]) for one in found["cards"]] == [("0", "unknown"), ("1", "unknown")]
    assert found["cards"][0]["since_at"] == found["since_at"]
    assert found["cards"][0]["until_at"] < found["attempts"][0]["started_at"]


def test_the_api_shows_what_ran_today(daemon: DaemonProcess):
    (over,) = daemon.wait(daemon.add({"command": "exit 4", "name": "n", "project": "p", "only": ["1"]}))
    running = daemon.add({"command": "sleep 60", "only": ["0"]})
    wait_until(lambda: daemon.state(running) == "running")

    found = daemon.get("/v1/timeline")

    first, second = found["attempts"]
    assert first == {
        "job": over["id"],
        "attempt": 1,
        "name": "n",
        "project": "p",
        "user": over["user"],
        "gpus": [1],
        "share": 1.0,
        "node": "",
        "node_gpus": "",
        "started_at": over["started_at"],
        "ended_at": over["ended_at"],
        "state": "failed",
        "cause": "exit code",
        "suspended": [],
    }
    assert (second["job"], second["ended_at"], second["state"], second["gpus"]) == (running, None, "running", [0])
    assert not found["is_partial"]
    assert daemon.get("/v1/timeline?until=2020-01-01T00:00:00Z")["attempts"] == []
    assert daemon.get("/v1/timeline?limit=1")["is_partial"]
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [running]})


@pytest.mark.parametrize(
    "query", ["since=2020-01-02T00:00:00Z&until=2020-01-01T00:00:00Z", "since=soon", "limit=0"]
)
def test_a_time_that_cannot_be_meant_is_refused(shared: DaemonProcess, query: str):
    assert shared.call("GET", f"/v1/timeline?{query}").status == 400
