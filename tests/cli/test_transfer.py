"""`dibs export` and `import`, and a job as a batch script."""

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from backends.private_slurm import PrivateSlurm
from cli.fake_daemon import a_job
from dibs.cli.transfer import script_of
from dibs.errors import BadInput
from stories.outside import wait_until

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

    [[job]] = [body["jobs"] for body in daemon.added()]
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

    assert [len(body["jobs"]) for body in daemon.added()] == [1, 3, 2]
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
    assert [len(body["jobs"]) for body in daemon.added()] == [2, 1], "what is left of an array is one"
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


def test_many_jobs_go_as_the_parts_of_one_list(daemon, typed, tmp_path):
    (tmp_path / "many.jsonl").write_text("".join(f'{{"command": "echo {n}"}}\n' for n in range(1200)))

    done = typed("import", str(tmp_path / "many.jsonl"), "--json")

    bodies = daemon.added()
    assert [body["part"] for body in bodies] == [{"offset": 500 * n, "jobs": 1200} for n in range(3)]
    assert len({body["key"] for body in bodies}) == 1
    assert json.loads(done.stdout)["jobs"] == list(range(1, 1201))


def test_a_chain_of_jobs_is_one_list_and_takes_two_requests(daemon, typed, tmp_path):
    lines = [{"id": n, "command": f"echo {n}", "after": [{"job": n - 1}] if n > 10 else []} for n in range(10, 60)]
    (tmp_path / "chain.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    done = typed("import", str(tmp_path / "chain.jsonl"), "--json")

    assert [len(body["jobs"]) for body in daemon.added()] == [1, 49]
    assert [daemon.jobs[number]["after"] for number in (1, 2, 50)] == [
        [],
        [{"job": 1, "kind": "ok"}],
        [{"job": 49, "kind": "ok"}],
    ]
    assert json.loads(done.stdout)["numbers"] == {str(n): n - 9 for n in range(10, 60)}


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


def test_of_several_jobs_the_keys_are_left_out_and_said(daemon, typed, tmp_path):
    daemon.jobs = {1: a_job(1, once="nightly run"), 2: a_job(2)}

    done = typed("import", exported(typed, tmp_path))
    alone = typed("import", exported(typed, tmp_path, "1"))

    assert done.stderr.splitlines() == [
        "dibs: job 3 was queued without its key: dibs edit 3 --once 'nightly run'",
        "queued 2 jobs: 3-4",
    ]
    assert [job.get("once") for body in daemon.added() for job in body["jobs"]] == [None, None, "nightly run"]
    assert alone.stderr == "queued 1 job: 5\n"


def test_a_job_that_follows_a_later_one_of_the_file_is_refused(daemon, typed, tmp_path):
    (tmp_path / "two.jsonl").write_text(
        '{"id": 1, "command": "a", "after": [{"job": 2}]}\n{"id": 2, "command": "b"}\n'
    )

    done = typed("import", str(tmp_path / "two.jsonl"))

    assert done.status == 2
    assert "job 1 is to follow job 2, which does not stand before it" in done.stderr
    assert daemon.added() == []


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


UGLY = "a b'c\"d$(touch BAD)`e`\\n\n* é"
CAPTURED = {
    "PATH": "/usr/bin:/bin",
    "VIRTUAL_ENV": "/venv with a blank",
    "SECRET": "s3cret",
    "CUDA_VISIBLE_DEVICES": "7",
    "SLURM_JOB_ID": "99",
    "BASH_FUNC_f%%": "() { :; }",
    "PWD": "/elsewhere",
}


def job_of(folder: Path, *words: str, **more: Any) -> dict[str, Any]:
    return a_job(17, words=list(words), command=shlex.join(words), workdir=str(folder), **more)


def array_of(folder: Path, tasks: list[int], *words: str, **more: Any) -> list[dict[str, Any]]:
    return [
        {**job_of(folder, *words, **more), "id": 20 + at, "array": {"id": 20, "task": task, "most": 2}}
        for at, task in enumerate(tasks)
    ]


def header(text: str) -> list[str]:
    return re.findall(r"^#SBATCH (.*)$", text, re.MULTILINE)


def run_by_bash(text: str, folder: Path) -> str:
    file = folder / "job.sh"
    file.write_text(text)
    done = subprocess.run(["bash", str(file)], env={"HOME": "/"}, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_by_slurm(text: str, folder: Path, slurm: PrivateSlurm, *outputs: str) -> list[str]:
    """What its tasks wrote, each into a file of its own."""
    file = folder / "job.sh"
    file.write_text(text)
    done = subprocess.run(
        ["sbatch", "--parsable", str(file)], env=slurm.environment, cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    wait_until(lambda: not slurm.ask("squeue", "-h").strip(), show=lambda: slurm.ask("squeue"))
    return [(folder / name.replace("%A", done.stdout.strip())).read_text() for name in outputs]


def test_the_wishes_of_a_job_stand_in_slurms_words(tmp_path):
    job = job_of(
        tmp_path,
        "true",
        name="my run",
        num_gpus=2,
        gpu_type="h200",
        cpus=4,
        mem_bytes=3 << 30,
        time_limit_seconds=5400.0,
        priority=-7,
        output="/data/out %j.txt",
        on_options={"partition": "gpu", "account": "lab"},
        begin_at="2030-01-31T22:00:00.000Z",
        checkpoint={"signal": 10, "seconds": 60.0},
    )

    text = script_of([job], {}, 0o027, False).text

    assert text.startswith("#!/bin/bash\n")
    assert header(text) == [
        *["--job-name='my run'", "--no-requeue", "--ntasks=1", "--nodes=1", "--gres=gpu:h200:2"],
        *["--cpus-per-task=4", "--mem=3072M", "--time=90", "--nice=7", "--partition=gpu", "--account=lab"],
        *["--output='/data/out %j.txt'", "--signal=B:10@60"],
        header(text)[-1],
    ]
    assert header(text)[-1].startswith("--begin=2030-0")
    assert "umask 0027\n" in text


def test_secrets_stay_out_unless_they_are_asked_for(tmp_path):
    job = job_of(tmp_path, "true", env={"SEED": "a b"})

    few, all_ = (script_of([job], CAPTURED, None, wanted).text for wanted in (False, True))

    exports = {text: re.findall(r"^export ([A-Z_]+)=", text, re.MULTILINE) for text in (few, all_)}
    assert exports[few] == ["PATH", "VIRTUAL_ENV", "SEED"]
    assert exports[all_] == ["PATH", "SECRET", "VIRTUAL_ENV", "SEED"]
    assert "s3cret" not in few


def test_what_dibs_does_and_the_script_does_not_is_said_in_it(tmp_path):
    job = job_of(
        tmp_path, "true", retries=2, after=[{"job": 3, "kind": "ok"}], only=["0"], vram_bytes=1 << 30, bind=True
    )

    script = script_of([job], {}, None, False)

    assert script.left_out == [
        "it may run on any GPU",
        "each GPU is asked for as a whole",
        "Slurm chooses the CPUs",
        "it waits for no other job (3)",
        "it is not tried again",
    ]
    assert all(f"# Left out: {one}.\n" in script.text for one in script.left_out)


def test_bash_alone_runs_it_word_for_word_in_its_folder(tmp_path):
    folder = tmp_path / "a 'folder' é"
    folder.mkdir()
    words = ("bash", "-c", 'pwd; umask; printf "%s|" "$SEED" "$VIRTUAL_ENV" "$@"', "x", UGLY, "")
    job = job_of(folder, *words, env={"SEED": UGLY}, name=UGLY, num_gpus=0)

    told = run_by_bash(script_of([job], CAPTURED, 0o027, False).text, tmp_path)

    assert told == f"{folder}\n0027\n{UGLY}|/venv with a blank|{UGLY}||"
    assert not (tmp_path / "BAD").exists() and not (folder / "BAD").exists()


def test_a_folder_that_is_gone_ends_it_before_the_command(tmp_path):
    job = job_of(tmp_path / "gone", "touch", str(tmp_path / "ran"))
    (tmp_path / "job.sh").write_text(script_of([job], {}, None, False).text)

    done = subprocess.run(["bash", str(tmp_path / "job.sh")], capture_output=True)

    assert done.returncode == 1
    assert not (tmp_path / "ran").exists()


def test_what_a_job_asks_dibs_for_is_there_without_dibs(tmp_path):
    line = 'echo "$DIBS_JOB_ID $DIBS_JOB_NAME $DIBS_ATTEMPT $DIBS_ARRAY_TASK_ID"; echo "loss=1" >> "$DIBS_METRICS"'
    (job,) = array_of(tmp_path, [4], "bash", "-c", line, name="it's")

    told = run_by_bash(script_of([job], CAPTURED, None, False).text, tmp_path)

    assert told == "20 it's 1 4\n"
    assert (tmp_path / "metrics-20").read_text() == "loss=1\n"


@pytest.mark.parametrize(
    ("jobs", "sentence"),
    [
        ([a_job(1), a_job(2)], "a script is for one job or for one array"),
        (
            [
                a_job(1, array={"id": 1, "task": 1, "most": None}),
                a_job(2, array={"id": 1, "task": 2, "most": None}),
            ],
            "the tasks 1_1 and 1_2 of one array differ in words",
        ),
        (
            [
                a_job(at, words=["x"], env=env, array={"id": 1, "task": at, "most": None})
                for at, env in ((1, {"SLURM_ARRAY_TASK_ID": "1"}), (2, {"SLURM_ARRAY_TASK_ID": "2", "SEED": "1"}))
            ],
            "the tasks 1_1 and 1_2 of one array differ in env",
        ),
        ([a_job(1, words=["python", "/x/dibs/api/work.py", "--f", "/calls/1"])], "it calls a Python function"),
    ],
)
def test_what_no_script_can_be_is_one_sentence(jobs, sentence):
    with pytest.raises(BadInput) as refusal:
        script_of(jobs, {}, None, False)

    assert sentence in refusal.value.message
    assert refusal.value.remedy


def test_slurm_runs_it_with_what_it_wished_for(tmp_path, slurm: PrivateSlurm):
    line = 'echo "$SLURM_JOB_NAME|$SLURM_CPUS_PER_TASK|$SEED|$DIBS_GPUS|$PWD|$SECRET"'
    job = job_of(
        tmp_path,
        "bash",
        "-c",
        line,
        name=UGLY,
        cpus=2,
        env={"SEED": UGLY},
        output=f"{tmp_path}/out %j.txt",
        on_options={"partition": "gpu"},
        time_limit_seconds=90.0,
    )

    (told,) = run_by_slurm(script_of([job], CAPTURED, None, False).text, tmp_path, slurm, "out %A.txt")

    name, cpus, *seed, gpus, folder, secret = told.rstrip("\n").split("|")
    assert (cpus, "|".join(seed), gpus, folder, secret) == ("2", UGLY, "0", str(tmp_path), "")
    assert name.startswith("a b_c_d$(touch BAD)`e`")
    assert not (tmp_path / "BAD").exists()


def test_slurm_runs_an_array_as_its_own(tmp_path, slurm: PrivateSlurm):
    jobs = array_of(
        tmp_path,
        [1, 2, 3, 7],
        *["bash", "-c", 'echo "$DIBS_ARRAY_TASK_ID $SLURM_ARRAY_TASK_ID"'],
        output=f"{tmp_path}/out-%A-%a",
        num_gpus=0,
    )
    jobs = [{**job, "env": {"SLURM_ARRAY_TASK_ID": str(job["array"]["task"])}} for job in jobs]
    text = script_of(jobs, CAPTURED, None, False).text

    told = run_by_slurm(text, tmp_path, slurm, *(f"out-%A-{task}" for task in (1, 2, 3, 7)))

    assert "--array=1-3,7%2" in header(text)
    assert told == [f"{task} {task}\n" for task in (1, 2, 3, 7)]
