"""A series never outgrows its bounds, and its file says the same after it was read."""

import json
import os

from hypothesis import given
from hypothesis import strategies as st

from dibs.engine.watch.metering import (
    MOST_POINTS,
    SERIES_FILE,
    Point,
    Series,
    read_series,
    stored_usage,
    write_series,
)
from dibs.model.usage import Usage

MOMENTS = st.lists(st.floats(0, 1e7), max_size=600).map(sorted)


def test_each_second_is_a_point_until_it_is_full():
    one = Series()

    for second in range(MOST_POINTS):
        one.add(Point(at=second + 0.5, load=50.0))

    assert (one.step, len(one.points)) == (1.0, MOST_POINTS)


def test_when_it_is_full_neighbours_become_one_and_the_step_doubles():
    one = Series()

    for second in range(MOST_POINTS + 1):
        high = second % 2
        one.add(
            Point(at=second + 0.5, memory=10 * high, load=100.0 * high, power=float(high), cpus=4.0, mem=second)
        )

    assert one.step == 2.0
    assert len(one.points) == MOST_POINTS // 2 + 1
    first = one.points[0]
    assert (first.memory, first.mem) == (10, 1), "of bytes the most"
    assert (first.load, first.power, first.cpus) == (50.0, 0.5, 4.0), "of the others the mean"


def test_looks_within_one_step_are_one_point():
    one = Series()

    for tenth in range(10):
        one.add(Point(at=3 + tenth / 10, load=float(tenth)))

    (point,) = one.points
    assert (point.at, point.load, point.weight) == (3.0, 4.5, 10)


def test_what_was_not_known_for_a_while_spoils_no_mean():
    assert Point(at=0, load=None, memory=None).and_then(Point(at=1, load=30.0, memory=7)).load == 30.0
    assert Point(at=0, load=30.0, memory=7).and_then(Point(at=1)).memory == 7


@given(MOMENTS)
def test_it_stays_bounded_and_in_order_however_long_it_goes(moments):
    one = Series()

    for at in moments:
        one.add(Point(at=at, load=1.0))

    steps = [int(point.at / one.step) for point in one.points]
    assert len(one.points) <= MOST_POINTS
    assert steps == sorted(set(steps)), "one point a step"
    assert sum(point.weight for point in one.points) == len(moments), "every look is in it"


def test_a_week_at_one_look_a_second_takes_few_bytes_on_the_disk(tmp_path):
    one = Series()
    for second in range(0, 7 * 86400, 60):
        one.add(Point(at=float(second), memory=2**37, load=99.9, power=699.9, cpus=15.55, mem=2**40))

    write_series(str(tmp_path), Usage(seconds=1.0), one.columns())

    assert os.path.getsize(tmp_path / SERIES_FILE) < 64 * 1024


def test_what_was_written_is_read_again(tmp_path):
    one = Series()
    for second in range(5):
        one.add(Point(at=float(second), memory=second, load=1.5, power=None, cpus=0.25, mem=9))
    usage = Usage(seconds=5.0, peak_vram=4, energy=0.5, astray=("GPU-b",), was_alone=False)

    write_series(str(tmp_path), usage, one.columns())
    kept = read_series(str(tmp_path))

    assert kept is not None
    assert kept.usage == usage == stored_usage(str(tmp_path))
    assert kept.series.columns() == one.columns()
    assert os.listdir(tmp_path) == [SERIES_FILE], "and nothing else is left behind"


def test_what_is_no_series_is_none(tmp_path):
    whole = {"v": 1, "usage": {"seconds": 1.0}, **Series(1.0, [Point(at=0.0)]).columns()}
    damaged = [
        "",
        "[]",
        "{}",
        json.dumps(whole)[:-9],
        json.dumps({**whole, "load_percent": ["high"]}),
        json.dumps({**whole, "at_seconds": [0, 1]}),
        json.dumps({**whole, "usage": {"seconds": "long"}}),
        json.dumps({**whole, "usage": {"astray": 5}}),
        json.dumps({**whole, "usage": ["seconds"]}),
        json.dumps({**whole, "usage": None}),
        json.dumps({**whole, "at_seconds": [None]}),
        json.dumps({**whole, "step_seconds": 0}),
        json.dumps({**whole, "step_seconds": float("nan")}),
        "[" * 100_000,
    ]
    for text in damaged:
        (tmp_path / SERIES_FILE).write_text(text)
        assert read_series(str(tmp_path)) is None, text[:80]
    (tmp_path / SERIES_FILE).write_text(json.dumps(whole))
    assert read_series(str(tmp_path)) is not None


def test_a_link_in_its_place_leads_nowhere(tmp_path):
    """The folder is the job's as well."""
    other = tmp_path / "precious"
    other.write_text("mine")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / SERIES_FILE).symlink_to(other)

    write_series(str(folder), Usage(), Series().columns())

    assert other.read_text() == "mine"


def test_a_folder_that_is_gone_is_no_trouble(tmp_path):
    write_series(str(tmp_path / "gone"), Usage(), Series().columns())

    assert not (tmp_path / "gone").exists()
