"""The stream of events, and those who listen to it."""

import asyncio
import resource
import socket
import time
from pathlib import Path

from daemon.daemon_process import DaemonProcess, Stream
from daemon.listening import connect, read_all
from dibs.daemon.app_state import EventFeed
from dibs.daemon.routes.events import EventStream
from dibs.store.store import Store
from stories.outside import wait_until


def test_a_reader_hears_what_happens_in_order(daemon: DaemonProcess):
    stream = Stream(daemon.socket)
    stream.first_comment()

    number = daemon.add("exit 4")

    events = stream.take(3)
    stream.close()
    assert [event["kind"] for event in events] == ["job.queued", "job.started", "job.ended"]
    assert [event["job"] for event in events] == [number] * 3
    assert events[-1]["exit_code"] == 4
    assert [event["id"] for event in events] == sorted(event["id"] for event in events)
    assert all(event["at"].endswith("Z") for event in events)


def test_a_reader_that_comes_back_misses_nothing(daemon: DaemonProcess):
    stream = Stream(daemon.socket, since=0)
    daemon.wait(daemon.add("true"))
    before = stream.take(3)
    stream.close()
    daemon.wait(daemon.add("true", "true"))

    back = Stream(daemon.socket, last=before[-1]["id"])
    after = back.take(5)

    back.close()
    ids = [event["id"] for event in before + after]
    assert ids == list(range(ids[0], ids[0] + 8))


def test_a_reader_misses_nothing_when_the_daemon_is_killed_in_between(daemon: DaemonProcess):
    stream = Stream(daemon.socket, since=0)
    daemon.wait(daemon.add("true"))
    before = stream.take(3)
    daemon.kill()
    stream.close()
    daemon.start()
    daemon.wait(daemon.add("true"))

    back = Stream(daemon.socket, last=before[-1]["id"])
    after = back.take(3)

    back.close()
    assert [event["id"] for event in after] == [before[-1]["id"] + number for number in (1, 2, 3)]


def test_a_reader_that_begins_now_hears_nothing_old(daemon: DaemonProcess):
    daemon.wait(daemon.add("true"))
    stream = Stream(daemon.socket)
    stream.first_comment()

    number = daemon.add("true")

    (event,) = stream.take(1)
    stream.close()
    assert (event["kind"], event["job"]) == ("job.queued", number)


def test_of_very_many_readers_sixty_four_are_served_and_the_others_told_so(daemon: DaemonProcess):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard > 1000
    streams = [Stream(daemon.socket) for _ in range(64)]
    late = [Stream(daemon.socket) for _ in range(20)]

    assert {stream.status for stream in streams} == {200}
    assert {stream.status for stream in late} == {503}
    assert daemon.get("/v1/status")["api"] == 1
    for stream in streams + late:
        stream.close()
    wait_until(lambda: Stream(daemon.socket).status == 200)


def test_a_reader_that_never_reads_costs_no_memory_and_delays_no_other(daemon: DaemonProcess):
    deaf = connect(daemon.socket)
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.sendall(b"GET /v1/events?since=0 HTTP/1.1\r\nHost: dibs\r\n\r\n")
    daemon.post("/v1/pause", {})
    before = _rss(daemon)

    for _ in range(20):
        first = daemon.add(*["true"] * 500)
        ids = list(range(first, first + 500))
        daemon.post("/v1/jobs/act", {"action": "hold", "ids": ids})

    hearing = Stream(daemon.socket, since=0)
    assert len(hearing.take(5000)) == 5000
    hearing.close()
    deaf.close()
    assert _rss(daemon) - before < 40 * 1024**2


def test_open_streams_do_not_keep_the_daemon_from_ending(daemon: DaemonProcess):
    stream = Stream(daemon.socket)
    waiting = connect(daemon.socket)
    daemon.post("/v1/pause", {})
    number = daemon.add("true")
    waiting.sendall(f"GET /v1/jobs/wait?ids={number}&timeout_seconds=60 HTTP/1.1\r\nHost: dibs\r\n\r\n".encode())
    daemon.get("/v1/status")  # who asks later is answered later: that one is heard by now

    began = time.monotonic()
    ended = daemon.end()

    assert ended is not None
    assert ended.status == 0
    assert time.monotonic() - began < 30
    stream.rest()
    assert read_all(waiting).startswith(b"HTTP/1.1 200")
    stream.close()
    waiting.close()


def _rss(daemon: DaemonProcess) -> int:
    assert daemon.running is not None
    return int(Path(f"/proc/{daemon.running.pid}/statm").read_text().split()[1]) * 4096


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
