"""`dibs ls`: a table for people, one object or bare numbers for programs."""

import json
import os
import re

import pytest

from cli.fake_daemon import a_job
from dibs.cli.ls import _shares
from dibs.cli.output import columns
from stories.outside import Ledger, World, wait_until
from stories.terminal import Session


def fill(daemon, *jobs):
    daemon.jobs = {job["id"]: job for job in jobs}


def test_what_runs_stands_above_what_waits_and_that_above_what_has_ended(daemon, typed):
    fill(daemon, a_job(1, "succeeded"), a_job(2, "queued"), a_job(3, "running"), a_job(4, "failed"))

    done = typed("ls")

    lines = [line.split()[:2] for line in done.stdout.splitlines() if line[0].isdigit()]
    assert lines == [["3", "running"], ["2", "queued"], ["4", "failed:"], ["1", "succeeded"]]
    assert done.status == 0


def test_the_reason_stands_under_those_that_are_next(daemon, typed):
    fill(daemon, *(a_job(number) for number in range(1, 6)))
    daemon.reasons = dict.fromkeys(range(1, 6), "waits for a GPU: 0 is held by job 9")

    done = typed("ls")

    assert done.stdout.count("  waits for a GPU: 0 is held by job 9\n") == 3
    assert len(daemon.queries("/v1/jobs/1/why")) == 1


def test_by_whom_and_since_when_a_job_is_suspended_stands_under_it(daemon, typed):
    still, moving = ({"phase": phase, "suspended_at": None} for phase in ("suspended", "suspending"))
    over = {"phase": "over", "suspended_at": "2026-11-15T12:01:00Z"}
    fill(
        daemon,
        a_job(1, "suspended", suspension=still),
        a_job(2, "running", suspension=moving),
        a_job(3, "running", suspension=over),
    )
    daemon.reasons = {1: "is suspended by you since 14:02", 2: "it is being suspended by you", 3: "never asked"}

    lines = typed("ls").stdout.splitlines()

    assert [line.split()[0:2] for line in lines[1:]] == [
        ["3", "running"],
        ["2", "running"],
        ["it", "is"],
        ["1", "suspended"],
        ["is", "suspended"],
    ]
    assert not daemon.queries("/v1/jobs/3/why")


def test_why_the_last_ones_failed_stands_under_them_where_that_is_known(daemon, typed):
    told = {"cause": "import-error", "message": "ModuleNotFoundError: No module named 'torch'"}
    fill(daemon, a_job(1, "failed"), *(a_job(number, "failed", **told) for number in range(2, 8)))

    done = typed("ls")

    sentence = "  No module named 'torch': is the environment active where dibs was called?\n"
    assert done.stdout.count(sentence) == 3
    assert done.stdout.count("failed: import-error") == 6
    assert done.stdout.count("failed: exit 1") == 1


