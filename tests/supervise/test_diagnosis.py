"""Why a command failed, as far as that can be seen."""

import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs.supervise.logs import KernelKills, Log, diagnose, open_log
from stories.outside import fill, needs_root
from supervise.hands import Hands

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.mark.parametrize("stream", [1, 2])
def test_a_card_without_memory_is_named_from_either_stream(hands: Hands, stream: int) -> None:
    record = hands.run(f"echo before; echo '{OOM}' >&{stream}; echo after >&{stream}; exit 1")

    assert (record["code"], record["cause"], record["message"]) == (1, "gpu-oom", OOM)


def test_a_program_that_aborts_after_the_message_is_no_other_case(hands: Hands) -> None:
    record = hands.run("echo 'CUDA error: uncorrectable ECC error encountered' >&2; kill -ABRT $$")

    assert (record["signal"], record["cause"]) == (signal.SIGABRT, "gpu-fault")


@pytest.mark.parametrize("end", ["exit 0", "head -c 20000 /dev/zero; exit 1"])
def test_who_succeeds_or_said_it_long_ago_has_no_such_cause(hands: Hands, end: str) -> None:
    record = hands.run(f"echo '{OOM}'; {end}")

    assert "cause" not in record


@pytest.mark.parametrize("name", ["HUP", "INT", "TERM", "KILL"])
def test_who_is_killed_from_outside_says_so_and_by_whom_it_can_have_been(hands: Hands, name: str) -> None:
    record = hands.run(f"echo '{OOM}'; trap - INT; kill -{name} $$; sleep 60")

    user = pwd.getpwuid(os.geteuid()).pw_name
    assert record["cause"] == "killed"
    assert record["message"].startswith(f"SIG{name} ended it, and dibs did not send it: {user}")
    assert "root" in record["message"]


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGKILL])
def test_a_signal_that_was_sent_through_dibs_is_no_strangers(hands: Hands, number: signal.Signals) -> None:
    attempt = hands.start("touch up; exec sleep 60")
    hands.turn_until((hands.workdir / "up").exists)

    hands.tell(attempt, f"signal {int(number)}")
    record = hands.record(attempt)

    assert (record["signal"], record["cause"]) == (number, "killed")
    assert record["message"] == f"{number.name} was sent to it through dibs"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGUSR1])
def test_a_program_may_die_of_other_signals_by_itself(hands: Hands, number: signal.Signals) -> None:
    record = hands.run(f"ulimit -c 0; kill -{int(number)} $$; sleep 60")

    assert record["signal"] == number
    assert "cause" not in record


def test_where_the_kernels_kills_cannot_be_seen_it_may_have_been_the_kernel() -> None:
    found = {number: diagnose(None, number, [], kernel_killed=None) for number in (signal.SIGKILL, signal.SIGTERM)}

    assert "or the kernel for want of memory did" in str(found[signal.SIGKILL])
    assert "kernel" not in str(found[signal.SIGTERM])


