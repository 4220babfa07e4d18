"""`dibs log`: each stream to its own, harmless, also while it grows, also before it begins."""

import os
import threading
import time

import pytest

from cli.fake_daemon import FakeDaemon, a_job, listening
from stories.outside import wait_until


def write(daemon, number, stdout=b"", stderr=b"", state="running", **more):
    daemon.jobs[number] = a_job(number, state, **more)
    daemon.logs[number, "stdout"] = stdout
    daemon.logs[number, "stderr"] = stderr


def test_each_stream_goes_to_its_own(daemon, typed):
    write(daemon, 17, b"loss 0.1\n", b"a warning\n", "succeeded")

    done = typed("log", "17")

    assert (done.status, done.stdout, done.stderr) == (0, "loss 0.1\n", "a warning\n")


def test_err_is_its_stderr_on_stdout(daemon, typed):
    write(daemon, 17, b"loss 0.1\n", b"a warning\n", "succeeded")

    done = typed("log", "--err", "17")

    assert (done.stdout, done.stderr) == ("a warning\n", "")


def test_a_job_with_a_file_of_its_own_is_shown_once(daemon, typed):
    write(daemon, 17, b"all of it\n", b"all of it\n", "succeeded", output="/data/out.txt")

    done = typed("log", "17")

    assert (done.stdout, done.stderr) == ("all of it\n", "")


def test_lines_are_the_last_ones(daemon, typed):
    write(daemon, 17, b"1\n2\n3\n4\n", state="succeeded")

    assert typed("log", "--lines", "2", "17").stdout == "3\n4\n"


def test_more_than_one_answer_holds_is_shown_whole(daemon, typed):
    lines = b"".join(b"line %d\n" % number for number in range(300_000))
    write(daemon, 17, lines, state="succeeded")

    assert typed("log", "17").stdout.encode() == lines


def test_what_a_terminal_would_obey_is_taken_out_unless_raw(daemon, typed):
    write(daemon, 17, b"\x1b]52;c;aGk=\x07\x1b[31mred\x1b[0m\x1b[2J 10%\r 20%\n", state="succeeded")

    assert typed("log", "17").stdout == " 20%\n"
    assert typed("log", "--raw", "17").stdout == "\x1b]52;c;aGk=\x07\x1b[31mred\x1b[0m\x1b[2J 10%\r 20%\n"


@pytest.mark.parametrize("hole", [2_000, 1 << 20, (5 << 20) + 777])
def test_a_hole_is_named_once_and_what_is_around_it_is_kept(daemon, typed, hole):
    write(daemon, 17, b"begin\n" + b"\0" * hole + b"end\n", state="succeeded")

    assert typed("log", "17").stdout == "begin\n[... cut]\nend\n"
    assert len(daemon.queries("/v1/jobs/17/log")) < 60


def test_a_line_without_an_end_is_shown_at_the_end(daemon, typed):
    write(daemon, 17, b"no newline", state="failed")

    assert typed("log", "17").stdout == "no newline"


