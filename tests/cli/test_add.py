"""`dibs add` in front of a daemon that writes down what it is asked: what travels, and what is said."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.conftest import Typed
from client.fake import Answer, Asked, FakeDaemon, listening

TRILLION = [word for name in "abcdef" for word in ("-p", name, *map(str, range(100)))]


@pytest.fixture
def queue(socket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with listening(socket) as one:
        yield one


def write(name: str, *lines: str) -> str:
    Path(name).write_text("".join(f"{line}\n" for line in lines))
    return name


def test_a_command_travels_word_for_word_with_its_surroundings(queue, typed: Typed, monkeypatch):
    monkeypatch.setenv("SEED", "a b\udcff")
    before = os.umask(0o027)

    ended = typed("add", "--", "python", "train.py", "--lr", "0.1; rm -rf /")

    os.umask(before)
    assert (ended.status, ended.stdout, ended.stderr) == (0, "added job 1\n", "")
    [call] = [one.body for one in queue.asked]
    assert queue.added == [
        {"words": ["python", "train.py", "--lr", "0.1; rm -rf /"], "workdir": os.getcwd(), "umask": 0o027}
    ]
    assert call["environment"]["SEED"] == "a b\udcff"
    assert call["code"] is None


def test_every_wish_travels_under_its_own_key(queue, typed: Typed):
    ended = typed(
        *["add", "-n", "2", "--only", "0,1", "--prefer", "1", "--share", "0.5", "--vram", "12G"],
        *["--gpu-type", "h200", "--cpus", "4", "--mem", "64G", "-t", "2h", "--grace", "30s", "--priority", "-3"],
        *["-J", "lr", "-P", "vision", "--tag", "a", "--tag", "b", "--retries", "2"],
        *["--retry-on", "gpu-oom,exit-code", "--restartable", "--hold", "--env", "A=1=2", "--env", "B="],
        *["-o", "out/%j.txt", "--notify", "end", "--checkpoint-signal", "USR1@60", "--once", "key"],
        *["--after", "12,13", "--after-any", "14", "--after-fail", "15", "--", "true"],
    )

    assert (ended.status, ended.stdout) == (0, "added job 1 (lr)\n")
    [job] = queue.added
    assert job.pop("umask") is not None
    assert job == {
        "words": ["true"],
        "workdir": os.getcwd(),
        "num_gpus": 2,
        "only": ["0", "1"],
        "prefer": ["1"],
        "share": "1/2",
        "vram_bytes": 12 << 30,
        "gpu_type": "h200",
        "cpus": 4,
        "mem_bytes": 64 << 30,
        "time_limit_seconds": 7200.0,
        "grace_seconds": 30.0,
        "priority": -3,
        "name": "lr",
        "project": "vision",
        "tags": ["a", "b"],
        "retries": 2,
        "retry_on": ["gpu-oom", "exit code"],
        "restartable": True,
        "hold": True,
        "env": {"A": "1=2", "B": ""},
        "output": f"{os.getcwd()}/out/%j.txt",
        "notify": "end",
        "checkpoint": {"signal": signal.SIGUSR1, "seconds": 60.0},
        "once": "key",
        "after": [
            {"job": 12, "kind": "ok"},
            {"job": 13, "kind": "ok"},
            {"job": 14, "kind": "any"},
            {"job": 15, "kind": "fail"},
        ],
    }


def test_slurms_spellings_are_understood(queue, typed: Typed):
    (Path.cwd() / "sub").mkdir()

    ended = typed(
        *["add", "--gres=gpu:h200:2", "--job-name=x", "--dependency=afterok:12:13,afternotok:14"],
        *[
            "--chdir",
            "sub",
            "--output=o.txt",
            "--cpus-per-task=3",
            "--signal=B:USR1@30",
            "--time=10",
            "--",
            "true",
        ],
    )

    assert ended.status == 0, ended
    [job] = queue.added
    assert (job["num_gpus"], job["gpu_type"], job["name"], job["cpus"]) == (2, "h200", "x", 3)
    assert job["workdir"] == f"{os.getcwd()}/sub"
    assert job["output"] == f"{os.getcwd()}/sub/o.txt"
    assert [(one["job"], one["kind"]) for one in job["after"]] == [(12, "ok"), (13, "ok"), (14, "fail")]
    assert job["checkpoint"] == {"signal": signal.SIGUSR1, "seconds": 30.0}


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["echo hi"], ["bash", "-c", "echo hi"]),
        (["sleep 1; true"], ["bash", "-c", "sleep 1; true"]),
        (["sleep", "5"], ["sleep", "5"]),
        (["-J", "x", "true"], ["true"]),
    ],
)
def test_a_command_needs_no_dashes_where_it_can_be_nothing_else(queue, typed: Typed, words, command):
    ended = typed("add", *words)

    assert ended.status == 0
    assert queue.added[0].get("words", ["bash", "-c", queue.added[0].get("command")]) == command


def test_a_file_is_a_job_list_and_gets_its_hint(queue, typed: Typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.txt").write_text("true\n")
    (tmp_path / "train.sh").write_text("#!/bin/sh\n")
    (tmp_path / "train.sh").chmod(0o755)

    text, program = typed("add", "train.txt"), typed("add", "./train.sh")

    assert text.stderr.endswith("a job list stands behind -f: dibs add -f train.txt\n")
    assert program.stderr.endswith("dibs add -f ./train.sh; a program behind --: dibs add -- ./train.sh\n")
    assert queue.added == []


def test_a_dash_as_a_file_is_the_pipe(queue, typed: Typed, monkeypatch, tmp_path):
    (tmp_path / "list").write_text("echo a\necho b\n")
    (tmp_path / "more").write_text("echo c\n")
    stdin = os.dup(0)
    os.dup2(os.open(tmp_path / "list", os.O_RDONLY), 0)
    try:
        ended = typed("add", "-f", "-")
        os.lseek(0, 0, os.SEEK_SET)
        beside = typed("add", "-f", "-", "-f", str(tmp_path / "more"))
    finally:
        os.dup2(stdin, 0)

    assert (ended.status, beside.status) == (0, 0)
    assert [job["command"] for job in queue.added] == ["echo a", "echo b", "echo c", "echo a", "echo b"]


def test_words_behind_the_dashes_are_left_alone(queue, typed: Typed):
    typed("add", "--", "prog", "--gres=gpu:2", "-p", "x", "--", "--name")

    [job] = queue.added
    assert job["words"] == ["prog", "--gres=gpu:2", "-p", "x", "--", "--name"]


def test_a_list_travels_as_plain_commands_and_only_what_differs(queue, typed: Typed):
    path = write(
        "jobs.txt",
        "# a comment",
        "python a.py",
        "[num_gpus=2 name=wide] python b.py",
        '{"command": ["python", "c.py"], "time": "1h"}',
        "<<<",
        "echo one",
        "echo two",
        ">>>",
        "python d.py \\",
        "  --more",
    )

    ended = typed("add", "-n", "0", "-f", path)

    assert (ended.status, ended.stdout) == (0, "added jobs 1-5\n")
    [call] = [one.body for one in queue.asked]
    assert call["defaults"]["num_gpus"] == 0
    assert call["jobs"] == [
        {"command": "python a.py"},
        {"command": "python b.py", "num_gpus": 2, "name": "wide"},
        {"words": ["python", "c.py"], "time_limit_seconds": 3600.0},
        {"command": "echo one\necho two"},
        {"command": "python d.py   --more"},
    ]


def test_parameters_make_one_batch(queue, typed: Typed):
    ended = typed("add", "-p", "lr", "0.1", "0.01", "-p", "bs", "8", "--", "python t.py --lr {lr} --bs {bs}")

    assert ended.stdout == "added jobs 1-2\n"
    assert [job["command"] for job in queue.added] == [
        "python t.py --lr 0.1 --bs 8",
        "python t.py --lr 0.01 --bs 8",
    ]


def test_the_tasks_of_an_array_go_in_one_call_and_share_their_command(queue, typed: Typed):
    ended = typed("add", "--array", "1-5:2,9%2", "--", "prog", "x" * 100)

    assert ended.stdout == "added jobs 1-4 (an array)\n"
    [call] = [one.body for one in queue.asked]
    assert call["defaults"]["words"] == ["prog", "x" * 100]
    assert call["jobs"] == [{"array": {"task": task, "most": 2}} for task in (1, 3, 5, 9)]


def test_a_script_for_slurm_is_taken_as_it_is(queue, typed: Typed):
    path = write(
        "train.sh",
        "#!/bin/bash",
        "#SBATCH --job-name=big --gres=gpu:a100:2 -c 4 --mem=4000 --time=2:00:00",
        "#SBATCH --array=0-2%1 --output=log_%A_%a.txt --partition=long",
        "#SBATCH --dependency=afterok:7 --begin=2035-01-01T00:00:00",
        "echo hi",
    )

    ended = typed("add", "-f", path)

    assert ended.stdout == "added jobs 1-3 (an array)\n"
    assert ended.stderr == "dibs: train.sh: dibs ignores --partition\n"
    first, _, last = queue.added
    assert first["words"] == ["/bin/bash", f"{os.getcwd()}/train.sh"]
    assert (first["name"], first["num_gpus"], first["gpu_type"], first["cpus"]) == ("big", 2, "a100", 4)
    assert (first["mem_bytes"], first["time_limit_seconds"]) == (4000 << 20, 7200.0)
    assert first["output"] == f"{os.getcwd()}/log_%A_%a.txt"
    assert first["after"] == [{"job": 7, "kind": "ok"}]
    assert first["begin_at"] == "2035-01-01T00:00:00Z"
    assert last["array"] == {"task": 2, "most": 1}
    tasks = {"ID": "2", "COUNT": "3", "MIN": "0", "MAX": "2"}
    whole = {f"SLURM_ARRAY_TASK_{name}": value for name, value in tasks.items()}
    assert last["env"] == whole | {"SLURM_SUBMIT_DIR": os.getcwd()}


def test_many_jobs_go_as_the_parts_of_one_list_after_their_wishes_were_checked(queue, typed: Typed):
    lines = [f"echo {number}" for number in range(4500)]
    path = write("jobs.txt", *lines, "[num_gpus=2] echo wide", "[num_gpus=2] echo wide too")

    ended = typed("add", "--quiet", "-f", path)

    assert (ended.status, ended.stdout) == (0, "1-4502\n")
    check, *calls = queue.asked
    assert check.target == "/v1/jobs/check"
    assert check.body["jobs"] == [{"command": "true"}, {"command": "true", "num_gpus": 2}]
    assert [len(call.body["jobs"]) for call in calls] == [500] * 9 + [2]
    assert len({call.body["key"] for call in calls}) == 1
    assert [call.body["part"] for call in calls] == [{"offset": 500 * n, "jobs": 4502} for n in range(10)]
    assert [job["command"] for job in queue.added][:4500] == lines


def test_a_part_whose_answer_is_lost_is_sent_again_and_adds_nothing_twice(socket, typed: Typed, tmp_path):
    lost = []

    def lose_the_second(asked: Asked) -> Answer | None:
        if asked.target == "/v1/jobs" and asked.body["part"]["offset"] == 500 and not lost:
            lost.append(asked)
            answer = fake.ordinary(asked)  # it is stored, and the answer is lost
            return Answer(answer.body, answer.status, breaks=10)
        return None

    path = tmp_path / "jobs.txt"
    path.write_text("true\n" * 5000)

    with listening(socket, lose_the_second) as fake:
        ended = typed("add", "-f", str(path))

    assert ended.stdout == "added jobs 1-5000\n"
    assert len(lost) == 1


def test_where_a_later_part_is_refused_nothing_is_added(socket, typed: Typed, tmp_path):
    def full(asked: Asked) -> Answer | None:
        if asked.target == "/v1/jobs" and asked.body["part"]["offset"] == 500:
            told = {"code": "store-unusable", "message": "the disk is full", "remedy": "make room"}
            return Answer({"error": told}, 503)
        return None

    path = tmp_path / "jobs.txt"
    path.write_text("true\n" * 5000)

    with listening(socket, full) as fake:
        ended = typed("add", "-f", str(path))

    assert ended.status == 1
    assert ended.stdout == ""
    assert "the disk is full" in ended.stderr
    assert [len(one.body["jobs"]) for one in fake.asked if one.target == "/v1/jobs"] == [500, 500]


@pytest.mark.parametrize(
    ("lines", "silent", "options", "says"),
    [
        (1, 0, [], "the job may have been added all the same"),
        (1, 0, ["--once", "k"], "with the same --once nothing is added twice"),
        (600, 500, [], "the 600 jobs may have been added all the same"),
        (600, 0, [], "; nothing was added"),
    ],
)
def test_without_an_answer_it_is_said_what_may_have_been_added(
    socket, typed: Typed, tmp_path, lines, silent, options, says
):
    def leave(asked: Asked) -> Answer | None:
        is_this = asked.target == "/v1/jobs" and asked.body.get("part", {"offset": 0})["offset"] == silent
        return Answer({}, breaks=0) if is_this else None

    path = tmp_path / "jobs.txt"
    path.write_text("true\n" * lines)

    with listening(socket, leave):
        ended = typed("add", *options, "-f", str(path))

    assert (ended.status, ended.stdout) == (69, "")
    assert says in " ".join(ended.stderr.split())


def test_a_job_whose_first_answer_was_lost_is_told_as_a_new_one(socket, typed: Typed):
    lost = []

    def lose(asked: Asked) -> Answer | None:
        if asked.target != "/v1/jobs" or lost:
            return None
        lost.append(asked)
        answer = fake.ordinary(asked)
        return Answer(answer.body, answer.status, breaks=10)

    with listening(socket, lose) as fake:
        ended = typed("add", "--", "true")

    assert ended.stdout == "added job 1\n"


def test_nothing_is_stored_when_a_later_line_can_never_run(socket, typed: Typed, tmp_path):
    def refuse(asked: Asked) -> Answer | None:
        if asked.target == "/v1/jobs/check" and any(job.get("num_gpus") == 99 for job in asked.body["jobs"]):
            return Answer({"error": {"code": "bad-input", "message": "never", "remedy": "r"}}, 400)
        return None

    path = tmp_path / "jobs.txt"
    path.write_text("true\n" * 3000 + "[num_gpus=99] true\n")

    with listening(socket, refuse) as fake:
        ended = typed("add", "-f", str(path))

    assert ended.status == 2
    assert fake.added == []


def test_long_commands_make_smaller_parts(queue, typed: Typed):
    path = write("jobs.txt", *["echo " + "é" * 60_000] * 30)

    ended = typed("add", "-f", path)

    assert ended.status == 0
    calls = [one for one in queue.asked if one.target == "/v1/jobs"]
    assert all(len(json.dumps(call.body)) < 8 * 1024**2 for call in calls)
    assert len(calls) > 1
    assert len(queue.added) == 30


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--", ""], "the command is empty"),
        (["--"], "no command behind --"),
        (["nosuchprogram", "train.py"], "a command stands behind --"),
        (["true", "-n", "1"], "dibs add -- true -n 1"),
        (["true", "-"], "cannot use 'true' here"),
        (["-f", "none.txt", "true"], "cannot use 'true' here"),
        (["comands.txt"], "a job list behind -f"),
        (["-n", "x", "--", "true"], "cannot read 'x'"),
        (["--array", "3-1", "--", "true"], "cannot read '3-1' as an array"),
        (["--array", "0-99999999", "--", "true"], "more than 5000 tasks"),
        (["--array", "1-3", "-p", "a", "1", "2", "--", "x {a}"], "--array repeats one command"),
        (["--begin", "soon", "--", "true"], "cannot read 'soon' as a time to begin"),
        (["--retry-on", "luck", "--", "true"], "no cause called 'luck'"),
        (["--retry-on", "stopped", "--", "true"], "no cause called 'stopped'"),
        (["--vram", "9999T", "--", "true"], "cannot read '9999T' as vram"),
        (["--cpus", "9999999", "--", "true"], "it is a whole number from 1 to 100,000"),
        (["--checkpoint-signal", "USR1@60", "--", "true"], "before the time limit"),
        (["--checkpoint-signal", "NOPE@60", "-t", "2h", "--", "true"], "as a signal and seconds"),
        (["--env", "A", "--", "true"], "cannot read 'A' as a variable"),
        (["--env", "=1", "--", "true"], "as a variable"),
        (["--env", "1X=3", "--", "true"], "cannot use '1X' as the name of a variable: no shell could read it"),
        (["--env", "A-B=3", "--", "true"], "cannot use 'A-B' as the name of a variable"),
        (["--begin", "2020-01-01", "--", "true"], "'2020-01-01' is over"),
        (["--shell", "nosuchshell", "--", "a b"], "there is no shell 'nosuchshell'"),
        (["--shell", "/etc/passwd", "--", "a b"], "there is no shell '/etc/passwd'"),
        (["-o", ".", "--", "true"], "it is a folder"),
        (["-o", "missing/%x/", "--", "true"], "it is a folder"),
        (["-C", "nowhere", "--", "true"], "no folder nowhere"),
        (["-J", "3-4", "--", "true"], "cannot use '3-4' as a name: it names jobs by their numbers"),
        (["-J", "x" * 300, "--", "true"], "a name has at most 255 characters"),
        (["--priority", "high", "--", "true"], "cannot read 'high' as priority"),
        (["--priority", "1" * 5000, "--", "true"], "as priority"),
        (["--after", ",", "--", "true"], "--after names no job"),
        (["--after", "3", "--after-any", "3", "--", "true"], "in two ways"),
        (["--gres=gpu:x:y:z", "--", "true"], "as a number of GPUs"),
        (["--gres=shm:1", "--", "true"], "does not support --gres=shm:1"),
        (["--dependency=singleton", "--", "true"], "as a dependency"),
        (["--dependency"], "needs a value"),
        (["-f", "none.txt"], "cannot read the job file"),
        (["-f", "."], "cannot read the job file '.': is a directory"),
        (["--once", "", "--", "true"], "cannot read '' as once"),
        (["--image", "", "--", "true"], "cannot read '' as image"),
        (["--once", "k", "-p", "a", "1", "2", "--", "x {a}"], "--once names one job"),
        (["-p", "a", "1"], "put the command behind --"),
        (["--samples", "3", "--", "true"], "are for -p"),
        (["--", "x" * 131_072], "131072 bytes"),
        ([*TRILLION, "--", "{a}{b}{c}{d}{e}{f}"], "make 1000000000000 jobs"),
        ([], "there is nothing to add"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence_and_nothing_is_sent(queue, typed: Typed, words, says):
    ended = typed("add", *words)

    assert ended.status == 2
    assert ended.stdout == ""
    assert says in ended.stderr
    assert len(ended.stderr.splitlines()) == 2
    assert queue.added == []


def test_a_bad_line_is_named_with_its_place_and_nothing_is_sent(queue, typed: Typed):
    path = write("jobs.txt", "true", "true", "[num_gpu=2] true", "true")

    ended = typed("add", "-f", path)

    assert ended.status == 2
    assert "jobs.txt:3: there is no wish called 'num_gpu'; did you mean num_gpus?" in ended.stderr
    assert queue.asked == []


def test_a_generator_that_raises_adds_nothing(queue, typed: Typed):
    path = write("jobs.py", "def yielder():", "    yield 'true'", "    raise ValueError('no')")

    ended = typed("add", "-f", path)

    assert ended.status == 2
    assert "jobs.py line 3: ValueError: no" in ended.stderr
    assert queue.asked == []


def test_an_empty_list_adds_nothing_and_is_no_error(queue, typed: Typed):
    ended = typed("add", "-f", write("jobs.txt", "# nothing"))

    assert (ended.status, ended.stdout) == (0, "")
    assert "nothing was added" in ended.stderr
    assert queue.asked == []


@pytest.mark.parametrize("option", ["-q", "--quiet", "--parsable"])
def test_quiet_prints_the_number_alone(queue, typed: Typed, option):
    assert typed("add", option, "-J", "x", "--", "true").stdout == "1\n"


def test_json_tells_the_numbers(queue, typed: Typed):
    ended = typed("add", "--json", "-p", "a", "1", "2", "--", "x {a}")

    told = {"first": 1, "last": 2, "count": 2, "jobs": "1-2", "is_new": True, "notes": []}
    assert json.loads(ended.stdout) == told


def test_a_key_that_a_job_has_already_is_said(socket, typed: Typed):
    with listening(socket, lambda asked: Answer({"first": 7, "last": 7, "is_new": False})):
        ended = typed("add", "--once", "nightly", "--", "true")

    assert (ended.status, ended.stdout) == (0, "job 7 has the key nightly already\n")


def test_a_dry_run_stores_nothing_and_says_where_and_when_and_why(socket, typed: Typed):
    prospects = [
        {"gpus": [0, 1], "starts_at": None, "reason": None},
        {
            "gpus": [1],
            "starts_at": "2027-01-01T14:30:00Z",
            "reason": {"code": "busy", "sentence": "GPU 1 is held"},
        },
        {"gpus": None, "starts_at": None, "reason": {"code": "hold", "sentence": "it is held"}},
        {
            "gpus": None,
            "starts_at": None,
            "no_estimate": "job 3 has no time limit",
            "reason": {"code": "no-gpu", "sentence": "waits for a GPU"},
        },
        {
            "gpus": None,
            "starts_at": None,
            "no_estimate": "job 3 has no time limit",
            "reason": {"code": "dependency", "sentence": "follows job 3"},
        },
    ]

    with listening(socket, lambda asked: Answer({"prospects": prospects})) as fake:
        ended = typed("add", "--dry-run", "-p", "a", "1", "2", "3", "4", "5", "--", "x {a}")

    assert ended.stdout.splitlines() == [
        "would start now on GPU 0,1",
        "would start about 2027-01-01 14:30 on GPU 1: GPU 1 is held",
        "would wait: it is held",
        "would wait for a GPU; its start cannot be estimated: job 3 has no time limit",
        "would wait: follows job 3; its start cannot be estimated: job 3 has no time limit",
    ]
    assert [one.target for one in fake.asked] == ["/v1/jobs/check"]


def test_many_jobs_into_one_file_are_warned_about(queue, typed: Typed):
    ended = typed("add", "-o", "all.txt", "-p", "a", "1", "2", "--", "x {a}")

    assert "all 2 jobs write to all.txt" in ended.stderr


def test_causes_without_a_number_of_retries_are_warned_about(queue, typed: Typed):
    alone = typed("add", "--retry-on", "gpu-oom", "--", "true")
    with_number = typed("add", "--retry-on", "GPU_OOM", "--retries", "1", "--", "true")

    assert alone.stderr == "dibs: --retry-on alone tries nothing again: --retries says how often\n"
    assert (with_number.status, with_number.stderr) == (0, "")


def test_a_reference_in_after_is_asked_for(socket, typed: Typed):
    def find(asked: Asked) -> Answer | None:
        return Answer({"ids": [41]}) if asked.target == "/v1/find?ref=%40" else None

    with listening(socket, find) as fake:
        ended = typed("add", "--after", "@", "--", "true")

    assert ended.status == 0, ended
    assert fake.added[0]["after"] == [{"job": 41, "kind": "ok"}]


def test_without_a_daemon_that_may_be_started_the_exit_status_is_69(socket, typed: Typed):
    ended = typed("add", "--", "true")

    assert ended.status == 69
    assert "no_start" in ended.stderr