def test_of_a_long_message_the_beginning_is_shown_and_the_advice_behind_it(daemon, typed):
    said = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB." + " GPU 0 has none." * 20
    fill(daemon, a_job(1, "failed", cause="gpu-oom", message=said))

    (shown,) = [line for line in typed("ls").stdout.splitlines() if "CUDA" in line]

    assert shown.startswith("  torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    assert "…: a smaller batch; " in shown
    assert len(shown) < 160
    assert said.rstrip(".") in typed("info", "1").stdout
    assert json.loads(typed("ls", "--json").stdout)["jobs"][0]["message"] == said


def test_a_job_that_was_told_to_end_is_ending_until_it_has_ended(daemon, typed):
    fill(daemon, a_job(1, "running", is_ending=True), a_job(2, "running"))

    listed, told = typed("ls"), typed("why", "1")

    lines = [line.split()[:2] for line in listed.stdout.splitlines() if line[0].isdigit()]
    assert lines == [["2", "running"], ["1", "ending"]]
    assert told.stdout.endswith(", and was told to end\n")
    assert "state       ending" in typed("info", "1").stdout


def test_the_progress_has_a_column_where_a_job_reports_it(daemon, typed):
    fill(daemon, a_job(1, "running", progress=0.45, ends_at="2099-11-15T12:00:00.000Z"), a_job(2, "queued"))
    with_it = typed("ls").stdout.splitlines()
    fill(daemon, a_job(1, "running"), a_job(2, "running", progress=0.0, ends_at="2020-01-01T00:00:00Z"))
    late = typed("ls").stdout
    fill(daemon, a_job(1, "running"), a_job(2, "queued"))

    assert re.search(r"time +progress +command", with_it[0])
    assert re.search(r"  ████░░░░░░ 45 %, \d+d\d+h left  python train.py", with_it[1])
    assert re.search(r"  -  +python train.py", with_it[2])
    assert re.search(r" 0 %  +python", late) and "left" not in late
    assert "progress" not in typed("ls").stdout


def test_a_page_says_how_many_more_there_are_and_how_to_see_them(daemon, typed):
    fill(daemon, *(a_job(number, "succeeded") for number in range(1, 31)), a_job(31), a_job(32, "running"))

    done = typed("ls", "--limit", "6")

    assert len(done.stdout.splitlines()) == 1 + 6 + 1  # a heading, and a reason under the one that waits
    assert done.stderr == "… 26 more that are over: `dibs ls --all`, --state, --limit\n"


def test_held_jobs_wait_behind_those_that_have_a_turn(daemon, typed):
    fill(daemon, a_job(1, "held"), a_job(2), a_job(3, "held"))

    done = typed("ls")

    assert [line.split()[0] for line in done.stdout.splitlines() if line[0].isdigit()] == ["2", "3", "1"]


def test_where_no_job_has_a_turn_that_is_said_though_there_are_jobs(daemon, typed):
    fill(daemon, a_job(1, "succeeded"))

    assert typed("ls", "--sort", "turn").stderr == "dibs: no job is queued\n"


def test_of_a_thousand_turns_the_rest_is_not_kept_silent(daemon, typed):
    fill(daemon, *(a_job(number) for number in range(1, 1500)))

    done = typed("ls", "--ids", "--sort", "turn")

    assert len(done.stdout.splitlines()) == 1000
    assert "the first 1000 in turn, and not all" in done.stderr


def test_all_shows_everything_newest_first(daemon, typed):
    fill(daemon, *(a_job(number, "succeeded") for number in range(1, 1203)))

    done = typed("ls", "--all")

    numbers = [int(line.split()[0]) for line in done.stdout.splitlines() if line[0].isdigit()]
    assert numbers == list(range(1202, 0, -1))
    assert done.stderr == ""


def test_filters_go_to_the_daemon_in_its_own_words(daemon, typed):
    words = ["--state", "waiting,failed", "--project", "a", "--user", "ann", "--name", "x", "--tag", "t"]

    done = typed("ls", *words, "--since", "2026-11-15", "--array", "17_", "--sort", "turn")

    assert daemon.queries("/v1/jobs") == [
        {
            "project": "a",
            "user": "ann",
            "since": "2026-11-15T00:00:00Z",
            "name": "x",
            "tag": "t",
            "array": "17",
            "state": "queued,submitted,held,failed",
            "order": "turn",
            "limit": "100",
        }
    ]
    assert done.stderr == "dibs: no job matches\n"


@pytest.mark.parametrize(
    "words",
    [("--state", "sleeping"), ("--since", "soon"), ("--limit", "0"), ("--limit", "-1"), ("--array", "x")],
)
def test_what_cannot_be_meant_is_said_in_one_sentence(daemon, typed, words):
    done = typed("ls", *words)

    assert done.status == 2
    assert done.stderr.startswith("dibs: error: ")
    assert daemon.calls == []


def test_jobs_can_be_named(daemon, typed):
    fill(daemon, *(a_job(number) for number in range(1, 10)))
    daemon.names = {"train": [8]}

    done = typed("ls", "3-4", "train", "--ids")

    assert done.stdout == "8\n4\n3\n"


def test_numbers_are_all_that_match_not_a_page_of_them(daemon, typed):
    fill(daemon, *(a_job(number) for number in range(1, 2501)))

    done = typed("ls", "--ids", "--state", "queued")

    assert len(done.stdout.splitlines()) == 2500


def test_json_is_one_object_that_says_where_to_go_on(daemon, typed):
    fill(daemon, *(a_job(number) for number in range(1, 6)))

    first = json.loads(typed("ls", "--json", "--limit", "3").stdout)
    second = json.loads(typed("ls", "--json", "--limit", "3", "--cursor", first["cursor"]).stdout)

    assert list(first) == ["jobs", "cursor", "counts"]
    assert [job["id"] for job in first["jobs"]] == [5, 4, 3]
    assert ([job["id"] for job in second["jobs"]], second["cursor"]) == ([2, 1], None)
    assert first["jobs"][0] == a_job(5)
    assert first["counts"]["queued"] == 5


def test_json_of_all_is_one_object_too(daemon, typed):
    fill(daemon, *(a_job(number) for number in range(1, 2002)))

    found = json.loads(typed("ls", "--json", "--all").stdout)

    assert (len(found["jobs"]), found["cursor"]) == (2001, None)


def test_json_of_nothing_is_an_object(daemon, typed):
    assert json.loads(typed("ls", "--json").stdout)["jobs"] == []


def test_a_hostile_name_is_shown_and_not_obeyed(daemon, typed):
    evil = "\x1b]52;c;aGk=\x07\x1b[2J\u202egnp.exe\nx\udcff"
    fill(daemon, a_job(1, name=evil, command=evil, project=evil))

    done = typed("ls")

    heading, line = done.stdout.splitlines()[:2]
    assert line.isprintable() and heading.startswith("job")
    assert "\\x1b]52" in line and "\\u202e" in line and "\\xff" in line
    assert len(done.stdout.splitlines()) == 3


def test_a_task_of_an_array_is_called_as_it_can_be_typed(daemon, typed):
    fill(daemon, a_job(20, array={"id": 17, "task": 4, "most": None}))

    done = typed("ls")

    assert done.stdout.splitlines()[1].startswith("17_4 ")


def test_wide_letters_keep_the_columns_straight(daemon, typed):
    fill(daemon, a_job(1, name="训练"), a_job(2, name="train"))

    lines = typed("ls").stdout.splitlines()

    wide, narrow = (next(line for line in lines if line.startswith(number)) for number in "12")
    assert wide.index("python") + 2 == narrow.index("python")


def test_an_empty_queue_says_how_to_fill_it(daemon, typed):
    done = typed("ls")

    assert done.stdout == ""
    assert "dibs add" in done.stderr


def test_watching_needs_a_terminal(daemon, typed):
    done = typed("ls", "-w")

    assert done.status == 2
    assert "needs a terminal" in done.stderr


def test_without_a_daemon_it_says_so(socket, typed):
    done = typed("ls")

    assert done.status == 69
    assert done.stderr.startswith("dibs: error: there is no daemon")


@pytest.mark.parametrize("rows", [1, 2])
def test_where_there_is_hardly_any_room_what_runs_comes_first(rows):
    assert _shares((9, 9, 9), rows) == [1, rows - 1, 0]
    assert _shares((0, 9, 9), rows) == [0, 1, rows - 1]


@pytest.mark.parametrize("rows", range(3, 60))
def test_every_part_is_seen_and_no_more_than_the_page(rows):
    for wanted in ((0, 0, 0), (5, 5, 5), (100, 100, 100), (0, 100, 100), (100, 0, 100), (0, 0, 100), (1, 100, 0)):
        shares = _shares(wanted, rows)

        assert sum(shares) == min(rows, sum(wanted))
        assert all(share <= want for share, want in zip(shares, wanted, strict=True))
        assert all(share > 0 for share, want in zip(shares, wanted, strict=True) if want)


@pytest.fixture
def sit_down(daemon, tmp_path):
    """A person at a terminal, in front of the fake daemon."""
    sessions = []

    def start(*words, size=(24, 80), **env):
        world = World(tmp_path, {**os.environ, **env}, Ledger(tmp_path / "ledger"))
        sessions.append(Session(world, *words, size=size))
        return sessions[-1]

    yield start
    for session in sessions:
        session.close()


def lines_of(session):
    text = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", session.text).decode()
    return text.replace("\r", "").splitlines()


def some_jobs(daemon):
    evil = "\x1b[2J训练\u202e"
    daemon.jobs = {
        1: a_job(1, "failed", project="p", name="a long name of a job", command="x" * 500),
        2: a_job(2, "running", name=evil, command=evil),
        3: a_job(3, "queued"),
    }
    daemon.reasons = {3: "waits for 2 GPUs: GPU 1 is held by job 12 of another user until about 14:30"}


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 200])
def test_the_table_fits_the_terminal(daemon, sit_down, width):
    some_jobs(daemon)

    session = sit_down("ls", size=(24, width))

    assert session.wait() == 0
    lines = lines_of(session)
    assert len(lines) == 5
    assert [line.split()[0] for line in lines] == ["job", "2", "3", "waits", "1"]
    assert max(columns(line) for line in lines) <= width


