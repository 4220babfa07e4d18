"""A sweep from its beginning to its end: trials are jobs, as many at once as may be, and none twice."""

import json
from pathlib import Path

import pytest

from daemon.daemon_process import DaemonProcess, Stream
from daemon.sweeping import (
    LOSS,
    SQUARE,
    WHOLE,
    act,
    begin,
    look,
    states,
    trials,
    try_to_begin,
    until,
    values,
    wait_for,
)
from stories.outside import wait_until


def test_a_grid_is_tried_point_by_point_and_the_best_is_known(daemon: DaemonProcess):
    sweep = begin(daemon, name="squares", wishes={"project": "p", "tags": ["t"], "time_limit_seconds": 60})

    done = until(daemon, sweep, "finished")

    assert (done["id"], done["name"], done["project"], done["size"], done["why"]) == (1, "squares", "p", 8, "")
    assert done["counts"] == {"open": 0, "complete": 8, "pruned": 0, "failed": 0, "reused": 0}
    assert [(best["point"], best["values"]) for best in done["best"]] == [({"x": "3"}, [0.0])]
    assert done["metrics"] == LOSS
    assert (done["parallel"], done["journal"]) == (2, "")
    assert done["queued_at"] <= done["ended_at"]
    found = trials(daemon, sweep)
    assert [trial["number"] for trial in found] == [*range(1, 9)]
    assert [trial["values"] for trial in found] == [[float((x - 3) ** 2)] for x in range(8)]
    assert found[7]["command"] == SQUARE.replace("{x}", "7")
    job = daemon.job(found[7]["job"])
    assert (job["name"], job["project"], job["tags"], job["time_limit_seconds"]) == ("squares-8", "p", ["t"], 60.0)
    assert job["sweep"] == {"id": 1, "trial": 8, "point": {"x": "7"}, "results": {"loss": 16.0}}
    assert (job["env"]["DIBS_SWEEP"], job["env"]["DIBS_TRIAL"]) == ("1", "8")
    assert found[7]["seconds"] == job["seconds"]
    assert sorted(daemon.world.ledger.started()) == [str(x) for x in range(8)]


def test_the_best_trials_come_first_and_pages_go_on(daemon: DaemonProcess):
    sweep = begin(daemon)
    until(daemon, sweep, "finished")

    first = daemon.get(f"/v1/sweeps/{sweep}/trials?order=best&limit=3")
    second = daemon.get(f"/v1/sweeps/{sweep}/trials?order=best&limit=9&cursor={first['cursor']}")

    assert [trial["point"]["x"] for trial in first["trials"]] == ["3", "2", "4"]
    assert [trial["point"]["x"] for trial in second["trials"]] == ["1", "5", "0", "6", "7"]
    assert second["cursor"] is None


def test_the_same_key_gets_the_same_sweep(daemon: DaemonProcess):
    body = {"key": "once", "spec": {"command": "true {x}", "parameters": [WHOLE]}}

    first, second = (daemon.call("POST", "/v1/sweeps", body) for _ in range(2))

    assert (first.status, second.status) == (201, 200)
    assert first.json == {"id": 1, "is_new": True, "size": 8}
    assert second.json == {"id": 1, "is_new": False, "size": 8}
    assert len(daemon.get("/v1/sweeps")["sweeps"]) == 1


def test_a_sweep_without_a_metric_runs_its_commands_and_that_is_all(daemon: DaemonProcess):
    sweep = begin(daemon, "true {x}", metrics=[])

    done = until(daemon, sweep, "finished")

    assert done["counts"]["complete"] == 8
    assert {trial["values"] for trial in trials(daemon, sweep)} == {None}
    assert done["best"] == []


