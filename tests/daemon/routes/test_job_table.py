"""The table of jobs over the API: sorted by any column, as CSV, and many changed in one call."""

import csv
import io

import pytest

from daemon.daemon_process import DaemonProcess
from daemon.sweeping import LOSS, begin, try_to_begin, values, wait_for


@pytest.fixture(scope="module")
def table(shared: DaemonProcess) -> DaemonProcess:
    """Jobs 1 to 3 are trials of a sweep, 4 to 6 have ended, 7 and 8 (an array) wait."""
    sweep = begin(
        shared,
        'echo "loss={x}" >> "$DIBS_METRICS"; true {kind}',
        {"name": "x", "values": "10 9 100"},
        values("kind", "none"),
        metrics=LOSS,
        wishes={"num_gpus": 0},
        parallel=1,
    )
    wait_for(shared, sweep, lambda one: one["state"] == "finished")
    shared.add(
        {"command": "true", "name": "=cmd()", "project": "b", "tags": ["z", "deep"], "num_gpus": 0},
        {"command": "exit 3", "name": "-5", "project": "A", "tags": ["Y"], "num_gpus": 0},
        {"command": "kill -9 $$", "num_gpus": 0},
    )
    shared.wait(4, 5, 6)
    shared.post("/v1/pause", {})
    shared.add(*({"command": "true", "array": {"task": task}, "priority": task} for task in (1, 2)))
    return shared


def ids(daemon: DaemonProcess, query: str) -> list[int]:
    return [job["id"] for job in daemon.get(f"/v1/jobs?{query}")["jobs"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("order=param.x&state=succeeded", [2, 1, 3, 4]),  # as numbers, and those without one last
        ("order=param.x&state=succeeded&reverse=true", [3, 1, 2, 4]),
        ("order=metric.loss&limit=3", [2, 1, 3]),
        ("order=param.kind&ids=1-3", [1, 2, 3]),
        ("order=project&limit=2", [5, 4]),
        ("order=tags&limit=2", [5, 4]),
        ("order=cause&limit=2", [5, 6]),
        ("order=exit_code&ids=4-6", [4, 5, 6]),
        ("order=array&limit=2&reverse=true", [8, 7]),
        ("order=array&limit=2", [7, 8]),
        ("order=queued&limit=2&reverse=true&ids=4-8", [4, 5]),
        ("order=started&ids=1-2", [2, 1]),
        ("order=attempts&ids=6-7", [6, 7]),
        ("order=changed&ids=5-7&limit=1", [7]),
        ("order=gpus&ids=8", [8]),
        ("order=param.nothing&ids=4-5", [5, 4]),
        ("order=name&ids=1,3-4,6-100&limit=2", [4, 1]),  # several ranges, and more numbers than there are
    ],
)
def test_jobs_are_sorted_by_any_column(table: DaemonProcess, query: str, expected: list[int]):
    assert ids(table, query) == expected


@pytest.mark.parametrize("order", ["colour", "param.", 'param.a"b', "metric.a b", ""])
def test_an_order_that_is_none_is_refused(table: DaemonProcess, order: str):
    assert table.call("GET", f"/v1/jobs?order={order.replace(' ', '%20')}").code == "bad-input"


def test_a_trial_tells_its_point_and_its_results(table: DaemonProcess):
    assert table.job(3)["sweep"] == {
        "id": 1,
        "trial": 3,
        "point": {"x": "100", "kind": "none"},
        "results": {"loss": 100.0},
    }
    assert table.job(4)["sweep"] is None


def csv_of(daemon: DaemonProcess, query: str) -> list[list[str]]:
    reply = daemon.call("GET", f"/v1/jobs.csv?{query}")
    assert reply.status == 200, reply
    assert reply.headers["content-type"] == "text/csv; charset=utf-8"
    return list(csv.reader(io.StringIO(reply.body.decode())))


def test_the_table_is_had_as_csv_with_the_columns_in_their_order(table: DaemonProcess):
    columns = "state,id,param.x,metric.loss,tags,array,priority,cause,exit_code"

    found = csv_of(table, f"columns={columns}&order=oldest&ids=1-8")

    assert found == [
        columns.split(","),
        ["succeeded", "1", "10", "10.0", "", "", "0", "", "0"],
        ["succeeded", "2", "9", "9.0", "", "", "0", "", "0"],
        ["succeeded", "3", "100", "100.0", "", "", "0", "", "0"],
        ["succeeded", "4", "", "", "z deep", "", "0", "", "0"],
        ["failed", "5", "", "", "Y", "", "0", "exit code", "3"],
        ["failed", "6", "", "", "", "", "0", "killed", ""],
        ["queued", "7", "", "", "", "7_1", "1", "", ""],
        ["queued", "8", "", "", "", "7_2", "2", "", ""],
    ]


