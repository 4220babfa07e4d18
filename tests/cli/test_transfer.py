"""`dibs export` and `import`: what goes out comes in again."""

import json
from pathlib import Path

import pytest

from cli.fake_daemon import a_job

TOLD = ("id", "queued_at", "after", "array")


def exported(typed, tmp_path, *words):
    file = tmp_path / "jobs.jsonl"
    file.write_text(typed("export", *words).stdout)
    return str(file)


def test_a_queue_comes_back_as_it_was(daemon, typed, tmp_path):
    daemon.jobs = {
        1: a_job(1, name="a\udcff", vram_bytes=1 << 30, tags=["x"], env={"K": "V"}),
        2: a_job(2, "held", priority=3),
        5: a_job(5, after=[{"job": 1, "kind": "ok"}, {"job": 2, "kind": "any"}]),
    }
    before = list(daemon.jobs.values())

    done = typed("import", exported(typed, tmp_path))

    after = [daemon.jobs[number] for number in (6, 7, 8)]
    for old, new in zip(before, after, strict=True):
        assert {key: new[key] for key in old if key not in TOLD} == {
            key: old[key] for key in old if key not in TOLD
        }
    assert after[2]["after"] == [{"job": 6, "kind": "ok"}, {"job": 7, "kind": "any"}]
    assert done.stderr == "queued 3 jobs: 6-8\n"


def test_a_line_of_a_job_list_is_read_as_dibs_add_reads_it(daemon, typed, tmp_path):
    file = tmp_path / "jobs.jsonl"
    line = {"command": ["x", "a b"], "time": "2h", "vram": "auto:1G", "only": "0,1", "env": {"N": 1}, "mem": None}
    file.write_text(json.dumps(line))

    typed("import", str(file))

    [[job]] = [body["jobs"] for body in daemon.bodies()]
    assert job == {
        "words": ["x", "a b"],
        "time_limit_seconds": 7200.0,
        "vram": "auto",
        "vram_bytes": 1 << 30,
        "only": ["0", "1"],
        "env": {"N": "1"},
        "after": [],
    }


def test_an_array_stays_one_and_does_not_swallow_its_neighbours(daemon, typed, tmp_path):
    words = {"command": "x", "words": ["x"]}
    daemon.jobs = {1: a_job(1)}
    for number in (2, 3, 4):
        daemon.jobs[number] = a_job(number, array={"id": 2, "task": number, "most": 2}, **words)
    for number in (5, 6):
        daemon.jobs[number] = a_job(number, array={"id": 5, "task": number - 4, "most": None}, **words)

    typed("import", exported(typed, tmp_path))

    assert [len(body["jobs"]) for body in daemon.bodies()] == [1, 3, 2]
    assert [daemon.jobs[number]["array"] for number in (8, 10, 12)] == [
        {"id": 8, "task": 2, "most": 2},
        {"id": 8, "task": 4, "most": 2},
        {"id": 11, "task": 2, "most": None},
    ]


def test_what_was_over_is_left_out_and_not_waited_for_unless_it_is_to_run_again(daemon, typed, tmp_path):
    words = {"command": "x", "words": ["x"]}
    states = {2: "succeeded", 3: "queued", 4: "failed", 5: "queued"}
    daemon.jobs = {1: a_job(1, "succeeded")}
    for number, state in states.items():
        daemon.jobs[number] = a_job(number, state, array={"id": 2, "task": number, "most": 2}, **words)
    daemon.jobs[9] = a_job(9, after=[{"job": 1, "kind": "ok"}, {"job": 3, "kind": "ok"}])
    file = exported(typed, tmp_path)

    done = typed("import", file)

    assert done.stderr == "queued 3 jobs: 10-12\nleft out 3 jobs that were over; --again queues them too\n"
    assert [len(body["jobs"]) for body in daemon.bodies()] == [2, 1], "what is left of an array is one"
    assert daemon.jobs[12]["after"] == [{"job": 10, "kind": "ok"}]
    again = json.loads(typed("import", file, "--again", "--json").stdout)
    assert (len(again["jobs"]), again["left_out"]) == (6, 0)
    assert daemon.jobs[18]["after"] == [{"job": 13, "kind": "ok"}, {"job": 15, "kind": "ok"}]