def test_never_are_more_trials_open_than_may_be_and_the_rest_is_not_written_down(daemon: DaemonProcess):
    huge = [{"name": name, "low": 1, "high": 1_000_000, "integer": True} for name in ("x", "y")]
    sweep = begin(daemon, "sleep 60; true {x} {y}", *huge, parallel=3)

    wait_for(daemon, sweep, lambda seen: seen["counts"]["open"] == 3)

    assert look(daemon, sweep)["size"] == 10**12
    assert sum(daemon.get("/v1/jobs")["counts"].values()) == 3
    assert (daemon.queue / "store.db").stat().st_size < 2_000_000
    assert act(daemon, sweep, "stop") == {"changed": True, "trials": 3}
    until(daemon, sweep, "stopped")
    assert sum(daemon.get("/v1/jobs")["counts"].values()) == 3


def test_as_many_run_at_once_as_the_pool_has_places(daemon: DaemonProcess):
    sweep = begin(daemon, 'echo "start {x} - $$" >> "$LEDGER"; sleep 60', metrics=[])

    wait_until(lambda: len(daemon.world.ledger.started()) == 2, show=lambda: daemon.world.ledger.lines)

    assert look(daemon, sweep)["counts"]["open"] == 2
    act(daemon, sweep, "edit", parallel=4)
    wait_for(daemon, sweep, lambda seen: seen["counts"]["open"] == 4)
    assert len(daemon.get("/v1/jobs?state=running")["jobs"]) == 2
    act(daemon, sweep, "stop")


def test_conditions_leave_points_out(daemon: DaemonProcess):
    sweep = begin(daemon, "true {x} {y}", WHOLE, values("y", 1, 2), where=["x * y < 4"], metrics=[])

    done = until(daemon, sweep, "finished")

    points = [(int(trial["point"]["x"]), int(trial["point"]["y"])) for trial in trials(daemon, sweep)]
    assert sorted(points) == [(x, y) for x in range(8) for y in (1, 2) if x * y < 4]
    assert done["counts"]["complete"] == len(points)


def test_a_parameter_that_is_none_drops_its_flag(daemon: DaemonProcess):
    sweep = begin(daemon, "true --momentum {m}", values("m", 0.9, None), metrics=[])

    until(daemon, sweep, "finished")

    assert [trial["command"].strip() for trial in trials(daemon, sweep)] == ["true --momentum 0.9", "true"]
    assert [trial["point"] for trial in trials(daemon, sweep)] == [{"m": "0.9"}, {"m": None}]


# -- what was run before ---------------------------------------------------------------------------------


PROGRAM = {"program": "the same files", "reuse": True}


def test_a_point_that_was_run_is_reused_if_that_is_asked_for_and_the_program_is_the_same(daemon: DaemonProcess):
    first = begin(daemon, program="the same files")
    until(daemon, first, "finished")
    before = daemon.world.ledger.started()

    again = begin(daemon, SQUARE, {**WHOLE, "high": 8}, **PROGRAM)
    done = until(daemon, again, "finished")

    assert done["counts"] == {"open": 0, "complete": 1, "pruned": 0, "failed": 0, "reused": 8}
    assert daemon.world.ledger.started() == [*before, "8"]
    old, new = trials(daemon, first), trials(daemon, again)
    assert [trial["values"] for trial in new[:8]] == [trial["values"] for trial in old]
    assert [trial["reused_from"] for trial in new[:8]] == [trial["job"] for trial in old]
    assert new[0]["why"] == "the same as trial 1 of sweep 1"
    assert done["best"][0]["point"] == {"x": "3"}

    for unasked in ({}, {"program": "the same files"}, {"program": "edited", "reuse": True}):
        assert until(daemon, begin(daemon, **unasked), "finished")["counts"]["complete"] == 8


def test_a_dry_run_says_how_many_trials_would_be_reused(daemon: DaemonProcess):
    until(daemon, begin(daemon, program="the same files"), "finished")

    def reused(**more: object) -> object:
        spec = {"command": SQUARE, "parameters": [{**WHOLE, "high": 8}], "metrics": [{"name": "loss"}], **more}
        return daemon.post("/v1/sweeps/check", {"spec": spec})["reused"]

    assert reused(**PROGRAM) == [{"sweep": 1, "trials": 8}]
    assert reused(program="the same files") == reused(program="edited", reuse=True) == []


