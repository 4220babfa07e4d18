"""Commands from Python into a real queue: submit, wait, result, log, cancel."""

import asyncio
import os
import stat
import sys
import threading
from pathlib import Path

import pytest

import dibs
from dibs.worker_thread import wait_in_thread
from stories.outside import World, wait_until


def test_a_line_runs_in_a_shell_and_words_are_left_alone(here: World) -> None:
    line = dibs.submit("echo one; echo $((1+1))", num_gpus=0)
    words = dibs.submit(["echo", "$HOME; 'x'"], num_gpus=0)

    assert (line.result(60), words.result(60)) == (0, 0)
    assert (line.log(), words.log()) == ("one\n2\n", "$HOME; 'x'\n")
    assert (line.state, line.exit_code, line.done()) == ("succeeded", 0, True)


def test_folder_environment_umask_and_wishes_are_those_of_the_call(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_HERE", "é \udcff")

    job = dibs.submit(
        'pwd > where; echo "$FROM_HERE $SEED $CUDA_VISIBLE_DEVICES"',
        num_gpus=2,
        env={"SEED": 7},
        name="a job",
        time="1h",
    )
    job.result(60)

    assert (here.folder / "where").read_text(errors="surrogateescape") == f"{here.folder}\n"
    assert job.log() == "é \ufffd 7 0,1\n"
    assert (job.name, job.gpus, job.about["time_limit_seconds"]) == ("a job", (0, 1), 3600)


def test_a_failure_tells_how_it_ended_and_its_last_lines(here: World) -> None:
    job = dibs.submit("for i in $(seq 100); do echo line $i; done; echo oh no >&2; exit 3", num_gpus=0, name="bad")

    with pytest.raises(dibs.JobFailed) as failed:
        job.result(60)

    error = failed.value
    assert (error.job, error.state, error.exit_code, error.cause) == (job.id, "failed", 3, "exit code")
    assert str(error).startswith(f"job {job.id} (bad) failed: exit code 3\n")
    assert "line 100" in error.log and "oh no" in error.log and "line 50" not in error.log


def test_a_pipe_in_the_place_of_its_metrics_is_not_waited_for(here: World) -> None:
    job = dibs.submit('rm -f "$DIBS_METRICS"; mkfifo "$DIBS_METRICS"')

    with pytest.raises(dibs.JobFailed, match="has not reported loss"):
        wait_in_thread(lambda: job.metric("loss"), 30, "test")


def test_what_it_has_reported_by_name(here: World) -> None:
    lines = r"loss=0.5 acc=1 step=3 steps=4\nL: 7\nloss=0.25 step=4\n"
    job = dibs.submit(
        f"""printf '{lines}' > "$DIBS_METRICS"; echo L: 7""", num_gpus=0, metric_pattern=r"L: (?P<printed>\d+)"
    )
    job.result(60)

    found = job.metrics()

    assert (found["loss"]["values"], found["loss"]["steps"], found["loss"]["min"]) == ([0.5, 0.25], [3, 4], 0.25)
    assert found["printed"]["source"] == "log" and found["printed"]["last"] == 7
    assert list(job.metrics("acc")) == ["acc"] and job.progress is None


def test_one_that_is_killed_by_a_signal_or_by_its_limit_says_so(here: World) -> None:
    signalled = dibs.submit("kill -9 $$", num_gpus=0)
    slow = dibs.submit("sleep 60", num_gpus=0, time="1s", grace=1)

    with pytest.raises(dibs.JobFailed) as first:
        signalled.result(60)
    with pytest.raises(dibs.JobFailed, match="ran out of time"):
        slow.result(60)

    assert (first.value.signal, first.value.exit_code) == (9, None)


def test_waiting_has_an_end(here: World) -> None:
    job = dibs.submit("sleep 60", num_gpus=0)

    assert job.wait(0.1) is False
    with pytest.raises(TimeoutError, match=f"job {job.id} is not over"):
        job.result(0.1)
    assert job.done() is False


def test_cancelling_takes_out_what_waits_and_ends_what_runs(here: World) -> None:
    runs = dibs.submit("echo on; sleep 60", num_gpus=0)
    waits = dibs.submit("true", num_gpus=0, hold=True)
    wait_until(lambda: runs.state == "running")

    assert (runs.cancel(), waits.cancel()) == (True, True)

    assert runs.wait(60) and waits.wait(60)
    assert (runs.state, waits.state) == ("cancelled", "cancelled")
    assert runs.cancel() is False
    with pytest.raises(dibs.JobFailed, match="was stopped"):
        waits.result()


def test_a_job_is_suspended_and_resumed_and_whoever_waits_for_it_goes_on_waiting(here: World) -> None:
    job = dibs.submit("until [ -e 'go on' ]; do sleep 0.02; done; echo went on")
    wait_until(lambda: job.state == "running")
    assert job.suspension is None

    async def awaited() -> object:
        waits = asyncio.ensure_future(job)
        job.suspend()
        assert job.state == "suspended"
        assert job.suspension is not None and job.suspension["why"] == "by you"
        assert job.why().startswith("is suspended by you since ")
        assert job.wait(0.1) is False and not job.done()
        (here.folder / "go on").touch()
        assert await asyncio.wait([waits], timeout=0.2) == (set(), {waits})
        job.resume()
        return await waits

    assert (asyncio.run(awaited()), job.log()) == (0, "went on\n")


def test_what_cannot_be_suspended_or_resumed_raises_with_the_reason(here: World) -> None:
    over, waits = dibs.submit("true"), dibs.submit("true", hold=True)
    over.result(60)

    for act, job, why in (
        ("suspend", over, f"cannot suspend job {over.id}: it is over"),
        ("suspend", waits, f"cannot suspend job {waits.id}: it has not started, and is held"),
        ("resume", over, f"cannot resume job {over.id}: it is not suspended; it has succeeded"),
        ("resume", waits, f"cannot resume job {waits.id}: it is not suspended; it is held"),
        ("suspend", dibs.Job(99), "cannot find job 99"),
    ):
        with pytest.raises(dibs.DibsError) as refused:
            getattr(job, act)()
        assert refused.value.message == why


def test_its_lines_can_be_followed_while_it_writes(here: World) -> None:
    fence = here.folder / "go on"
    job = dibs.submit(
        'echo first; until [ -e "go on" ]; do sleep 0.05; done; printf "la\\xc3\\xa4st"; echo err >&2', num_gpus=0
    )

    lines = iter(job.log(follow=True))
    first = next(lines)
    fence.touch()

    assert first == "first"
    assert sorted(lines) == ["err", "laäst"]
    assert job.log(stream="stderr") == "err\n"
    assert job.log(lines=1, stream="stdout") == "laäst"
    with pytest.raises(dibs.BadInput, match="no stream called"):
        job.log(stream="stdin")


def test_followed_lines_go_on_with_the_next_attempt(here: World) -> None:
    job = dibs.submit("echo attempt $DIBS_ATTEMPT; exit $((DIBS_ATTEMPT < 2))", num_gpus=0, retries=1)

    lines = list(job.log(follow=True))

    assert lines[-1] == "attempt 2"
    assert job.result() == 0


def test_why_it_waits_is_one_sentence(here: World) -> None:
    dibs.submit("sleep 60", num_gpus=2)
    job = dibs.submit("true", num_gpus=1)

    sentence = wait_until(job.why)

    assert sentence.startswith("waits for")


def test_jobs_are_found_by_number_by_name_and_by_filter(here: World) -> None:
    first = dibs.submit("exit 1", num_gpus=0, name="one")
    second = dibs.submit("true", num_gpus=0, after_any=first)
    assert first.wait(60) and second.wait(60)

    assert dibs.job_by_id(first.id) == first
    assert dibs.job_by_id("one") == first
    assert dibs.job_by_id("@") == second
    assert [job.id for job in dibs.jobs(state="failed")] == [first.id]
    assert len({first, dibs.Job(first.id)}) == 1
    with pytest.raises(dibs.NoSuchJob):
        dibs.job_by_id(999)
    with pytest.raises(dibs.NoSuchJob):
        dibs.Job(999).wait(1)


def test_the_same_key_gives_the_same_job(here: World) -> None:
    assert dibs.submit("true", once="k", num_gpus=0) == dibs.submit("true", once="k", num_gpus=0)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("", "the command is empty"),
        ("  ", "the command is empty"),
        ([], "as a command"),
        ([1], "as a command"),
        (b"true", "as a command"),
        (17, "as a command"),
        (print, "cannot read a function as a command"),
        ("x" * 200_000, "Linux takes at most"),
        (["a\0b"], "NUL"),
    ],
)
def test_what_cannot_start_is_refused_before_it_has_a_number(here: World, command: object, words: str) -> None:
    with pytest.raises(dibs.BadInput, match=words):
        dibs.submit(command)  # type: ignore[arg-type]

    assert not here.state.exists()  # not even a daemon


