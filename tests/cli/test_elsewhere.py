"""Jobs on Slurm at the command line: what travels to the daemon, and what people see of them."""

import os
from pathlib import Path

import pytest

from cli.fake_daemon import a_job

TOLD = ["--partition", "gpu", "--account", "lab", "--mail-user", "ann@example.org"]


def slurm_job(number, state="running", **more):
    return a_job(number, state, on="slurm", gpus=[], **more)


def test_add_says_where_and_what_slurm_is_told(daemon, typed):
    typed("add", "--on", "slurm", *TOLD, "--", "true")
    typed("add", "--on", "local", "--", "true")
    typed("add", "--", "true")

    there, here, unsaid = (body["defaults"] for body in daemon.bodies())
    assert there["on"] == "slurm"
    assert there["on_options"] == {"partition": "gpu", "account": "lab", "mail-user": "ann@example.org"}
    assert here["on"] == "local" and "on_options" not in here
    assert not {"on", "on_options"} & unsaid.keys()


def test_a_line_may_say_otherwise_than_the_call(daemon, typed, tmp_path):
    lines = tmp_path / "jobs.txt"
    lines.write_text("a\n[on=local] b\n[qos=high] c\n")

    typed("add", "--on", "slurm", "--partition", "gpu", "-f", str(lines))

    assert daemon.bodies()[-1]["jobs"] == [
        {"command": "a"},
        {"command": "b", "on": "local", "on_options": {}},
        {"command": "c", "on_options": {"partition": "gpu", "qos": "high"}},
    ]


@pytest.mark.parametrize(("default", "is_there"), [("slurm", True), ("local", False)])
def test_a_script_is_read_for_the_place_where_the_daemon_lets_it_run(daemon, typed, tmp_path, default, is_there):
    daemon.default_backend = default
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH --partition=gpu\n")

    done = typed("add", "-f", str(script))

    [job] = daemon.bodies()[-1]["jobs"]
    assert job.get("on_options") == ({"partition": "gpu"} if is_there else None)
    assert ("ignores --partition" in done.stderr) is not is_there


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["add", "--on", "elsewhere", "--", "true"], "'elsewhere' is not one of 'local', 'slurm'"),
        (["add", "--on", "slurm", "--qos", "a b", "--", "true"], "cannot give Slurm 'a b' as qos"),
        (["run", "--on", "slurm", "--", "true"], "`dibs add --on slurm -- COMMAND` hands them to Slurm"),
        (["export", "--sbatch"], "a script is for one job or for one array"),
        (["export", "-o", "x"], "--environment and -o are for --sbatch"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(daemon, typed, words, sentence):
    done = typed(*words)

    assert done.status == 2
    assert sentence in done.stderr
    assert daemon.bodies() == []


def test_what_may_hold_jobs_up_is_said(daemon, typed):
    daemon.notes = ("Slurm does not answer now; it is handed over when it does",)

    done = typed("add", "--on", "slurm", "--", "true")

    assert (done.stdout, done.stderr) == ("added job 1\n", f"dibs: {daemon.notes[0]}\n")


def test_a_sweep_says_it_for_every_trial_and_an_option_goes_before_its_file(daemon, typed, tmp_path):
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "command: train {lr}\nparameters:\n  lr: [1, 2]\non: slurm\npartition: gpu\nmail_user: ann@example.org\n"
    )

    typed("sweep", str(file), "--partition", "long")
    typed("sweep", str(file), "--on", "local")

    there, here = (body["defaults"] for body in daemon.bodies()[-2:])
    assert (there["on"], there["on_options"]) == ("slurm", {"partition": "long", "mail-user": "ann@example.org"})
    assert here["on"] == "local" and not here.get("on_options")


def test_edit_keeps_what_a_job_tells_slurm_already_and_none_takes_it_back(daemon, typed):
    daemon.jobs[3] = a_job(3, on="slurm", on_options={"partition": "gpu", "qos": "low"})

    typed("edit", "3", "--account", "lab", "--qos", "none")
    typed("edit", "3", "--on", "local")

    assert daemon.bodies("PATCH") == [{"on_options": {"partition": "gpu", "account": "lab"}}, {"on": "local"}]


def test_what_was_handed_over_waits_and_stands_before_what_waits_here(daemon, typed):
    daemon.jobs = {
        1: a_job(1, "running"),
        2: a_job(2, "queued"),
        3: slurm_job(3, "submitted", attempts=1),
        4: a_job(4, "held"),
        5: slurm_job(5, "running", node="n1", node_gpus="0,1"),
        6: slurm_job(6, "succeeded", node="n2"),
    }
    daemon.reasons[3] = "waits at Slurm: jobs with a higher priority go first"

    done = typed("ls")

    rows = [line.split()[:4] for line in done.stdout.splitlines() if line[0].isdigit()]
    assert [(row[0], row[1]) for row in rows] == [
        *[("5", "running"), ("1", "running")],
        *[("3", "submitted"), ("2", "queued"), ("4", "held")],
        ("6", "succeeded"),
    ]
    assert (rows[0][3], rows[1][3], rows[5][3]) == ("n1:0,1", "0", "n2")
    assert "  waits at Slurm: jobs with a higher priority go first\n" in done.stdout