@pytest.mark.parametrize(
    ("command", "cause", "said"),
    [
        ("{python} -c 'import nonesuch'", "import-error", "ModuleNotFoundError: No module named 'nonesuch'"),
        ("{python} -m nonesuch", "import-error", "No module named nonesuch"),
        (
            "echo 'x = (' > {folder}/a.py; {python} {folder}/a.py",
            "syntax-error",
            "SyntaxError: '(' was never",
        ),
        ("echo 'if true; then' > bad.sh; bash bad.sh", "syntax-error", "syntax error: unexpected end of file"),
        ('{python} -c \'open("/dev/full", "w").write("x" * 9999)\'', "disk-full", "No space left on device"),
        ("head -c 9999 /dev/zero > /dev/full", "disk-full", "No space left on device"),
        ("{python} -c 'import socket as s; s.create_server(s.create_server((\"\", 0)).getsockname())'", None, ""),
        (
            "{python} -c 'import socket as s; a = s.create_server((\"\", 0)); s.create_server(a.getsockname())'",
            "port-in-use",
            "Address already in use",
        ),
        ("{python} -c 'import nonesuch' || exit 3", None, ""),
    ],
)
def test_what_real_programs_say_when_something_is_missing_or_taken(
    hands: Hands, tmp_path: Path, command: str, cause: str | None, said: str
) -> None:
    record = hands.run(command.replace("{python}", sys.executable).replace("{folder}", str(tmp_path)))

    assert record.get("cause") == cause
    assert said in record["message"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """One megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@needs_root
@pytest.mark.parametrize(
    ("command", "cause"),
    [
        ("head -c 2m /dev/zero", "disk-full"),  # it fills the disk itself, and has no room to say so
        ("exit 3", None),
    ],
)
def test_output_on_a_full_disk_is_the_cause_though_no_log_can_say_so(
    hands: Hands, disk: Path, command: str, cause: str | None
) -> None:
    record = hands.run(command, stdout=str(disk / "log"), stderr=str(disk / "log"))

    assert record["code"] != 0
    assert record.get("cause") == cause
    assert record["message"] == (f"no space is left for its output in {disk}" if cause else "")


@needs_root
def test_an_error_in_the_log_is_the_cause_although_the_disk_is_full(hands: Hands, disk: Path) -> None:
    attempt = hands.start(
        f"echo '{OOM}'; touch up; until test -e go; do sleep 0.01; done; exit 1",
        stdout=str(disk / "log"),
        stderr=str(disk / "log"),
    )
    hands.turn_until((hands.workdir / "up").exists)

    fill(disk)
    (hands.workdir / "go").touch()

    assert hands.record(attempt)["cause"] == "gpu-oom"


def test_who_was_stopped_did_not_fail_by_itself(hands: Hands) -> None:
    attempt = hands.start(f"trap 'exit 1' TERM; echo '{OOM}'; touch up; while :; do sleep 0.02; done")
    hands.turn_until((hands.workdir / "up").exists)

    hands.tell(attempt, "stop")
    record = hands.record(attempt)

    assert (record["code"], record["by"]) == (1, "stop")
    assert "cause" not in record


def test_what_another_job_said_in_the_same_file_does_not_count(hands: Hands) -> None:
    log = hands.workdir / "log"
    log.write_text(f"{OOM}\n")

    record = hands.run("echo mine; exit 1", stdout=str(log), stderr=str(log))

    assert "cause" not in record


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(str(tmp_path / "stderr"))


@pytest.mark.parametrize(
    ("code", "number", "said", "cause"),
    [
        (None, signal.SIGKILL, "", "host-oom"),
        (137, None, "", "host-oom"),
        (1, None, "DataLoader worker (pid 12) is killed by signal: Killed.", "host-oom"),
        (1, None, "bash: line 1: 12 Killed   python train.py", "host-oom"),
        (1, None, "ValueError: not ours", None),
        (None, signal.SIGTERM, "Killed", "killed"),
        (None, signal.SIGSEGV, "", None),
    ],
)
def test_the_kernels_kill_is_claimed_only_where_something_of_the_command_was_killed(
    log: Log, code: int | None, number: int | None, said: str, cause: str | None
) -> None:
    os.write(log.fd, said.encode())

    found = diagnose(code, number, [log], kernel_killed=True)
    without = diagnose(code, number, [log], kernel_killed=False)
    os.close(log.fd)

    assert (found and found[0]) == cause
    assert (without and without[0]) == ("killed" if number in (signal.SIGKILL, signal.SIGTERM) else None)


@pytest.mark.parametrize("counter", ["low 0\nhigh 9\nmax 3\noom 2\noom_kill {}\n", "under_oom 0\noom_kill {}\n"])
def test_a_kill_is_seen_in_the_counters_of_both_kinds_of_cgroups(tmp_path: Path, counter: str) -> None:
    kills = KernelKills()
    kills._fd = os.open(tmp_path / "events", os.O_RDWR | os.O_CREAT)
    os.write(kills._fd, counter.format(4).encode())
    before = kills.look()
    same = kills.happened_since(before)

    os.pwrite(kills._fd, counter.format(5).encode(), 0)

    assert (same, kills.happened_since(before)) == (False, True)
    os.close(kills._fd)


def test_where_nothing_is_counted_nothing_is_claimed() -> None:
    kills = KernelKills()
    kills._fd = -1

    assert kills.look() == b""
    assert not kills.happened_since(b"")
