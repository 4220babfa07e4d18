"""`dibs metrics`: what jobs have reported, as a table, CSV or JSON."""

import json
from typing import Any

import pytest

from cli.fake_daemon import a_job


def a_series(name: str, *values: float, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "source": "metrics",
        "reported": len(values),
        "not_finite": 0,
        "last": values[-1],
        "last_step": len(values) * 10,
        "min": min(values),
        "min_step": 10,
        "max": max(values),
        "max_step": 10,
        "steps": [10 * (place + 1) for place in range(len(values))],
        "at_seconds": [float(place) for place in range(len(values))],
        "values": list(values),
        **more,
    }


@pytest.fixture(autouse=True)
def jobs(daemon):
    daemon.jobs = {number: a_job(number, "succeeded") for number in (1, 2, 3)}
    daemon.series = {
        1: [a_series("loss", 0.5, 0.25), a_series("val/acc", 1.0, last=None, not_finite=2, reported=3)],
        2: [a_series("loss", 1234567.5)],
    }


def test_a_table_has_the_last_the_lowest_and_the_highest_of_each(typed):
    done = typed("metrics", "1", "2", "3")

    assert done.stdout.splitlines() == [
        "job  metric   last         step  min          max          reported",
        "1    loss     0.25         20    0.25         0.5          2",
        "1    val/acc  nan          10    1            1            3, 2 not finite",
        "2    loss     1.23457e+06  10    1.23457e+06  1.23457e+06  1",
    ]
    assert done.stderr == "dibs: job 3 has reported nothing\n"


def test_names_are_chosen_by_pattern(typed):
    assert [line.split()[1] for line in typed("metrics", "1", "-m", "val/*").stdout.splitlines()[1:]] == [
        "val/acc"
    ]
    assert typed("metrics", "1", "-m", "x").stderr == "dibs: job 1 has reported nothing by such a name\n"


def test_csv_has_the_points_and_json_everything(typed, daemon):
    csv = typed("metrics", "1", "-m", "loss", "--csv").stdout
    one = json.loads(typed("metrics", "1", "--json").stdout)
    several = json.loads(typed("metrics", "1", "2", "--json").stdout)

    assert csv == "job,attempt,name,step,at_seconds,value\n1,1,loss,10,0.0,0.5\n1,1,loss,20,1.0,0.25\n"
    assert [series["name"] for series in one["series"]] == ["loss", "val/acc"]
    assert [job["job"] for job in several] == [1, 2]


def test_what_cannot_be_meant_is_said(typed):
    done = typed("metrics", "1", "--json", "--csv")

    assert done.status == 2 and "exclude each other" in done.stderr


def test_a_pattern_goes_with_the_job_or_is_refused_at_once(typed, daemon):
    taken = typed("add", "--metric-pattern", "auto", "--metric-pattern", r"a=(?P<a>\d+),", "--", "true")
    refused = typed("add", "--metric-pattern", "loss=(", "--", "true")
    nameless = typed("add", "--metric-pattern", r"loss=(\S+)", "--", "true")

    body = daemon.added()[0]
    assert taken.status == 0 and len(daemon.added()) == 1
    assert {**body["defaults"], **body["jobs"][0]}["metric_patterns"] == ["auto", r"a=(?P<a>\d+),"]
    assert refused.status == nameless.status == 2
    assert "unterminated" in refused.stderr and "no group of it has a name" in nameless.stderr
