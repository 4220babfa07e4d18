"""Keywords mean what the options of `dibs add` mean, and are refused in the same words."""

import os
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dibs.api.job import Job
from dibs.api.wishes import read_wishes
from dibs.errors import BadInput
from dibs.model.jobs import After, Checkpoint, Dependency, JobId


def test_words_numbers_and_text_are_read_as_everywhere(tmp_path: Path) -> None:
    request = read_wishes(
        {
            "num_gpus": 2,
            "vram": "8G",
            "share": 0.5,
            "only": [0, 1],
            "prefer": 1,
            "gpu_type": "h200",
            "cpus": 4,
            "mem": "1G",
            "time": "2h",
            "grace": 30,
            "name": "x",
            "project": "p",
            "tags": ["a", "b"],
            "env": {"SEED": 1},
            "workdir": tmp_path,
            "output": "log-%j",
            "retries": 2,
            "retry_on": ["gpu-oom", "lost"],
            "restartable": True,
            "checkpoint_signal": "USR1@60",
            "after": [Job(3), 4],
            "after_any": 5,
            "begin": "2030-01-31 22:00",
            "hold": True,
            "once": "k",
            "notify": "end",
            "priority": -3,
            "bind": True,
        }
    )

    wishes = request.wishes
    assert (wishes.num_gpus, wishes.vram, wishes.share) == (2, 8 * 1024**3, Fraction(1, 2))
    assert (wishes.only, wishes.prefer, wishes.gpu_type) == (("0", "1"), ("1",), "h200")
    assert (wishes.cpus, wishes.mem) == (4, 1024**3)
    assert (request.time_limit, request.grace, request.retries) == (7200, 30, 2)
    assert (request.name, request.project, request.tags, request.env) == ("x", "p", ("a", "b"), (("SEED", "1"),))
    assert (request.workdir, request.output) == (str(tmp_path), f"{tmp_path}/log-%j")
    assert request.retry_on == ("gpu-oom", "lost")
    assert request.checkpoint is not None and isinstance(request.checkpoint, Checkpoint)
    assert request.after == (
        Dependency(JobId(3), After.OK),
        Dependency(JobId(4), After.OK),
        Dependency(JobId(5), After.ANY),
    )
    assert request.begin == datetime(2030, 1, 31, 22).timestamp()
    assert (request.hold, request.once, request.notify, request.priority) == (True, "k", "end", -3)
    assert request.bind and request.restartable


def test_a_moment_may_be_a_datetime() -> None:
    moment = datetime.now() + timedelta(hours=1)

    assert read_wishes({"begin": moment}).begin == moment.timestamp()


def test_what_is_none_was_not_said() -> None:
    assert read_wishes({"vram": None, "time": None}) == read_wishes({})


def test_the_folder_and_the_umask_are_those_of_now() -> None:
    mask = os.umask(0o027)
    try:
        request = read_wishes({})
    finally:
        os.umask(mask)

    assert (request.workdir, request.umask) == (os.getcwd(), 0o027)


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"gpus": 2}, "there is no wish called 'gpus'"),
        ({"vram": "much"}, "cannot read 'much' as vram"),
        ({"num_gpus": -1}, "as num_gpus"),
        ({"num_gpus": True}, "as num_gpus"),
        ({"time": "soon"}, "as time"),
        ({"grace": "soon"}, "cannot read 'soon'"),
        ({"grace": [1]}, "as grace"),
        ({"workdir": "/not/there"}, "there is no folder /not/there"),
        ({"name": "x" * 256}, "as name"),
        ({"name": "a\0b"}, "NUL"),
        ({"once": ""}, "as once"),
        ({"output": "a\0b"}, "NUL"),
        ({"notify": "always"}, "as notify"),
        ({"retry_on": "bad luck"}, "no cause called"),
        ({"checkpoint_signal": "USR1@60"}, "before the time limit"),
        ({"checkpoint_signal": "LOUD", "time": "2h"}, "as a signal and seconds"),
        ({"begin": "whenever"}, "as a time to begin"),
        ({"after": []}, "after names no job"),
        ({"after": 0}, "as after"),
        ({"after": True}, "as after"),
        ({"after": 3, "after_any": 3}, "two kinds of dependencies"),
        ({"env": {"A=B": "1"}}, "name of a variable"),
        ({"tags": ["", "a"]}, "as tags"),
    ],
)
def test_what_cannot_be_meant_is_refused(wishes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_wishes(wishes)

    assert words in refused.value.message
    assert refused.value.remedy
    assert refused.value.__notes__ == [refused.value.remedy]  # in a traceback, too


def test_a_job_for_slurm_says_so_and_what_slurm_is_told() -> None:
    request = read_wishes({"on": "slurm", "partition": "gpu", "mail_user": "ann@example.org", "qos": None})

    assert request.on == "slurm"
    assert dict(request.on_options) == {"partition": "gpu", "mail-user": "ann@example.org"}
    with pytest.raises(BadInput, match="cannot run anything on 'elsewhere'"):
        read_wishes({"on": "elsewhere"})