def test_a_name_that_is_a_reference_is_refused(here: World) -> None:
    with pytest.raises(dibs.BadInput, match="cannot use '@' as a name"):
        dibs.submit("true", name="@")


def test_what_could_never_run_is_refused_by_the_daemon(here: World) -> None:
    with pytest.raises(dibs.BadInput, match="it wants 9 GPUs"):
        dibs.submit("true", num_gpus=9)


def test_many_threads_may_submit_and_wait_at_once(here: World) -> None:
    results: list[int] = []

    def work(number: int) -> None:
        results.append(dibs.submit(f"exit {number % 2}", num_gpus=0).wait(60) and number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert sorted(results) == list(range(1, 9))


def test_a_fork_asks_on_a_connection_of_its_own(here: World) -> None:
    job = dibs.submit("echo hello", num_gpus=0)
    job.result(60)

    pid = os.fork()
    if not pid:
        os._exit(0 if all(job.log() == "hello\n" for _ in range(20)) else 1)
    seen = [job.log() for _ in range(20)]

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert set(seen) == {"hello\n"}


def test_waiting_stands_a_daemon_that_dies(here: World) -> None:
    fence = here.folder / "go on"
    job = dibs.submit('until [ -e "go on" ]; do sleep 0.05; done', num_gpus=0)
    over: list[int] = []
    waiter = threading.Thread(target=lambda: over.append(job.result()))
    waiter.start()
    wait_until(lambda: job.state == "running")

    pid = here.daemon_pid()
    assert pid is not None
    os.kill(pid, 9)
    fence.touch()
    waiter.join(60)

    assert over == [0]


# -- runners ----------------------------------------------------------------------------------------------


def test_words_of_a_runner_stand_before_the_command(here: World) -> None:
    line = dibs.submit("echo $0", num_gpus=0, runner=["sh", "-euc"])
    words = dibs.submit(["a b", "c"], num_gpus=0, runner=["printf", "<%s>"])

    assert (line.result(60), words.result(60)) == (0, 0)
    assert words.log() == "<a b><c>"
    assert line.log() == "sh\n"
    assert (line.command, words.command) == ("echo $0", "'a b' c")


def test_a_function_can_take_the_place_of_the_shell(here: World) -> None:
    def backwards(command: object) -> int:
        assert isinstance(command, str)
        print(command[::-1])
        return len(command)

    job = dibs.submit("abc", num_gpus=0, runner=backwards)

    with pytest.raises(dibs.JobFailed, match="exit code 3"):
        job.result(60)
    assert job.log() == "cba\n"


def test_a_runner_can_be_named_by_its_module(here: World) -> None:
    Path("ours.py").write_text("import subprocess\ndef run(command): return subprocess.call(command)\n")
    sys.path.insert(0, "")
    try:
        job = dibs.submit(["sh", "-c", "echo by $0", "ours"], num_gpus=0, runner="ours:run")
    finally:
        sys.path.remove("")

    assert job.result(60) == 0
    assert job.log() == "by ours\n"


@pytest.mark.parametrize("runner", [[], "bash", [""], 7, ["a", 1], b"x"])
def test_what_is_no_runner_is_refused(here: World, runner: object) -> None:
    with pytest.raises(dibs.BadInput, match="as a runner"):
        dibs.submit("true", runner=runner)  # type: ignore[arg-type]


def test_calls_of_functions_are_for_our_eyes_only(here: World) -> None:
    job = dibs.submit("abc", num_gpus=0, hold=True, runner=lambda command: 0)

    folder = Path(job.about["words"][-1])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
