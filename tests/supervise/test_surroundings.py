"""What a command finds around itself: exactly what was asked for."""

import fcntl
import os
import signal
from pathlib import Path

from dibs.backends.protocol import AttachedStreams
from dibs.supervise.command import Environment, environment_of
from supervise.hands import Hands, is_locked


def test_the_environment_is_exact_also_where_it_is_no_utf8(hands: Hands) -> None:
    hands.environment = {"PATH": os.environ["PATH"], "B\udcffD": "v\udcfe€\n=", "EMPTY": ""}

    text = hands.output(["env", "-0"], env={"GPU": "cuda0", "EMPTY": "no more"})

    found = dict(entry.split("=", 1) for entry in text.rstrip("\0").split("\0"))
    assert found == hands.environment | {"GPU": "cuda0", "EMPTY": "no more"}


def test_what_is_only_of_the_job_around_it_is_not_inherited() -> None:
    run = {"WANDB_RUN_ID": "dibs-3-1-ab12", "WANDB_SWEEP_ID": "dibs-3", "WANDB_SWEEP_PARAM_PATH": "/3.yaml"}
    trial = {"DIBS_SWEEP": "3", "DIBS_TRIAL": "1", "DIBS_CONTINUES": "0", "DIBS_POPULATION": "4"}
    around = {"DIBS_CHECKPOINT_DIR": "/checkpoints/1", "DIBS_CHECKPOINT_SIGNAL": "10"} | trial | run
    own = {"A": "1", "WANDB_RUN_ID": "mine"}

    assert environment_of({"env": {}}, Environment(own | around)) == {b"A": b"1"}
    assert environment_of({"env": around}, Environment({})).keys() == {os.fsencode(name) for name in around}
    assert environment_of({"env": {}}, Environment(trial | own)) == {b"A": b"1", b"WANDB_RUN_ID": b"mine"}


def test_words_are_exact_also_where_they_are_no_utf8(hands: Hands) -> None:
    assert hands.output(["printf", "%s|", "a b", "", "$x", "\udcff"]) == "a b||$x|\udcff|"


def test_a_program_is_looked_for_in_the_jobs_own_path(hands: Hands) -> None:
    tools = hands.workdir / "tools"
    tools.mkdir()
    (tools / "my-tool").write_text("#!/bin/sh\necho mine\n")
    (tools / "my-tool").chmod(0o755)

    without = hands.run(["my-tool"])
    text = hands.output(["my-tool"], env={"PATH": f"{tools}:{os.environ['PATH']}"})

    assert without["by"] == "start"
    assert text == "mine\n"


def test_the_folder_and_the_umask_are_the_jobs_own(hands: Hands) -> None:
    (hands.workdir / "here").mkdir()

    text = hands.output("pwd; umask; touch made", workdir=str(hands.workdir / "here"), umask=0o027)

    assert text == f"{hands.workdir}/here\n0027\n"
    assert (hands.workdir / "here/made").stat().st_mode & 0o777 == 0o640


def test_stdin_is_empty(hands: Hands) -> None:
    assert hands.output("cat; readlink /proc/self/fd/0") == "/dev/null\n"


def test_stdin_is_what_was_attached(hands: Hands) -> None:
    reading, writing = os.pipe()
    attempt = hands.start(["cat"], attached=AttachedStreams(stdin=reading))
    os.close(reading)
    os.write(writing, b"hello")
    os.close(writing)

    hands.record(attempt)

    assert hands.log(attempt) == "hello"


def test_both_streams_may_go_to_one_file(hands: Hands) -> None:
    log = str(hands.workdir / "log")

    hands.run("echo a; echo b >&2; echo c", stdout=log, stderr=log)

    assert Path(log).read_text() == "a\nb\nc\n"


def test_output_is_appended(hands: Hands) -> None:
    log = hands.workdir / "log"
    log.write_text("before\n")

    hands.run("echo after", stdout=str(log))

    assert log.read_text() == "before\nafter\n"


