"""A signal before the time limit, on which a command saves its work."""

import signal
import sys
import textwrap

import pytest

from supervise.hands import Hands

USR1 = int(signal.SIGUSR1)
SOON = {"time_limit": 60.0, "checkpoint": [USR1, 58.0]}  # two seconds after the start: it listens by then
WAIT = "while :; do sleep 0.02; done"


@pytest.mark.parametrize("code", [0, 3])
def test_who_saves_and_leaves_is_checkpointed_whatever_its_exit_code(hands: Hands, code: int) -> None:
    attempt = hands.start(f"trap 'echo saved; exit {code}' USR1; {WAIT}", **SOON)

    record = hands.record(attempt)

    assert (record["code"], record["by"], record["checkpointed"]) == (code, "checkpoint", True)
    assert hands.log(attempt) == "saved\n"
    assert 1.9 < record["seconds"] < 50


def test_who_goes_on_after_the_signal_is_ended_at_the_limit_and_checkpointed(hands: Hands) -> None:
    attempt = hands.start(
        f"trap 'echo saved' USR1; trap 'echo asked; exit 4' TERM; {WAIT}",
        time_limit=4.0,
        checkpoint=[USR1, 2.0],
        grace=60.0,
    )

    record = hands.record(attempt)

    assert (record["code"], record["by"], record["checkpointed"]) == (4, "time", True)
    assert hands.log(attempt) == "saved\nasked\n"
    assert record["seconds"] >= 4.0


def test_who_ends_before_the_signal_has_simply_ended(hands: Hands) -> None:
    record = hands.run("exit 5", time_limit=60.0, checkpoint=[USR1, 1.0])

    assert (record["code"], record["by"]) == (5, "")
    assert "checkpointed" not in record


def test_without_a_time_limit_there_is_no_signal(hands: Hands) -> None:
    record = hands.run("sleep 0.2", checkpoint=[USR1, 60.0])

    assert (record["code"], record["by"]) == (0, "")


@pytest.mark.parametrize("word", ["stop", "kill"])
def test_who_is_stopped_after_the_signal_is_not_to_be_queued_again(hands: Hands, word: str) -> None:
    attempt = hands.start(f"trap 'echo saved' USR1; {WAIT}", **SOON)
    hands.turn_until(lambda: hands.log(attempt) == "saved\n")

    hands.tell(attempt, word)
    record = hands.record(attempt)

    assert record["by"] == "stop"
    assert "checkpointed" not in record


def test_who_is_stopped_before_the_signal_does_not_get_it(hands: Hands) -> None:
    attempt = hands.start(f"trap 'echo saved' USR1; trap '' TERM; touch up; {WAIT}", grace=3.0, **SOON)
    hands.turn_until((hands.workdir / "up").exists)

    hands.tell(attempt, "stop")
    record = hands.record(attempt)

    assert (record["by"], hands.log(attempt)) == ("stop", "")
    assert record["seconds"] > 2.0  # it was there when the signal would have come


def test_a_shell_without_a_trap_and_the_workers_of_a_program_are_not_disturbed(hands: Hands) -> None:
    """Only the program that listens gets it, though its worker has inherited the handler."""
    (hands.workdir / "train.py").write_text(
        textwrap.dedent(
            """
            import os, signal, sys, time
            def save(*_):
                print("worker" if os.getpid() == worker else "saved", flush=True)
                if os.getpid() != worker:
                    os.kill(worker, signal.SIGKILL)
                    sys.exit(7)
            worker = 0
            signal.signal(signal.SIGUSR1, save)
            worker = os.fork() or os.getpid()
            while True:
                time.sleep(1)
            """
        )
    )
    spec = {"time_limit": 60.0, "checkpoint": [USR1, 55.0]}  # an interpreter starts in less

    attempt = hands.start(f"sleep 0; {sys.executable} train.py; echo shell $?; exit 8", **spec)
    record = hands.record(attempt)

    assert hands.log(attempt) == "saved\nshell 7\n"
    assert (record["code"], record["by"], record["checkpointed"]) == (8, "checkpoint", True)


def test_where_no_program_listens_the_signal_has_its_own_meaning_for_the_command(hands: Hands) -> None:
    record = hands.run(["sleep", "100"], **SOON)

    assert (record["signal"], record["by"], record["checkpointed"]) == (USR1, "checkpoint", True)
    assert "its checkpoint signal, ended it: the program had no handler" in record["message"]


def test_who_ignores_the_signal_and_ends_well_is_over(hands: Hands) -> None:
    """As an interpreter that ends, after all of its work: it was queued again, and did the same work again."""
    record = hands.run("trap '' USR1; sleep 3; true", **SOON)

    assert (record["code"], record["by"]) == (0, "")
    assert "checkpointed" not in record


def test_who_ignores_the_signal_until_the_limit_is_queued_again(hands: Hands) -> None:
    record = hands.run(f"trap '' USR1; {WAIT}", time_limit=3.0, checkpoint=[USR1, 2.0])

    assert (record["by"], record["checkpointed"]) == ("time", True)


def test_a_signal_of_another_kind_after_the_checkpoint_signal_is_not_taken_for_it(hands: Hands) -> None:
    record = hands.run(["bash", "-c", f"trap 'kill -SEGV $$' USR1; {WAIT}"], **SOON)

    assert (record["signal"], record["by"], record["message"]) == (signal.SIGSEGV, "checkpoint", "")


def test_a_spec_that_says_null_is_one_that_says_nothing(hands: Hands) -> None:
    record = hands.run("exit 6", time_limit=None, checkpoint=None, log_limit=None)

    assert (record["code"], record["by"]) == (6, "")
