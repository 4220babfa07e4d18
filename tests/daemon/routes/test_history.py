"""The history of the machine over the API: what the cards were, and GPU time by week."""

import pytest

from daemon.daemon_process import DaemonProcess
from stories.outside import wait_until

USES = ("job", "unused", "others", "idle", "lost", "unknown")


def test_what_a_card_was_and_the_hours_of_a_project_outlive_a_restart_and_a_clean(daemon: DaemonProcess):
    packed = {"command": "sleep 0.4", "share": "1/2", "only": ["0"], "project": "p"}
    daemon.wait(daemon.add(packed, packed))
    long = daemon.add({"command": "sleep 60", "only": ["1"], "project": "q"})
    wait_until(lambda: daemon.state(long) == "running")
    daemon.end()
    daemon.start()

    known = daemon.get("/v1/timeline")["cards"]
    past = daemon.get("/v1/history")
    week = daemon.get("/v1/report?week=this")["weeks"][0]
    daemon.post("/v1/clean", {})
    cleaned = daemon.get("/v1/report?week=this")["weeks"][0]

    assert past["step_seconds"] == 300
    assert [one["gpu"] for one in past["gpus"]] == ["0", "1"]
    assert {len(one[f"{use}_seconds"]) for one in past["gpus"] for use in USES} == {288}
    before = next(one["until_at"] for one in known if one["gpu"] == "0")  # unknown until then
    assert before < daemon.get(f"/v1/jobs/{long}")["started_at"]
    hours = {one["project"]: one for one in week["projects"]}
    assert hours["p"]["gpu_hours"] == pytest.approx(0.4 / 3600, abs=0.001)
    assert hours["p"]["attempts"] == 2
    assert hours["p"]["mean_load_percent"] is None
    (kept,) = (one for one in cleaned["projects"] if one["project"] == "p")
    assert kept | {"gpu_hours": 0} == hours["p"] | {"gpu_hours": 0}
    assert [one["user"] for one in week["users"]] == [daemon.get(f"/v1/jobs/{long}")["user"]]
    assert not week["is_over"]
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [long]})


def test_a_report_has_as_many_weeks_as_were_asked_for_the_newest_first(shared: DaemonProcess):
    found = shared.get("/v1/report?weeks=3")

    weeks = [one["week"] for one in found["weeks"]]
    assert weeks == sorted(weeks, reverse=True)
    assert [one["is_over"] for one in found["weeks"]] == [False, True, True]
    assert found["weeks"][1]["until_at"] == found["weeks"][0]["since_at"]
    assert len(shared.get("/v1/report")["weeks"]) == 4
    assert shared.get("/v1/report?week=2020-W53")["weeks"][0]["projects"] == []
    assert shared.get("/v1/history?span=7d")["step_seconds"] == 3600


@pytest.mark.parametrize(
    "target", ["history?span=8d", "report?week=soon", "report?weeks=0", "report?weeks=54", "report?week=1&weeks=1"]
)
def test_a_time_that_cannot_be_meant_is_refused(shared: DaemonProcess, target: str):
    assert shared.call("GET", f"/v1/{target}").status == 400