def test_no_descriptor_reaches_the_command_but_its_leases(hands: Hands) -> None:
    """A shim that has served others before has had more of them open."""
    leases = [os.open(hands.workdir / f"lease{number}", os.O_RDWR | os.O_CREAT) for number in range(3)]
    hands.run("true")
    seen = "for fd in /proc/$$/fd/*; do basename -z \"$(readlink $fd)\"; done | tr '\\0' '\\n' | sort | xargs"

    plain = hands.output(["bash", "-c", seen])
    with_leases = hands.output(["bash", "-c", seen], leases=leases)
    plain_again = hands.output(["bash", "-c", seen])

    assert plain == plain_again == "null stderr stdout\n"
    assert with_leases == "lease0 lease1 lease2 null stderr stdout\n"


def test_a_lease_is_held_by_the_command_and_free_at_its_end(hands: Hands) -> None:
    path = hands.workdir / "lease"
    lease = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lease, fcntl.LOCK_EX)
    attempt = hands.start("touch up; until test -e go; do sleep 0.01; done", leases=[lease])
    os.close(lease)
    hands.turn_until((hands.workdir / "up").exists)

    held = is_locked(path)
    (hands.workdir / "go").touch()
    hands.record(attempt)

    assert held
    assert not is_locked(path)


def test_signals_have_their_default_meaning(hands: Hands) -> None:
    """Python ignores SIGPIPE; a job must not: `yes | head -1` would never end."""
    text = hands.output("grep -E 'Sig(Ign|Blk)' /proc/self/status; yes | head -1")

    ignored, blocked = (int(line.split()[1], 16) for line in sorted(text.splitlines()[:2], reverse=True))
    assert text.endswith("y\n")
    assert (blocked | ignored) & 0x7FFFFFFF == 0, text  # above them are the C library's own


def test_a_command_has_a_session_of_its_own(hands: Hands) -> None:
    attempt = hands.start(["sleep", "60"])
    record = hands.running(attempt)

    session, group = os.getsid(record["pid"]), os.getpgid(record["pid"])
    hands.tell(attempt, "kill")
    hands.record(attempt)

    assert session == group == record["pid"]
    assert os.getsid(record["shim"]) == record["shim"]


def test_kill_0_in_a_job_does_not_hurt_its_supervisor(hands: Hands) -> None:
    record = hands.run("kill -KILL 0")
    after = hands.run("exit 5")

    assert record["signal"] == signal.SIGKILL
    assert (after["code"], after["shim"]) == (5, record["shim"])


def test_a_very_long_folder_is_no_problem(tmp_path: Path) -> None:
    """The record is small; a path of 200 letters that JSON writes with six characters each is not."""
    root = tmp_path / ("я" * 100) / ("ж" * 100)
    root.mkdir(parents=True)
    hands = Hands(root)

    attempt = hands.start(["sleep", "60"])
    hands.running(attempt)
    hands.tell(attempt, "stop")
    record = hands.record(attempt)
    hands.close()

    assert record["signal"] == signal.SIGTERM


def test_a_variable_that_is_set_only_where_it_is_missing(hands: Hands) -> None:
    hands.environment |= {"SET": "by the caller"}
    unless_set = {"SET": "no", "OWN": "no", "MISSING": "filled"}

    text = hands.output("echo $SET, $OWN, $MISSING", env={"OWN": "by the job"}, unless_set=unless_set)

    assert text == "by the caller, by the job, filled\n"


def test_a_bound_command_runs_on_its_cpus_and_the_next_one_anywhere(hands: Hands) -> None:
    allowed = os.sched_getaffinity(0)
    one = min(allowed)

    bound = hands.output("taskset -cp $$ | grep -o '[0-9,-]*$'; nproc", cpus=[one, 4000])
    next_ = hands.output("nproc")

    assert bound.split() == [str(one), "1"]
    assert int(next_) == len(allowed)


def test_a_command_is_not_bound_to_cpus_that_it_may_not_use(hands: Hands) -> None:
    attempt = hands.start("nproc", cpus=[4000, 4001])
    record = hands.record(attempt)

    assert record["code"] == 0
    assert int(hands.log(attempt)) == len(os.sched_getaffinity(0))
    assert hands.log(attempt, "stderr") == ("dibs: it is not bound: it may use none of the CPUs near its GPUs\n")