def test_colours_are_for_terminals_that_want_them(daemon, sit_down):
    some_jobs(daemon)

    with_colours, without = sit_down("ls"), sit_down("ls", NO_COLOR="1")

    assert (with_colours.wait(), without.wait()) == (0, 0)
    assert b"\x1b[31m" in with_colours.text
    assert b"\x1b" not in without.text


def test_a_page_is_as_high_as_the_terminal(daemon, sit_down):
    daemon.jobs = {number: a_job(number, "succeeded") for number in range(1, 101)}

    session = sit_down("ls", size=(24, 80))

    assert session.wait() == 0
    lines = lines_of(session)
    assert 15 <= len(lines) <= 23
    assert lines[-1] == f"… {100 - len(lines) + 2} more that are over: `dibs ls --all`, --state, --limit"


def test_watching_shows_changes_and_leaves_with_ctrl_c_and_0(daemon, sit_down):
    daemon.jobs = {7: a_job(7)}

    session = sit_down("ls", "-w")
    session.expect("\x1b[?1049h")
    session.expect("queued")
    daemon.jobs = {7: a_job(7, "running")}
    session.expect("running")
    session.type("\x03")

    assert session.wait() == 0
    assert b"\x1b[?1049l" in session.text  # what was on the screen before is there again


@pytest.mark.parametrize("size", [(24, 20), (3, 20), (5, 200)])
def test_watching_never_writes_more_than_the_screen(daemon, sit_down, size):
    some_jobs(daemon)

    session = sit_down("ls", "-w", size=size)
    wait_until(lambda: len(daemon.queries("/v1/jobs")) > 5)  # three for each picture
    session.type("\x03")

    assert session.wait() == 0
    pictures = [picture.partition(b"\x1b[J")[0] for picture in session.text.split(b"\x1b[H")[1:]]
    assert pictures
    for picture in pictures:
        lines = re.sub(rb"\x1b\[[0-9;]*[a-zA-Z]", b"", picture).decode().split("\r\n")
        assert len(lines) <= size[0]
        assert all(columns(line) <= size[1] for line in lines)


