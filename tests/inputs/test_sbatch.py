"""Scripts with #SBATCH lines."""

import subprocess
from dataclasses import replace
from datetime import datetime

import pytest

from dibs.errors import BadInput
from dibs.inputs.sbatch import read_script
from dibs.model.jobs import Command, Request

DEFAULTS = Request(command=Command.exact(["true"]))


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
        ("--gres=shard:2", 1),
        ("--mem 4G", 1),
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

    assert warning == f"{path}: dibs ignores --partition, -c, --export, --mem, the GPU type a100"


def test_a_script_without_such_lines_has_no_warning(script):
    path = script("echo hi")

    assert read_script(path, DEFAULTS).warnings == ()


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


FOR_SLURM = ("#SBATCH -p gpu --account=lab", "#SBATCH -C a100&nvlink --mail-user ann@example.org --exclusive")


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

    read = read_script(
        path, replace(DEFAULTS, on=on), queued_at=datetime(2026, 11, 15), default_place=lambda: default
    )

    told = {"partition": "gpu", "account": "lab", "constraint": "a100&nvlink", "mail-user": "ann@example.org"}
    unused = "--exclusive" if is_there else "-p, --account, -C, --mail-user, --exclusive"
    assert (read.request.on, dict(read.request.on_options)) == (("slurm", told) if is_there else (on, {}))
    assert read.warnings == (f"{path}: dibs ignores {unused}",)


def test_the_command_line_goes_before_the_script_in_what_slurm_is_told(script):
    defaults = replace(DEFAULTS, on="slurm", on_options=(("partition", "debug"),))

    read = read_script(script(*FOR_SLURM), defaults, queued_at=datetime(2026, 11, 15))

    assert dict(read.request.on_options)["partition"] == "debug"


def test_who_does_not_need_to_know_where_jobs_run_does_not_ask(script):
    def asked() -> str:
        raise AssertionError("it is not needed")

    read_script(script("#SBATCH --mem=4G"), DEFAULTS, queued_at=datetime(2026, 11, 15), default_place=asked)
    read_script(script(*FOR_SLURM), DEFAULTS, default_place=asked)


def test_a_line_that_slurm_cannot_be_told_is_refused_with_its_place(script):
    path = script("#SBATCH --partition=")

    with pytest.raises(BadInput, match=r"line 2: cannot give Slurm '' as partition"):
        read_script(path, replace(DEFAULTS, on="slurm"), queued_at=datetime(2026, 11, 15))


def test_the_container_of_a_script_is_its_image(script):
    path = script(
        "#SBATCH --container-image=docker://ghcr.io#org/torch:2",
        "#SBATCH --container-mounts=/data:/data:ro+x,/tmp",
        "#SBATCH --container-workdir=/data",
    )

    read = read_script(path, DEFAULTS)

    assert (read.request.image, read.request.workdir) == ("ghcr.io/org/torch:2", "/data")
    assert read.request.mounts == ("/data:/data:ro", "/tmp:/tmp")
    assert read.warnings == ()
