"""The stream of events, and those who listen to it."""

import asyncio
import resource
import socket
import time
from pathlib import Path

from daemon.house import House, Stream
from daemon.listening import connect, said
from dibs.daemon.app_state import EventFeed
from dibs.daemon.routes.events import EventStream
from dibs.store.store import Store
from stories.outside import wait_until


def test_a_reader_hears_what_happens_in_order(house: House):
    stream = Stream(house.socket)
    stream.first_comment()

    number = house.add("exit 4")

    events = stream.take(3)
    stream.close()
    assert [event["kind"] for event in events] == ["job.queued", "job.started", "job.ended"]
    assert [event["job"] for event in events] == [number] * 3
    assert events[-1]["exit_code"] == 4
    assert [event["id"] for event in events] == sorted(event["id"] for event in events)
    assert all(event["at"].endswith("Z") for event in events)


def test_a_reader_that_comes_back_misses_nothing(house: House):
    stream = Stream(house.socket, since=0)
    house.wait(house.add("true"))
    before = stream.take(3)
    stream.close()
    house.wait(house.add("true", "true"))

    back = Stream(house.socket, last=before[-1]["id"])
    after = back.take(5)

    back.close()
    ids = [event["id"] for event in before + after]
    assert ids == list(range(ids[0], ids[0] + 8))


def test_a_reader_misses_nothing_when_the_daemon_is_killed_in_between(house: House):
    stream = Stream(house.socket, since=0)
    house.wait(house.add("true"))
    before = stream.take(3)
    house.kill()
    stream.close()
    house.start()
    house.wait(house.add("true"))

    back = Stream(house.socket, last=before[-1]["id"])
    after = back.take(3)

    back.close()
    assert [event["id"] for event in after] == [before[-1]["id"] + number for number in (1, 2, 3)]


def test_a_reader_that_begins_now_hears_nothing_old(house: House):
    house.wait(house.add("true"))
    stream = Stream(house.socket)
    stream.first_comment()

    number = house.add("true")

    (event,) = stream.take(1)
    stream.close()
    assert (event["kind"], event["job"]) == ("job.queued", number)


def test_of_very_many_readers_sixty_four_are_served_and_the_others_told_so(house: House):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard > 1000
    streams = [Stream(house.socket) for _ in range(64)]
    late = [Stream(house.socket) for _ in range(20)]

    assert {stream.status for stream in streams} == {200}
    assert {stream.status for stream in late} == {503}
    assert house.get("/v1/status")["api"] == 1
    for stream in streams + late:
        stream.close()
    wait_until(lambda: Stream(house.socket).status == 200)


def test_a_reader_that_never_reads_costs_no_memory_and_holds_up_nobody(house: House):
    deaf = connect(house.socket)
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.sendall(b"GET /v1/events?since=0 HTTP/1.1\r\nHost: dibs\r\n\r\n")
    house.post("/v1/pause", {})
    before = _rss(house)

    for _ in range(20):
        first = house.add(*["true"] * 500)
        ids = list(range(first, first + 500))
        house.post("/v1/jobs/act", {"action": "hold", "ids": ids})

    hearing = Stream(house.socket, since=0)
    assert len(hearing.take(5000)) == 5000
    hearing.close()
    deaf.close()
    assert _rss(house) - before < 40 * 1024**2


def test_open_streams_do_not_keep_the_daemon_from_ending(house: House):
    stream = Stream(house.socket)
    waiting = connect(house.socket)
    house.post("/v1/pause", {})
    number = house.add("true")
    waiting.sendall(f"GET /v1/jobs/wait?ids={number}&timeout_seconds=60 HTTP/1.1\r\nHost: dibs\r\n\r\n".encode())
    house.get("/v1/status")  # who asks later is answered later: that one is heard by now

    began = time.monotonic()
    ended = house.end()

    assert ended is not None
    assert ended.status == 0
    assert time.monotonic() - began < 30
    stream.rest()
    assert said(waiting).startswith(b"HTTP/1.1 200")
    stream.close()
    waiting.close()


def _rss(house: House) -> int:
    assert house.running is not None
    return int(Path(f"/proc/{house.running.pid}/statm").read_text().split()[1]) * 4096


def test_a_reader_that_was_away_too_long_is_told_so(tmp_path):
    store = Store(str(tmp_path / "store.db"))
    with store.turn():
        for number in range(5):
            store.events.write(float(number), "job.queued", number)
    with store.turn():
        store.events._db.execute("delete from events where id < 4")
    feed = EventFeed(store)

    async def first_words(after: int) -> bytes:
        lines = EventStream(store.events, feed, after).lines()
        return b"".join([await anext(lines) for _ in range(2)])

    long, short = asyncio.run(first_words(1)), asyncio.run(first_words(3))

    assert b"event: events.missed\n" in long
    assert b"events.missed" not in short
    assert b"id: 4\n" in short
    store.close()