def test_watching_follows_a_new_size_at_once(daemon, sit_down):
    daemon.jobs = {7: a_job(7, command="python " + "x" * 100)}

    session = sit_down("ls", "-w", size=(24, 40))
    session.expect("\x1b[J")
    session.resize(24, 180)

    session.expect("x" * 100)


def test_watching_says_when_the_daemon_is_away(daemon, sit_down):
    session = sit_down("ls", "-w")
    session.expect("no jobs yet")
    daemon.refusal = (503, "store-unusable", "the disk is full")

    session.expect("the disk is full")


def test_terminating_it_gives_the_screen_back(daemon, sit_down):
    session = sit_down("ls", "-w")
    session.expect("\x1b[J")

    os.kill(session.pid, 15)

    assert session.wait() == 143
    assert b"\x1b[?1049l" in session.text


def test_following_a_log_shows_a_progress_bar_as_it_grows(daemon, sit_down):
    daemon.jobs = {7: a_job(7, "running")}
    daemon.logs = {(7, "stdout"): b"begin\n 10%"}

    session = sit_down("log", "-f", "7")
    session.expect("begin\r\n")
    session.expect(" 10%")
    daemon.logs = {(7, "stdout"): b"begin\n 10%\r 20%"}
    session.expect("\r\x1b[K 20%")
    session.type("\x03")

    assert session.wait() == 0
    assert b"`dibs log -f 7` comes back to it" in session.text
