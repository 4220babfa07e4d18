"""A job as a batch script: what stands in it, and that it does what the job would do, with bash and with Slurm."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from backends.private_slurm import PrivateSlurm
from cli.fake_daemon import a_job
from dibs.cli.sbatch_script import script_of
from dibs.errors import BadInput
from stories.outside import wait_until

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
