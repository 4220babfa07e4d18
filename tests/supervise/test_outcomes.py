"""How a command ended, exactly."""

import os
import resource
import signal
from pathlib import Path

import pytest

from stories.outside import wait_until
from supervise.hands import Hands, is_alive


def test_every_exit_code_is_kept_exactly(hands: Hands) -> None:
    codes = [*range(0, 256, 7), 1, 2, 124, 125, 126, 127, 128, 129, 254, 255]
    attempts = [hands.start(f"exit {code}") for code in codes]

    records = [hands.record(attempt) for attempt in attempts]

    assert [record["code"] for record in records] == codes
    assert {record["signal"] for record in records} == {None}
    assert {record["by"] for record in records} == {""}


def test_every_signal_is_kept_exactly(hands: Hands) -> None:
    stopping = {signal.SIGCHLD, signal.SIGCONT, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
    ignored = {signal.SIGURG, signal.SIGWINCH}
    numbers = [*sorted(set(signal.Signals) - stopping - ignored), 40, 64]
    attempts = [hands.start(["python3", "-c", f"import os; os.kill(os.getpid(), {int(n)})"]) for n in numbers]

    records = [hands.record(attempt) for attempt in attempts]

    # Python itself ignores SIGPIPE and SIGXFSZ and turns SIGINT into an exit by the same signal.
    seen = {n: (record["code"], record["signal"]) for n, record in zip(numbers, records, strict=True)}
    for quiet in (signal.SIGPIPE, signal.SIGXFSZ):
        assert seen.pop(quiet) == (0, None)
    assert seen == {number: (None, number) for number in seen}


def test_a_core_dump_is_noted(hands: Hands) -> None:
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip("no core dumps may be written here")
    dumped = hands.run("ulimit -c unlimited; kill -ABRT $$")
    plain = hands.run("ulimit -c 0; kill -ABRT $$")

    assert (plain["signal"], plain["core"]) == (signal.SIGABRT, False)
    assert dumped["signal"] == signal.SIGABRT
    if not Path("/proc/sys/kernel/core_pattern").read_text().startswith("|"):
        assert dumped["core"] is True


def test_what_was_used_is_recorded(hands: Hands) -> None:
    record = hands.run("for i in {1..20000}; do :; done")

    assert record["seconds"] > 0 and record["cpu"] > 0 and record["maxrss"] > 100_000
    assert record["ended"] >= record["began"]


def test_a_job_killed_from_outside_is_a_signal_and_not_lost(hands: Hands) -> None:
    attempt = hands.start(["sleep", "60"])

    os.kill(hands.running(attempt)["pid"], signal.SIGKILL)
    record = hands.record(attempt)

    assert (record["code"], record["signal"], record["by"]) == (None, signal.SIGKILL, "")


@pytest.mark.parametrize(
    "words, reason",
    [
        (["no-such-program"], "cannot start no-such-program: No such file or directory"),
        (["./not-executable"], "cannot start ./not-executable: Permission denied"),
        (["./bad-interpreter"], "cannot start ./bad-interpreter: No such file or directory"),
        (["."], "cannot start .: Permission denied"),
        (["./no-format"], "cannot start ./no-format: Exec format error"),
    ],
)
def test_what_cannot_start_is_a_start_error_with_a_sentence(hands: Hands, words: list[str], reason: str) -> None:
    (hands.workdir / "not-executable").write_text("#!/bin/sh\n")
    for name, text in (("bad-interpreter", "#!/no/such/interpreter\n"), ("no-format", "\x01\x02")):
        (hands.workdir / name).write_text(text)
        (hands.workdir / name).chmod(0o755)

    attempt = hands.start(words)
    record = hands.record(attempt)

    assert (record["by"], record["message"]) == ("start", reason)
    assert hands.log(attempt, "stderr") == f"dibs: {reason}\n"


def test_a_missing_folder_is_a_start_error(hands: Hands) -> None:
    record = hands.run(["true"], workdir="/no/such/folder")

    assert record["by"] == "start"
    assert record["message"] == "cannot enter its folder: No such file or directory: /no/such/folder"


def test_a_log_that_cannot_be_written_is_a_start_error(hands: Hands) -> None:
    record = hands.run(["true"], stdout="/no/such/folder/log")

    assert record["by"] == "start"
    assert "/no/such/folder/log" in record["message"]


def test_a_shim_serves_the_next_attempt_after_a_start_error(hands: Hands) -> None:
    hands.run(["no-such-program"])
    hands.run(["true"], workdir="/no/such/folder")

    assert hands.run("exit 3")["code"] == 3


def test_an_attempt_is_never_run_a_second_time(hands: Hands) -> None:
    attempt = hands.start("echo once >> ran; exit 4")
    first = hands.record(attempt)

    again = hands.backend
    done: list[int] = []
    from dibs.supervise import folder

    record = os.open(f"{attempt.folder}/record", os.O_RDWR)
    again._launcher.hand_over(f"{hands.root}/control", [record], lambda answer: done.append(1))
    os.close(record)
    hands.turn_until(lambda: done)

    assert (hands.workdir / "ran").read_text() == "once\n"
    assert folder.facts(attempt.folder).exit_record == first


def test_the_shim_is_there_for_the_next_attempt_and_goes_with_the_engine(hands: Hands) -> None:
    shims = {hands.run("true")["shim"] for _ in range(5)}

    hands.close()

    assert len(shims) == 1
    wait_until(lambda: not any(map(is_alive, shims)), show=lambda: shims)
    assert list((hands.root / "control").iterdir()) == []
