"""Events come one after another, also when the connection breaks in between."""

import json
from itertools import islice
from pathlib import Path

import pytest

from client.fake import Answer, Asked, listening
from dibs.client.client import Client
from dibs.client.connection import NotListening
from dibs.client.events import follow_events


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "run").mkdir(mode=0o700)
    return str(tmp_path / "run" / "socket")


def stream(*ids: int) -> bytes:
    lines = [f"id: {number}\nevent: job.ended\ndata: {json.dumps({'id': number})}\n\n" for number in ids]
    return (": hello\n\n" + "".join(lines)).encode()


def test_a_reader_that_comes_back_misses_nothing_and_sees_nothing_twice(path):
    answers = [stream(1, 2), stream(2, 3), stream(), stream(4)]
    asked: list[Asked] = []

    def answer(one: Asked) -> Answer:
        asked.append(one)
        return Answer(answers[min(len(asked), len(answers)) - 1], chunked=True)

    with listening(path, answer):
        seen = [event["id"] for event in islice(follow_events(Client(path), since=0), 4)]

    assert seen == [1, 2, 3, 4]
    assert [one.headers["last-event-id"] for one in asked] == ["0", "2", "3", "3"]


def test_an_event_cut_in_the_middle_is_asked_for_again(path):
    whole = stream(1, 2)
    calls = []

    def answer(one: Asked) -> Answer:
        calls.append(one)
        return Answer(whole, breaks=len(whole) + 40) if len(calls) == 1 else Answer(stream(2))

    with listening(path, answer):
        seen = [event["id"] for event in islice(follow_events(Client(path), since=0), 2)]

    assert seen == [1, 2]
    assert len(calls) == 2


def test_a_daemon_that_stays_away_is_given_up(path):
    with pytest.raises(NotListening):
        next(follow_events(Client(path), patience=0.1))


def test_a_reader_that_was_away_for_too_long_is_told_and_goes_on(path):
    missed = b'event: events.missed\ndata: {"kind": "events.missed", "first": 7}\n\n'

    with listening(path, lambda one: Answer(b": here\n\n" + missed + stream(7, 8), chunked=True)):
        seen = list(islice(follow_events(Client(path), since=1), 3))

    assert [event.get("id") for event in seen] == [None, 7, 8]