def test_without_a_known_program_nothing_is_reused(daemon: DaemonProcess):
    body = {"key": "k", "spec": {"command": SQUARE, "parameters": [WHOLE], "reuse": True}}

    refused = daemon.call("POST", "/v1/sweeps", body)

    assert refused.status == 400
    assert "it is not known which program would run" in refused.json["error"]["message"]


def test_a_point_that_comes_twice_in_a_sweep_says_whose_result_it_has(daemon: DaemonProcess):
    command = 'echo "loss=1" >> "$DIBS_METRICS"; : {x}{y}'
    sweep = begin(daemon, command, values("x", 1, 11), values("y", 11, 1), parallel=4)

    done = until(daemon, sweep, "finished")

    assert done["counts"]["reused"] == 1  # 1 and 11, 11 and 1
    whys = {trial["why"] for trial in trials(daemon, sweep) if trial["state"] == "reused"}
    assert whys == {"the same as trial 1 of sweep 1"}


def test_values_of_jobs_that_were_cleaned_away_are_still_there(daemon: DaemonProcess):
    first = begin(daemon, program="the same files")
    until(daemon, first, "finished")
    daemon.post("/v1/clean", {})

    again = begin(daemon, **PROGRAM)

    assert until(daemon, again, "finished")["counts"]["reused"] == 8
    assert look(daemon, first)["best"][0]["values"] == [0.0]


def test_another_value_of_a_variable_of_the_job_is_another_point(daemon: DaemonProcess):
    command = 'echo "loss=$S" >> "$DIBS_METRICS"; : {x}'
    until(
        daemon, begin(daemon, command, values("x", 1), wishes={"env": {"S": "1", "T": "1"}}, **PROGRAM), "finished"
    )

    other = begin(daemon, command, values("x", 1), wishes={"env": {"S": "2", "T": "1"}}, **PROGRAM)
    same = begin(daemon, command, values("x", 1), wishes={"env": {"T": "1", "S": "1"}}, **PROGRAM)

    assert until(daemon, other, "finished")["counts"]["complete"] == 1
    assert until(daemon, same, "finished")["counts"]["reused"] == 1
    assert trials(daemon, other)[0]["values"] == [2.0]


def test_another_folder_or_another_metric_is_another_point(daemon: DaemonProcess, tmp_path: Path):
    command = 'echo "loss={x} speed={x}" >> "$DIBS_METRICS"'
    until(daemon, begin(daemon, command, wishes={"workdir": str(tmp_path)}, **PROGRAM), "finished")

    elsewhere = begin(daemon, command, wishes={"workdir": "/"}, **PROGRAM)
    otherwise = begin(daemon, command, metrics=[{"name": "speed"}], wishes={"workdir": str(tmp_path)}, **PROGRAM)

    for sweep in (elsewhere, otherwise):
        assert until(daemon, sweep, "finished")["counts"]["complete"] == 8


# -- asking ----------------------------------------------------------------------------------------------


def test_a_dry_run_tells_the_size_and_the_first_commands(daemon: DaemonProcess):
    body = {"spec": {"command": "f {x}", "parameters": [WHOLE], "where": ["x > 1"]}}

    found = daemon.post("/v1/sweeps/check", body)

    assert found == {"size": 8, "commands": [f"f {x}" for x in range(2, 7)], "left_out": 2, "reused": []}
    assert daemon.get("/v1/sweeps")["sweeps"] == []