def test_what_should_fail_first_and_did_is_not_waited_for(daemon, typed, tmp_path):
    daemon.jobs = {1: a_job(1, "failed"), 2: a_job(2, "succeeded")}
    daemon.jobs[3] = a_job(3, after=[{"job": 1, "kind": "fail"}, {"job": 2, "kind": "fail"}])

    done = typed("import", exported(typed, tmp_path))

    assert done.stderr.startswith("dibs: job 2 was over, and is left out: ")
    assert daemon.jobs[4]["after"] == [{"job": 2, "kind": "fail"}], "what did not come is not taken for it"


def test_a_file_of_nothing_but_what_was_over_queues_nothing(daemon, typed, tmp_path):
    daemon.jobs = {1: a_job(1, "failed")}

    done = typed("import", exported(typed, tmp_path))

    assert (done.status, done.stderr) == (0, "left out 1 job that was over; --again queues it too\n")
    assert daemon.bodies() == []


def test_the_environment_is_this_shells(daemon, typed, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    (tmp_path / "one.jsonl").write_text('{"command": "true"}\n')

    typed("import", str(tmp_path / "one.jsonl"))

    assert daemon.bodies()[0]["environment"]["WANDB_MODE"] == "offline"


def test_many_jobs_go_in_calls_with_keys_of_their_own(daemon, typed, tmp_path):
    (tmp_path / "many.jsonl").write_text("".join(f'{{"command": "echo {n}"}}\n' for n in range(2500)))

    done = typed("import", str(tmp_path / "many.jsonl"), "--json")

    bodies = daemon.bodies()
    assert [len(body["jobs"]) for body in bodies] == [1000, 1000, 500]
    assert len({body["key"] for body in bodies}) == 3
    assert json.loads(done.stdout)["jobs"] == list(range(1, 2501))


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "[1]",
        '{"name": "no command"}',
        '{"command": "x", "priority": NaN}',
        "[" * 100_000,
        '{"command": "x", "after": 3}',
        '{"command": "x", "after": [{"job": [1]}]}',
    ],
)
def test_a_line_that_cannot_be_read_leaves_the_queue_as_it_was(daemon, typed, tmp_path, line):
    Path(tmp_path / "bad.jsonl").write_text(f'{{"command": "fine"}}\n{line}\n')

    done = typed("import", str(tmp_path / "bad.jsonl"))

    assert done.status == 2
    assert "line 2" in done.stderr
    assert daemon.bodies() == []


def test_what_was_queued_before_a_refusal_is_said(daemon, typed, tmp_path):
    file = tmp_path / "chain.jsonl"
    file.write_text('{"id": 1, "command": "a"}\n{"id": 2, "command": "b", "after": [{"job": 1}]}\n')
    add = daemon._add

    def refuse_the_second(query, body):
        daemon.refusal = (409, "conflict", "no more")
        return add(query, body)

    daemon._add = refuse_the_second

    done = typed("import", str(file))

    assert done.status == 1
    assert done.stderr.splitlines()[0] == "dibs: some were queued before this happened: 1"


def test_a_dependency_that_is_not_in_the_file_is_said(daemon, typed, tmp_path):
    daemon.jobs = {12: a_job(12)}
    (tmp_path / "one.jsonl").write_text('{"id": 3, "command": "b", "after": [{"job": 12}]}\n')

    done = typed("import", str(tmp_path / "one.jsonl"))

    assert daemon.jobs[13]["after"] == [{"job": 12}]
    assert done.stderr.startswith("dibs: job 12 is not in the file")


def test_a_file_that_is_not_there_is_said(daemon, typed):
    done = typed("import", "/nowhere/x")

    assert done.status == 2
    assert "cannot read '/nowhere/x'" in done.stderr


def test_export_takes_the_filters_of_ls(daemon, typed):
    daemon.jobs = {1: a_job(1), 2: a_job(2, "failed"), 3: a_job(3, project="a")}

    lines = typed("export", "--state", "waiting", "--project", "a").stdout.splitlines()

    assert [json.loads(line)["id"] for line in lines] == [3]


@pytest.mark.parametrize("words", [["99"], ["1", "99"], ["--sbatch", "99"], ["--sbatch", "1", "99"]])
def test_a_job_that_there_is_not_is_said(daemon, typed, words):
    daemon.jobs = {1: a_job(1)}

    done = typed("export", *words)

    assert done.status != 0 and done.stdout == ""
    assert "cannot find job 99" in done.stderr
