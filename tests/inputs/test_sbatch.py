"""Scripts with #SBATCH lines."""

import subprocess
from dataclasses import replace
from datetime import datetime

import pytest

from dibs.errors import BadInput
from dibs.inputs.sbatch import ScriptReading, read_script
from dibs.model.fields import FIELDS, Kind
from dibs.model.jobs import Checkpoint, Command, Request, Wishes
from dibs.model.slurm_options import OPTIONS, Use, is_passed_on

DEFAULTS = Request(command=Command.exact(["true"]))
QUEUED = ScriptReading(queued_at=datetime(2026, 11, 15))


@pytest.fixture
def script(tmp_path):
    def write(*lines: str, first: str = "#!/bin/bash") -> str:
        path = tmp_path / "my job.sh"
        path.write_text("\n".join([first, *lines, ""]))
        return str(path)

    return write


def test_a_script_is_one_job_with_the_wishes_that_slurm_would_read(script):
    path = script(
        "# a comment",
        "#SBATCH --job-name=train",
        "#SBATCH --gres=gpu:a100:2 --time=1-12",
        "",
        "#SBATCH -D /data   # here",
        "echo hi",
        "#SBATCH --job-name=too-late",
    )

    job = read_script(path, DEFAULTS).request

    assert job.command.words == ("/bin/bash", path)
    assert (job.name, job.wishes.num_gpus, job.time_limit, job.workdir) == ("train", 2, 36 * 3600, "/data")


@pytest.mark.parametrize(
    ("option", "count"),
    [
        ("--gres=gpu", 1),
        ("--gres=gpu:3", 3),
        ("--gres gpu:3", 3),
        ("--gres=gpu:a100", 1),
        ("--gres=gpu:a100:2,gpu:v100:1", 3),
        ("--gres=gres/gpu:2", 2),
        ("--gres=gpu:0", 0),
        ("--gpus=2", 2),
        ("--gpus a100:2", 2),
        ("-G 4", 4),
        ("-G4", 4),
        ("--gpus-per-node=2", 2),
        ("--gpus=2 --gpus=3", 3),
        ("--gpus-per-task=2 --ntasks=1", 2),
        ("--mem 4G", 0),
    ],
)
def test_every_spelling_of_a_number_of_gpus(script, option, count):
    path = script(f"#SBATCH {option}")

    job = read_script(path, DEFAULTS).request

    assert job.wishes.num_gpus == count


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("90", 5400),
        ("90:00", 5400),
        ("120:30", 7230),
        ("1:30:00", 5400),
        ("2-0", 172800),
        ("1-2:3:4", 93784),
        ("0", None),
        ("UNLIMITED", None),
    ],
)
def test_times_are_those_of_slurm(script, time, seconds):
    path = script(f"#SBATCH -t {time}")

    assert read_script(path, DEFAULTS).request.time_limit == seconds


def test_what_dibs_does_not_use_is_one_warning(script):
    path = script(
        "#SBATCH --partition=gpu -c 4",
        "#SBATCH --export=ALL --mem 4G",
        "#SBATCH --gpus=a100:1",
        "#SBATCH --mem=5G",
    )

    [warning] = read_script(path, DEFAULTS).warnings

    assert warning == f"{path}: dibs ignores --partition, -c, --mem, the GPU type a100"


def test_a_script_without_such_lines_is_an_ordinary_command(script):
    read = read_script(script("echo hi"), DEFAULTS)

    assert (read.warnings, read.request.wishes.num_gpus) == ((), 1)


def test_a_script_without_a_gpu_line_takes_those_that_the_command_line_asks_for(script):
    defaults = replace(DEFAULTS, wishes=Wishes(num_gpus=3))

    read = read_script(script("#SBATCH --time=5"), defaults, ScriptReading(asks_for_gpus=True))

    assert read.request.wishes.num_gpus == 3


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--array=1-10", "not as an array"),
        ("-a 1-10", "not as an array"),
        ("--time=soon", "cannot read 'soon' as time"),
        ("--gpus=-1", "cannot read '-1' as a number of GPUs"),
        ("--gpus=1.5", "cannot read '1.5'"),
        ("--gpus=", "cannot read ''"),
        ("--job-name='x", "a quote is not closed"),
    ],
)
def test_a_line_that_cannot_be_meant_is_refused_with_its_place(script, line, words):
    path = script("", f"#SBATCH {line}")

    with pytest.raises(BadInput) as refusal:
        read_script(path, DEFAULTS)

    assert refusal.value.message.startswith(f"{path} line 3: ")
    assert words in refusal.value.message
    assert refusal.value.remedy


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("#!/usr/bin/env -S bash -e", ("/usr/bin/env", "-S bash -e")),
        ("#! /bin/sh", ("/bin/sh",)),
        ("#!", ("bash",)),
    ],
)
def test_the_interpreter_is_the_one_that_the_kernel_would_take(script, first, words):
    path = script("echo hi", first=first)

    job = read_script(path, DEFAULTS).request

    assert job.command.words == (*words, path)
    assert subprocess.run(job.command.words, capture_output=True, check=True).stdout == b"hi\n"