def test_the_states_that_wait_are_meant_by_one_word(daemon, typed):
    daemon.jobs = {
        number: a_job(number, state) for number, state in enumerate(("submitted", "running", "held"), 1)
    }

    assert typed("ls", "--ids", "--state", "waiting").stdout.split() == ["3", "1"]


def test_kill_of_a_project_means_what_was_handed_over_too(daemon, typed):
    daemon.jobs = {7: slurm_job(7, "submitted", project="a")}

    assert typed("kill", "--project", "a").stderr == "ending job 7\n"


def test_info_shows_the_place_the_node_and_no_pid_of_another_machine(daemon, typed):
    told = {"partition": "gpu", "account": "lab"}
    daemon.jobs[17] = slurm_job(17, "running", on_options=told, node="n1", node_gpus="0,1", attempts=1)

    shown = typed("info", "17").stdout

    facts = {tuple(line.split(None, 1)) for line in shown.splitlines() if len(line.split(None, 1)) == 2}
    facts = {(word, text.strip()) for word, text in facts}
    assert {("on", "slurm"), ("partition", "gpu"), ("account", "lab"), ("node", "n1"), ("GPUs", "0,1")} <= facts
    assert ("slurm", "4711_3") in facts
    assert "\n  pid" not in shown
    [attempt] = [line.split() for line in shown.splitlines() if line.strip().startswith("1  ")]
    assert attempt[:3] == ["1", "n1:0,1", "-"]


def test_info_of_a_job_that_was_handed_over_says_why_it_waits_and_claims_no_start(daemon, typed):
    daemon.jobs[17] = slurm_job(17, "submitted", attempts=1, started_at="2026-11-15T12:00:10.000Z")
    daemon.reasons[17] = "waits at Slurm: other jobs have what it needs"

    shown = typed("info", "17").stdout

    assert "waits at Slurm: other jobs have what it needs" in shown
    [attempt] = [line.split() for line in shown.splitlines() if line.strip().startswith("1  ")]
    assert attempt[:4] == ["1", "-", "-", "-"]


@pytest.mark.parametrize(
    ("job", "reason", "said"),
    [
        (
            slurm_job(1, "submitted", attempts=1),
            "waits at Slurm: its partition is down",
            "job 1 waits at Slurm: its partition is down",
        ),
        (slurm_job(1, "submitted", attempts=1), "", "job 1 waits at Slurm"),
        (
            slurm_job(1, "running", started_at=None, node="n1", node_gpus="0,1"),
            "",
            "job 1 does not wait: it runs on node n1, GPU 0,1 for ?",
        ),
        (slurm_job(1, "running", started_at=None, node="n1"), "", "job 1 does not wait: it runs on node n1 for ?"),
        (
            slurm_job(1, "running", started_at=None, node="n1"),
            "it is suspended in Slurm",
            "job 1 does not wait: it runs on node n1 for ?; it is suspended in Slurm",
        ),
    ],
)
def test_why_tells_what_it_waits_for_over_there(daemon, typed, job, reason, said):
    daemon.jobs[1] = job
    daemon.reasons |= {1: reason} if reason else {}

    assert typed("why", "1").stdout == f"{said}\n"


def test_the_log_of_what_was_handed_over_is_that_of_the_attempt_before(daemon, typed):
    daemon.jobs = {1: slurm_job(1, "submitted", attempts=1), 2: slurm_job(2, "submitted", attempts=2)}
    daemon.reasons[1] = "waits at Slurm: its partition is down"
    daemon.logs[2, "stdout"] = b"of before\n"

    nothing, before = typed("log", "1"), typed("log", "2")

    assert nothing.status == 1 and "has written nothing: waits at Slurm: its partition is down" in nothing.stderr
    assert before.stdout == "of before\n"
    assert {query["attempt"] for query in daemon.queries("/v1/jobs/2/log")} == {"1"}


def test_what_is_exported_comes_in_again_for_the_same_place(daemon, typed, tmp_path):
    daemon.jobs = {1: a_job(1, on="slurm", on_options={"partition": "gpu"}), 2: a_job(2)}
    file = tmp_path / "jobs.jsonl"
    file.write_text(typed("export").stdout)

    typed("import", str(file))

    assert [(job["on"], job["on_options"]) for job in daemon.bodies()[-1]["jobs"]] == [
        ("slurm", {"partition": "gpu"}),
        ("", {}),
    ]


def test_a_script_goes_to_a_file_for_our_eyes_only(daemon, typed, tmp_path):
    daemon.jobs[17] = a_job(17, retries=1)
    file = Path(tmp_path / "job.sh")

    done = typed("export", "--sbatch", "17", "-o", str(file))

    assert file.read_text() == typed("export", "--sbatch", "17").stdout
    assert os.stat(file).st_mode & 0o077 == 0
    assert done.stderr == "dibs: it is not tried again\n"
