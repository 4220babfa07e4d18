"""`dibs report`: GPU hours and energy for people, and the same for programs."""

import json
from typing import Any

import pytest

from cli.conftest import Typed
from cli.fake_daemon import FakeDaemon

IDLE: dict[str, Any] = {
    "gpus": 0,
    **{f"{use}_gpu_hours": 0.0 for use in ("job", "unused", "others", "idle", "lost", "unknown")},
    "energy_watt_hours": 0.0,
}


def a_week(week: str = "2026-W47", **more: Any) -> dict[str, Any]:
    return {"week": week, "is_over": False, "projects": [], "users": [], "machine": IDLE, **more}


def a_project(name: str, hours: float, **more: Any) -> dict[str, Any]:
    numbers = {"remote_gpu_hours": 0.0, "energy_watt_hours": 400.0, "mean_load_percent": None, "attempts": 4}
    return {"project": name, "gpu_hours": hours, **numbers, **more}


BUSY = a_week(
    projects=[
        a_project("language", 31.5, energy_watt_hours=12_100.0, mean_load_percent=86.6, attempts=120),
        a_project("", 0.04),
    ],
    users=[
        {
            "user": "ann",
            "gpu_hours": 31.54,
            "remote_gpu_hours": 0.0,
            "outside_gpu_hours": 2.0,
            "energy_watt_hours": 12_500.0,
        },
        {
            "user": "ben",
            "gpu_hours": 0.0,
            "remote_gpu_hours": 0.0,
            "outside_gpu_hours": 10.0,
            "energy_watt_hours": 3_000.0,
        },
    ],
    machine={
        "gpus": 2,
        "job_gpu_hours": 27.54,
        "unused_gpu_hours": 4.0,
        "others_gpu_hours": 12.0,
        "idle_gpu_hours": 50.0,
        "lost_gpu_hours": 0.0,
        "unknown_gpu_hours": 12.0,
        "energy_watt_hours": 1_515_500.0,
    },
)


def test_a_week_by_project_and_what_the_gpus_were(daemon: FakeDaemon, typed: Typed):
    daemon.weekly["weeks"] = [BUSY, a_week("2026-W46", is_over=True)]

    done = typed("report")

    assert done.stdout == (
        "Week 2026-W47: 16 Nov to 22 Nov 2026, UTC, so far\n"
        "project   GPU hours    energy  load  attempts\n"
        "language       31.5  12.1 kWh  87 %       120\n"
        "-              0.04    400 Wh     ?         4\n"
        "2 GPUs            GPU hours\n"
        "in use by jobs         27.5      26 %\n"
        "held without use        4.0       4 %\n"
        "used by others         12.0      11 %\n"
        "idle                   50.0      47 %\n"
        "unknown                12.0      11 %\n"
        "all                   105.5  1516 kWh\n"
        "\n"
        "Week 2026-W46: 09 Nov to 15 Nov 2026, UTC\n"
        "no job had a GPU\n"
    )
    assert daemon.queries("/v1/report") == [{}]


def test_a_week_by_user(daemon: FakeDaemon, typed: Typed):
    daemon.weekly["weeks"] = [BUSY]

    lines = typed("report", "--week", "--by", "user").stdout.splitlines()

    assert lines[1:4] == [
        "user  GPU hours  outside the queue    energy",
        "ann        31.5                2.0  12.5 kWh",
        "ben         0.0               10.0     3 kWh",
    ]
    assert daemon.queries("/v1/report") == [{"week": "this"}]


def test_gpus_of_other_machines_have_a_column_where_there_are_any(daemon: FakeDaemon, typed: Typed):
    daemon.weekly["weeks"] = [a_week(projects=[a_project("p", 1.0, remote_gpu_hours=2.5)])]

    lines = typed("report", "--week", "2026-W47").stdout.splitlines()

    assert lines[1].split() == ["project", "GPU", "hours", "elsewhere", "energy", "load", "attempts"]
    assert lines[2].split()[:3] == ["p", "1.0", "2.5"]


def test_programs_get_json_or_csv(daemon: FakeDaemon, typed: Typed):
    daemon.weekly["weeks"] = [BUSY]
    daemon.weekly["is_partial"] = True

    assert json.loads(typed("report", "--json").stdout) == daemon.weekly
    done = typed("report", "--weeks", "9", "--csv")
    assert done.stdout.splitlines() == [
        "week,project,gpu_hours,remote_gpu_hours,energy_watt_hours,mean_load_percent,attempts",
        "2026-W47,language,31.5,0.0,12100.0,86.6,120",
        "2026-W47,,0.04,0.0,400.0,,4",
    ]
    assert "the true numbers are higher" in done.stderr
    assert daemon.queries("/v1/report") == [{}, {"weeks": "9"}]


@pytest.mark.parametrize("words", [("--week", "46", "--weeks", "2"), ("--csv", "--json")])
def test_two_options_that_exclude_each_other_are_refused(daemon: FakeDaemon, typed: Typed, words: tuple[str, ...]):
    done = typed("report", *words)

    assert (done.status, "were both given" in done.stderr) == (2, True)