@pytest.mark.parametrize(
    ("spec", "defaults", "message"),
    [
        ({"command": "f {x}", "parameters": [WHOLE], "speed": 1}, {}, "speed"),
        ({"command": "f {x}", "parameters": [WHOLE], "method": "adaptive"}, {}, "metric"),
        ({"command": "f {x}", "parameters": []}, {}, "there is no parameter"),
        ({"command": "f {x}", "parameters": [WHOLE], "name": "3-4"}, {}, "cannot use '3-4' as a name"),
        ({"command": "f {x}", "parameters": [WHOLE]}, {"once": "k"}, "`once` cannot be the same"),
        ({"command": "f {x}", "parameters": [WHOLE]}, {"command": "g"}, "`command` cannot be the same"),
        ({"command": "f {x}", "parameters": [WHOLE]}, {"num_gpus": 9}, "could never start"),
        ({"command": "f {x}", "parameters": [WHOLE]}, {"after": [{"job": 99}]}, "cannot find job 99"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(shared: DaemonProcess, spec, defaults, message):
    reply = try_to_begin(shared, spec, **defaults)

    assert reply.status in (400, 404), reply
    assert message in reply.json["error"]["message"]
    assert shared.get("/v1/sweeps")["sweeps"] == []


def test_sweeps_are_found_by_name_and_as_the_last_and_listed_by_state(daemon: DaemonProcess):
    daemon.post("/v1/pause", {})
    begin(daemon, name="a")
    begin(daemon, name="b", wishes={"hold": True})

    assert [daemon.get(f"/v1/sweeps/find?ref={ref}")["id"] for ref in ("1", "@", "a")] == [1, 2, 1]
    assert daemon.call("GET", "/v1/sweeps/find?ref=c").status == 404
    assert daemon.call("GET", "/v1/sweeps/9").json["error"]["code"] == "no-such-sweep"
    assert [one["id"] for one in daemon.get("/v1/sweeps")["sweeps"]] == [2, 1]
    assert [one["name"] for one in daemon.get("/v1/sweeps?state=held")["sweeps"]] == ["b"]
    page = daemon.get("/v1/sweeps?limit=1")
    assert ([one["id"] for one in page["sweeps"]], page["cursor"]) == ([2], 2)
    assert [one["id"] for one in daemon.get("/v1/sweeps?cursor=2")["sweeps"]] == [1]


def test_who_listens_hears_of_sweeps_and_their_trials(daemon: DaemonProcess):
    stream = Stream(daemon.socket)
    stream.first_comment()
    begin(daemon, SQUARE, values("x", 5))

    heard = []
    while not heard or heard[-1]["kind"] != "sweep.changed":
        heard += stream.take(1)
    stream.close()

    about = [event for event in heard if event["kind"].startswith("sweep.")]
    assert [event["kind"] for event in about] == ["sweep.added", "sweep.trial", "sweep.trial", "sweep.changed"]
    assert [event["trial"]["state"] for event in about[1:3]] == ["open", "complete"]
    assert about[2]["trial"] == trials(daemon, 1)[0]
    assert (about[3]["sweep"], about[3]["state"], about[3]["why"]) == (1, "finished", "")


def test_a_job_that_is_exported_is_a_job_like_any_other(daemon: DaemonProcess):
    sweep = begin(daemon, SQUARE, values("x", 5))
    until(daemon, sweep, "finished")

    (line,) = daemon.call("GET", "/v1/export").body.splitlines()

    assert json.loads(line)["once"] == ""


def test_a_wide_scan_delays_no_other_request(daemon: DaemonProcess):
    """Millions of points that no condition allows: others are served meanwhile, and it can be stopped."""
    huge = [{"name": name, "low": 1, "high": 1_000_000, "integer": True} for name in ("x", "y")]
    sweep = begin(daemon, "true {x} {y}", *huge, where=["x - x + y - y < 0"], metrics=[])

    number = daemon.add("true")

    assert daemon.wait(number)[0]["state"] == "succeeded"
    assert look(daemon, sweep)["counts"]["open"] == 0
    act(daemon, sweep, "stop")
    assert until(daemon, sweep, "stopped", "finished")
    assert states(daemon, sweep) == {}
