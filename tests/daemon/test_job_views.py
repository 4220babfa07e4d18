"""Long lists over the API: by text, in any order, from any place, and as many as there are."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from daemon.daemon_process import DaemonProcess
from dibs.daemon import job_views
from dibs.daemon.job_views import JobViews
from dibs.model.jobs import Outcome
from dibs.store.listing import Filter
from dibs.store.store import Store
from store.builders import run, submit

WORDS = ["alpha", "beta", "gamma"]


@pytest.fixture(scope="module")
def queue(shared: DaemonProcess) -> DaemonProcess:
    """Thirty jobs that wait: numbers 1 to 30, every third of them alpha."""
    shared.post("/v1/pause", {})
    shared.add(
        *(
            {
                "command": f"echo {WORDS[number % 3]}",
                "name": f"n{number:02}" if number % 2 else "",
                "project": "even" if number % 2 == 0 else "",
                "priority": number % 5,
                "tags": ["seven"] if number % 7 == 0 else [],
            }
            for number in range(1, 31)
        )
    )
    return shared


def ids(daemon: DaemonProcess, query: str) -> list[int]:
    return [job["id"] for job in daemon.get(f"/v1/jobs?{query}")["jobs"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("offset=0&limit=3", [30, 29, 28]),
        ("offset=28&limit=5", [2, 1]),
        ("offset=30", []),
        ("offset=5&limit=2&order=oldest", [6, 7]),
        ("reverse=true&limit=2", [1, 2]),
        ("order=turn&offset=1&limit=3", [9, 14, 19]),
        ("order=turn&offset=0&limit=2", [4, 9]),
        ("text=BETA&limit=3", [28, 25, 22]),
        ("text=beta&offset=8&limit=3&order=oldest", [25, 28]),
        ("text=n07", [7]),
        ("text=17", [17]),
        ("text=alpha&project=even&order=oldest", [6, 12, 18, 24, 30]),
        ("text=alpha&state=running", []),
        ("order=name&limit=3", [1, 3, 5]),
        ("order=name&reverse=true&limit=2", [29, 27]),
        ("order=name&offset=14&limit=3", [29, 30, 28]),  # those without a name are last, the newest first
        ("order=priority&limit=2", [4, 9]),
        ("order=priority&reverse=true&limit=2", [30, 25]),
        ("tag=seven&offset=1&limit=2", [21, 14]),
        ("order=ended&offset=0", []),
        ("ids=3-5,9&offset=1&limit=2", [5, 4]),
    ],
)
def test_a_page_begins_anywhere_in_any_order(queue: DaemonProcess, query: str, expected: list[int]):
    assert ids(queue, query) == expected


@pytest.mark.parametrize(
    ("query", "total"),
    [
        ("limit=1", 30),
        ("state=queued,failed&limit=1", 30),
        ("state=failed", 0),
        ("project=even", 15),
        ("text=gamma&limit=1", 10),
        ("text=gamma&project=even&limit=1", 5),
        ("tag=seven&offset=0&limit=1", 4),
        ("tag=seven&limit=1", None),  # to count them, all must be looked at: only for those who ask with an offset
        ("order=ended", 0),
        ("user=nobody-of-that-name", 0),
    ],
)
def test_the_answer_tells_how_many_there_are(queue: DaemonProcess, query: str, total: int | None):
    page = queue.get(f"/v1/jobs?{query}")

    assert (page["total"], page["is_partial"]) == (total, False)


@pytest.mark.parametrize(
    "query",
    [
        *("offset=1&cursor=5:5", "text=a&cursor=5:5", "order=name&cursor=5:5", "reverse=true&cursor=5:5"),
        *("offset=-1", "offset=10000001", "order=sideways", "text=%00", f"text={'a' * 201}"),
    ],
)
def test_what_cannot_be_meant_is_refused(queue: DaemonProcess, query: str):
    reply = queue.call("GET", f"/v1/jobs?{query}")

    assert (reply.status, reply.code) == (400, "bad-input")


def test_text_finds_what_was_added_a_moment_ago(queue: DaemonProcess):
    assert ids(queue, "text=brand-new") == []

    number = queue.add({"command": "echo brand-new"})

    assert ids(queue, "text=brand-new") == [number]


def test_an_export_can_be_by_text(queue: DaemonProcess):
    lines = queue.call("GET", "/v1/export?text=gamma&project=even").body.decode().splitlines()

    assert [json.loads(line)["id"] for line in lines] == [2, 8, 14, 20, 26]


def test_many_are_changed_by_text(daemon: DaemonProcess):
    daemon.post("/v1/pause", {})
    daemon.add(*(f"echo {WORDS[number % 3]}" for number in range(12)))

    changed = daemon.post("/v1/jobs/act", {"action": "hold", "filter": {"text": "ALPHA"}})

    assert sorted(changed["changed"]) == [1, 4, 7, 10]
    assert ids(daemon, "state=held&order=oldest") == [1, 4, 7, 10]
    again = daemon.post("/v1/jobs/act", {"action": "release", "filter": {"text": "alpha", "state": ["held"]}})
    assert sorted(again["changed"]) == [1, 4, 7, 10]


# -- views -----------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path) -> Iterator[Store]:
    one = Store(str(tmp_path / "store.db"))
    yield one
    one.close()


def view(store: Store, order: str = "newest", **wanted) -> job_views.JobView:
    return asyncio.run(JobViews(store).of(Filter(**wanted), order))


def test_numbers_that_are_missing_are_not_shown(store: Store):
    submit(store, *map(str, range(2000)))
    whole = view(store)
    with store.turn():
        store._db.execute("delete from jobs where id between 5 and 1990")

    assert (list(whole.jobs), whole.total) == (list(range(2000, 0, -1)), 2000)
    assert list(view(store, "oldest").jobs) == [1, 2, 3, 4, *range(1991, 2001)]


def test_jobs_without_what_is_sorted_by_come_last_either_way(store: Store):
    jobs = submit(store, *map(str, range(1000)))
    for place, seconds in ((10, 5.0), (500, 9.0), (900, 7.0)):
        run(store, jobs[place], Outcome(exit_code=0, seconds=seconds))

    forwards = asyncio.run(JobViews(store).of(Filter(), "seconds"))
    backwards = asyncio.run(JobViews(store).of(Filter(), "seconds", True))

    assert list(forwards.jobs[:4]) == [501, 901, 11, 1000]
    assert list(backwards.jobs[:4]) == [11, 901, 501, 1000]
    assert (forwards.total, len(forwards.jobs)) == (1000, 1000)


def test_too_many_to_be_sorted_are_counted_and_the_oldest_left_out(store: Store, monkeypatch):
    monkeypatch.setattr(job_views, "MOST_SORTED", 100)
    submit(store, *map(str, range(1000)))

    found = view(store, "priority")

    assert (found.total, len(found.jobs), found.is_partial) == (1000, 100, True)
    assert min(found.jobs) == 901
    assert not view(store, "newest").is_partial


def test_a_view_is_kept_until_something_happens_and_forgotten_when_it_is_not_used(store: Store, monkeypatch):
    monkeypatch.setattr(job_views, "_KEPT_FOR", 0.05)
    submit(store, "a", "b")

    async def look() -> None:
        shown = JobViews(store)
        first = await shown.of(Filter(text="a"), "newest")
        assert await shown.of(Filter(text="a"), "newest") is first
        with store.turn():
            store.events.write(1.0, "job.queued")
        assert await shown.of(Filter(text="a"), "newest") is not first
        for _ in range(200):
            if not shown._kept:
                break
            await asyncio.sleep(0.05)
        assert not shown._kept

    asyncio.run(look())


def test_a_view_that_takes_long_may_be_a_little_old_unless_it_must_not_be(store: Store, monkeypatch):
    monkeypatch.setattr(job_views, "_QUICK", -1.0)
    monkeypatch.setattr(job_views, "_STALE_AFTER", 1e9)
    submit(store, "a", "b")

    async def look() -> None:
        shown = JobViews(store)
        before = await shown.of(Filter(text="a"), "newest")
        with store.turn():
            store.events.write(1.0, "job.queued")
        assert await shown.of(Filter(text="a"), "newest") is before
        assert await shown.of(Filter(text="a"), "newest", is_fresh=True) is not before

    asyncio.run(look())