FOR_SLURM = (
    "#SBATCH -p gpu --account=lab",
    "#SBATCH -C a100&nvlink --mail-user ann@example.org --comment='my run'",
)


@pytest.mark.parametrize(
    ("on", "default", "is_there"),
    [
        ("slurm", "local", True),
        ("", "slurm", True),
        ("", "local", False),
        ("local", "slurm", False),
    ],
)
def test_what_only_slurm_understands_is_for_a_job_that_runs_there(script, on, default, is_there):
    path = script(*FOR_SLURM)

    read = read_script(path, replace(DEFAULTS, on=on), replace(QUEUED, default_place=lambda: default))

    told = {"partition": "gpu", "account": "lab", "constraint": "a100&nvlink", "mail-user": "ann@example.org"}
    told |= {"comment": "my run"}
    ignored = (f"{path}: dibs ignores -p, --account, -C, --mail-user, --comment",)
    assert (read.request.on, dict(read.request.on_options)) == (("slurm", told) if is_there else (on, {}))
    assert read.warnings == (() if is_there else ignored)


@pytest.mark.parametrize(
    ("line", "told", "num_gpus"),
    [
        ("--nodes=2 --gres=gpu:2", {"nodes": "2"}, 2),
        ("-N2 --ntasks-per-node=4 --gpus-per-node=4", {"nodes": "2", "ntasks-per-node": "4"}, 4),
        ("-N 2 --gpus=8", {"nodes": "2", "gpus": "8"}, 8),
        ("--nodes=1 --gpus=a100:2", {"nodes": "1"}, 2),
        ("--ntasks=4 --gpus-per-task=1", {"ntasks": "4", "gpus-per-task": "1"}, 1),
        ("--gres=gpu:2,shm:1", {"gres": "gpu:2,shm:1"}, 2),
        ("--gpus=2 --mem-per-gpu=8G --cpus-per-gpu=4", {"mem-per-gpu": "8G", "cpus-per-gpu": "4"}, 2),
        ("--exclusive --mem=0 --overcommit", {"exclusive": "", "mem": "0", "overcommit": ""}, 0),
        ("--gpus=1 --exclusive=user --mem-per-cpu 2000", {"exclusive": "user", "mem-per-cpu": "2000"}, 1),
        ("--from-a-newer-slurm=3 --part=gpu", {"from-a-newer-slurm": "3", "partition": "gpu"}, 0),
    ],
)
def test_on_slurm_every_line_that_dibs_does_not_do_itself_is_passed_on(script, line, told, num_gpus):
    read = read_script(script(f"#SBATCH {line}"), replace(DEFAULTS, on="slurm"), QUEUED)

    assert dict(read.request.on_options) == told
    assert read.request.wishes.num_gpus == num_gpus
    assert read.warnings == ()


@pytest.mark.parametrize(
    "line",
    [
        "--nodes=2",
        "-N 2-4",
        "--ntasks=4",
        "--ntasks-per-node=2",
        "--gpus-per-socket=1",
        "--gres=shard:2",
        "--exclusive",
        "--from-a-newer-slurm=3",
        "--wait",
        "--input=data",
    ],
)
@pytest.mark.parametrize("reading", [QUEUED, ScriptReading()], ids=["queued", "foreground"])
def test_here_a_line_that_would_make_the_job_another_is_refused_unless_it_is_to_be_ignored(script, line, reading):
    path = script("#SBATCH --gpus=1", f"#SBATCH {line}")
    option = line.split("=")[0].split()[0]

    with pytest.raises(BadInput) as refusal:
        read_script(path, DEFAULTS, reading)
    insisted = read_script(path, DEFAULTS, replace(reading, ignored=[option]))

    assert refusal.value.message.startswith(f"{path} line 3: cannot do what {line} asks for: ")
    assert "--ignore" in refusal.value.remedy
    assert (insisted.request.wishes.num_gpus, insisted.warnings) == (1, ())