@pytest.mark.parametrize("piece", ["x", "€", "🙂", "\x1b[31m€\x1b[0m"])
def test_one_line_of_megabytes_comes_out_as_it_was(daemon, typed, piece):
    line = ("a" + piece * (2_200_000 // len(piece.encode()))).encode()  # two whole answers and a part of one
    write(daemon, 17, line, state="succeeded")

    assert typed("log", "17").stdout.encode() == line


def test_of_an_endless_progress_bar_the_last_state_is_shown(daemon, typed):
    bar = b"".join(b"\r%6d of 300000" % number for number in range(300_000))
    write(daemon, 17, b"begin\n" + bar + b"\nend\n", state="succeeded")

    assert typed("log", "17").stdout == "begin\n299999 of 300000\nend\n"


def test_before_it_starts_there_is_nothing_and_that_is_said(daemon, typed):
    daemon.jobs[17] = a_job(17)
    daemon.reasons[17] = "waits for a GPU: 0 is held by job 9"

    done = typed("log", "17")

    assert done.status == 1
    assert "waits for a GPU: 0 is held by job 9" in done.stderr
    assert "`dibs log -f 17`" in done.stderr


def test_a_job_that_was_cancelled_before_its_start_wrote_nothing_and_may_be_queued_again(daemon, typed):
    daemon.jobs[17] = a_job(17, "cancelled", attempts=0)

    done = typed("log", "17")

    assert done.status == 1
    assert done.stderr == (
        "dibs: error: job 17 has written nothing: it was cancelled before it started\n"
        "  `dibs retry 17` queues it again\n"
    )


def test_following_waits_for_the_start_says_why_once_and_ends_with_the_job(daemon, typed):
    daemon.jobs[17] = a_job(17)
    daemon.reasons[17] = "waits for a GPU"

    def live():
        wait_until(lambda: len(daemon.queries("/v1/jobs/17/why")) > 2)
        write(daemon, 17, b"one\n")
        wait_until(lambda: any(query.get("offset") == "4" for query in daemon.queries("/v1/jobs/17/log")))
        write(daemon, 17, b"one\ntwo\n", state="failed")

    other = threading.Thread(target=live)
    other.start()
    done = typed("log", "-f", "17")
    other.join()

    assert (done.status, done.stdout) == (0, "one\ntwo\n")
    assert done.stderr == "dibs: job 17 waits for a GPU\ndibs: job 17 failed (exit 1) after 3m05s\n"


def test_following_goes_on_with_the_next_attempt(daemon, typed):
    write(daemon, 17, b"first\n")

    def live():
        wait_until(lambda: any(query.get("offset") == "6" for query in daemon.queries("/v1/jobs/17/log")))
        write(daemon, 17, b"first\n", attempts=2)  # the fake has the same text for every attempt
        wait_until(lambda: any(query.get("attempt") == "2" for query in daemon.queries("/v1/jobs/17/log")))
        daemon.jobs[17] = a_job(17, "succeeded", attempts=2)

    other = threading.Thread(target=live)
    other.start()
    done = typed("log", "-f", "17")
    other.join()

    assert done.stdout == "first\nfirst\n"
    assert done.stderr == "dibs: attempt 2 of job 17\n"


def test_following_outlives_a_restart_of_the_daemon(socket, typed):
    first, second = FakeDaemon(), FakeDaemon()
    write(first, 17, b"one\n")
    write(second, 17, b"one\ntwo\n", state="succeeded")
    is_done = threading.Event()

    def restart():
        with listening(first, socket):
            wait_until(lambda: any(query.get("offset") == "4" for query in first.queries("/v1/jobs/17/log")))
        time.sleep(0.6)  # it is away for a moment, in which nothing happens that could be waited for
        with listening(second, socket):
            is_done.wait(30)

    other = threading.Thread(target=restart)
    other.start()
    wait_until(lambda: os.path.exists(socket))
    done = typed("log", "-f", "17")
    is_done.set()
    other.join()

    assert (done.status, done.stdout) == (0, "one\ntwo\n")
    assert "the daemon is away" in done.stderr


def test_a_job_that_there_is_not_is_said(daemon, typed):
    done = typed("log", "99")

    assert (done.status, done.stderr) == (1, "dibs: error: cannot find job 99\n")


def test_several_jobs_and_arrays_are_shown_under_headings(daemon, typed):
    daemon.names = {"17_": [17, 18]}
    write(daemon, 17, b"one\n", state="succeeded", name="train")
    write(daemon, 18, b"two\n", state="succeeded")
    daemon.jobs[19] = a_job(19, "cancelled", attempts=0)

    done, raw = typed("log", "17_", "19"), typed("log", "--raw", "17_")

    assert done.stdout == "==> job 17 (train) <==\none\n==> job 18 <==\ntwo\n"
    assert done.stderr == "dibs: job 19 has written nothing: it was cancelled before it started\n"
    assert (done.status, raw.stdout) == (0, "one\ntwo\n")


def test_every_attempt_is_shown_under_its_number(daemon, typed):
    write(daemon, 17, b"text\n", state="succeeded", attempts=2)

    done = typed("log", "--attempt", "all", "17")

    assert done.stdout == "==> job 17, attempt 1 <==\ntext\n==> job 17, attempt 2 <==\ntext\n"
    assert [query["attempt"] for query in daemon.queries("/v1/jobs/17/log")] == ["1", "1", "2", "2"]


def test_a_cancelled_job_is_said_to_be_queued_again_by_retry(daemon, typed):
    daemon.jobs[17] = a_job(17, "cancelled", attempts=0)

    done = typed("log", "17")

    assert (done.status, done.stderr.splitlines()[1]) == (1, "  `dibs retry 17` queues it again")


@pytest.mark.parametrize("attempt", ["0", "every", "-1", "99"])
@pytest.mark.parametrize("follow", [[], ["-f"]])
def test_what_is_no_attempt_is_refused(daemon, typed, attempt, follow):
    daemon.jobs[17] = a_job(17, "succeeded")

    done = typed("log", *follow, "--attempt", attempt, "17")

    assert (done.status, done.stdout) == (2, "")
    assert done.stderr.startswith("dibs: error: ")
    assert attempt == "99" or daemon.calls == []  # the daemon alone knows how many there were