def test_a_cell_is_no_formula_and_a_number_stays_one(table: DaemonProcess):
    assert csv_of(table, "columns=name,user&ids=4-5&order=oldest")[1:] == [
        ["'=cmd()", table.get("/v1/status")["user"]],
        ["-5", table.get("/v1/status")["user"]],
    ]


def test_columns_that_are_none_are_refused_and_filters_are_obeyed(table: DaemonProcess):
    assert table.call("GET", "/v1/jobs.csv?columns=id,colour").code == "bad-input"
    assert table.call("GET", "/v1/jobs.csv?columns=,").code == "bad-input"
    assert [row[0] for row in csv_of(table, "text=KILL")] == ["id", "6"]
    assert len(csv_of(table, "user=not-me")) == 1


def act(daemon: DaemonProcess, **body: object) -> object:
    return daemon.post("/v1/jobs/act", body)


def test_all_that_match_are_changed_in_one_call_and_the_rest_is_counted(table: DaemonProcess):
    dry = act(table, action="hold", filter={}, dry_run=True)
    held = act(table, action="hold", filter={"ids": "4-8", "without": [8]})
    again = act(table, action="hold", filter={"ids": "4-7", "state": ["held"]})
    released = act(table, action="release", filter={"ids": "1-7"})
    nothing = act(table, action="kill", filter={"user": "not-me"})

    assert dry == {"changed": [8, 7], "cancelled": [], "unchanged": [], "left_out": {"succeeded": 4, "failed": 2}}
    assert held == {"changed": [7], "cancelled": [], "unchanged": [], "left_out": {"succeeded": 1, "failed": 2}}
    assert again["changed"] == []  # type: ignore[index]
    assert [one["id"] for one in again["unchanged"]] == [7]  # type: ignore[index]
    assert released == {
        "changed": [7],
        "cancelled": [],
        "unchanged": [],
        "left_out": {"succeeded": 4, "failed": 2},
    }
    assert nothing == {"changed": [], "cancelled": [], "unchanged": [], "left_out": {}}


def test_the_priority_of_many_is_set_in_one_call(table: DaemonProcess):
    changed = act(table, action="priority", priority=9, ids=[6, 7, 8])

    assert changed["changed"] == [7, 8]  # type: ignore[index]
    assert [one["id"] for one in changed["unchanged"]] == [6]  # type: ignore[index]
    assert [table.job(number)["priority"] for number in (7, 8)] == [9, 9]
    assert ids(table, "order=turn") == [7, 8]
    for body in ({"action": "priority", "ids": [7]}, {"action": "hold", "priority": 1, "ids": [7]}):
        assert table.call("POST", "/v1/jobs/act", body).code == "bad-input"


def test_how_many_a_clean_would_forget_is_told_first(table: DaemonProcess):
    assert table.get("/v1/clean") == {"jobs": 6}
    assert table.get("/v1/clean?state=failed") == {"jobs": 2}
    assert table.get("/v1/clean?project=b") == {"jobs": 1}
    assert table.get("/v1/clean?older_seconds=86400") == {"jobs": 0}
    assert table.call("GET", "/v1/clean?state=running").code == "bad-input"
    assert len(ids(table, "limit=1000")) == 8


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"parameters": [values("x", 1), {"name": "lr", "values": "0..1:lgo"}]}, "parameters.1"),
        ({"parameters": [{"name": "x", "values": "0.0..1.0"}]}, "parameters.0"),
        ({"parameters": []}, "parameters"),
        ({"command": "true"}, "command"),
        ({"method": "random"}, "samples"),
        ({"method": "adaptive", "samples": 3}, "metrics"),
        ({"samples": "many"}, "samples"),
        ({"where": ["y > 1"]}, "where"),
        ({"name": "17"}, "name"),
        ({"over": "a b"}, "over"),
        ({"repeat": -1}, "repeat"),
        ({"repeat": 2}, "over"),
    ],
)
def test_what_is_wrong_with_a_sweep_names_its_field(table: DaemonProcess, spec: dict[str, object], field: str):
    refused = try_to_begin(table, {"command": "echo {x}", "parameters": [values("x", 1, 2)], **spec})

    assert refused.code == "bad-input"
    assert refused.json["error"]["field"] == field


@pytest.mark.parametrize(
    ("wishes", "field"),
    [
        ({"tags": ["a" * 256]}, "tags"),
        ({"output": "a" * 5000}, "output"),
        ({"name": 17}, "name"),
        ({"env": {"A": 1}}, "env"),
    ],
)
def test_what_a_wish_must_not_be_names_its_field(table: DaemonProcess, wishes: dict[str, object], field: str):
    in_one = table.try_to_add({"command": "true", **wishes})
    in_all = table.try_to_add("true", defaults=wishes)
    changed = table.call("PATCH", "/v1/jobs/1", wishes)

    assert [reply.json["error"].get("field") for reply in (in_one, in_all, changed)] == [field] * 3