def test_what_a_script_exports_is_set_unless_the_command_line_says_otherwise(script):
    path = script("#SBATCH --export=FOO=1,PATH,SEED=2 --error=x.err --output=y.out --chdir=/data")

    read = read_script(path, replace(DEFAULTS, env=(("SEED", "7"),)), QUEUED)

    env = dict(read.request.env)
    assert (env["FOO"], env["SEED"], "PATH" in env) == ("1", "7", False)
    assert (read.request.output, read.request.error) == ("/data/y.out", "/data/x.err")
    assert read.warnings == (f"{path}: dibs ignores that --export keeps your other variables out",)


def test_here_what_each_gpu_or_cpu_has_is_booked(script):
    by_gpu = read_script(
        script("#SBATCH --mem-per-gpu=8G --cpus-per-gpu=4 --gpus=2 --nodes=1 --ntasks=1"), DEFAULTS, QUEUED
    )
    by_cpu = read_script(script("#SBATCH --mem-per-cpu=2G -c 3"), DEFAULTS, QUEUED)

    assert (by_gpu.request.wishes.cpus, by_gpu.request.wishes.mem) == (8, 16 << 30)
    assert by_cpu.request.wishes.mem == 6 << 30


@pytest.mark.parametrize("on", ["", "slurm"])
@pytest.mark.parametrize(("value", "seconds"), [("B:USR1@120", 120), ("SIGUSR1", 60)])
def test_a_signal_before_the_end_is_the_checkpoint_signal_here_and_there(script, on, value, seconds):
    path = script(f"#SBATCH --signal={value} --time=10 --requeue")

    read = read_script(path, replace(DEFAULTS, on=on), QUEUED)

    assert read.request.checkpoint == Checkpoint(10, seconds)
    assert (read.request.restartable, read.request.on_options, read.warnings) == (True, (), ())


def test_a_signal_needs_a_time_limit_and_a_queue(script):
    path = script("", "#SBATCH --signal=B:USR1@60")

    with pytest.raises(BadInput, match=r"line 3: .* before the time limit"):
        read_script(path, DEFAULTS, QUEUED)
    with pytest.raises(BadInput, match=r"line 3: cannot do what --signal=B:USR1@60 asks for") as refusal:
        read_script(path, DEFAULTS)

    assert "`--ignore signal`" in refusal.value.remedy


def test_the_command_line_goes_before_the_script_in_what_slurm_is_told(script):
    defaults = replace(DEFAULTS, on="slurm", on_options=(("partition", "debug"),))

    read = read_script(script(*FOR_SLURM), defaults, QUEUED)

    assert dict(read.request.on_options)["partition"] == "debug"


def test_who_does_not_need_to_know_where_jobs_run_does_not_ask(script):
    def asked() -> str:
        raise AssertionError("it is not needed")

    same = script("#SBATCH --mem=4G -c 2 --gres=gpu:a100:2 -t 5 -J x --signal=USR1@60 --requeue")
    read_script(same, DEFAULTS, replace(QUEUED, default_place=asked))
    read_script(script(*FOR_SLURM), DEFAULTS, ScriptReading(default_place=asked))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--partition=", "line 2: cannot give Slurm '' as partition"),
        ("--n=2", "line 2: --n may mean"),
        ("hetjob", "line 2: dibs cannot run the parts of a heterogeneous job"),
        ("--clusters=other", "line 2: cannot do what --clusters=other asks for"),
    ],
)
def test_a_line_that_slurm_cannot_be_told_is_refused_with_its_place(script, line, words):
    path = script(f"#SBATCH {line}")

    with pytest.raises(BadInput, match=words):
        read_script(path, replace(DEFAULTS, on="slurm"), QUEUED)


def test_no_option_of_ours_and_no_shortened_one_is_passed_on():
    of_the_command_line = [field.slurm_word for field in FIELDS if field.kind is Kind.SYSTEM_OPTION]

    assert [name for name in ("wrap", "job-nam", "arr", "test-on", "parsable", "x y") if is_passed_on(name)] == []
    assert {OPTIONS[name] for name in of_the_command_line} == {Use.SITE}


def test_the_container_of_a_script_is_its_image(script):
    path = script(
        "#SBATCH --container-image=docker://ghcr.io#org/torch:2",
        "#SBATCH --container-mounts=/data:/data:ro+x,/tmp",
        "#SBATCH --container-workdir=/data",
    )

    read = read_script(path, DEFAULTS)

    assert (read.request.image, read.request.workdir) == ("ghcr.io/org/torch:2", "/data")
    # The script itself is in another folder.
    assert read.request.mounts == ("/data:/data:ro", "/tmp:/tmp", f"{path}:{path}:ro")
    assert read.warnings == ()
