"""What people and scripts see."""

import json
import re
import subprocess

import pytest

from stories.outside import DIBS, World, wait_until


def test_four_chatty_jobs_tear_no_line(world: World) -> None:
    jobs = [
        f"for i in $(seq 200); do printf '{letter * 30}'; printf '{letter * 30} '; echo $i; done"
        for letter in "abcd"
    ]

    ended = world.dibs("run", "--gpus", "0,1,2,3", input="\n".join(jobs))

    lines = ended.stdout.splitlines()
    assert len(lines) == 800
    for tag, letter in zip("1234", "abcd", strict=True):
        mine = [line for line in lines if line.startswith(f"[{tag}] ")]
        assert mine == [f"[{tag}] {letter * 60} {number}" for number in range(1, 201)]


def test_a_job_is_tagged_with_its_name(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0", input="[name=tiny] echo out; echo err >&2")

    assert ended.stdout == "[tiny] out\n"
    assert "[tiny] err" in ended.said


@pytest.mark.parametrize(
    "gpus, shown", [("2,0", "2, 0"), ("0,0,1", "0 ×2, 1"), ("0+1,2+3", "0+1, 2+3"), ("0+1,0+1,2", "0+1 ×2, 2")]
)
def test_the_first_line_shows_slots_and_groups(world: World, gpus: str, shown: str) -> None:
    ended = world.dibs("run", "--gpus", gpus, input="true")

    assert f" on GPU {shown} (not checked: no GPU driver was found)" in ended.stderr


def test_raw_output_has_no_tags(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0", "--raw", input="echo out; echo err >&2")

    assert ended.stdout == "out\n"
    assert "err" in ended.said


def test_quiet_shows_failures_only(world: World) -> None:
    good = world.dibs("run", "--gpus", "0", "--quiet", input="echo out")
    bad = world.dibs("run", "--gpus", "0", "--quiet", input="echo reason >&2; false")

    assert (good.status, good.stdout, good.stderr) == (0, "", "")
    assert (bad.status, bad.stdout) == (1, "")
    assert "job 1 failed" in bad.stderr
    assert "    reason" in bad.stderr


def test_every_event_is_a_line_of_json(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0", "--json", input="[name=é] true\nexit 3\nkill -9 $$\nsleep \0 1")

    events = ended.events
    assert ended.status == 1
    assert [event["event"] for event in events if event.get("job") == 1] == ["queued", "started", "ended"]
    assert (events[0]["event"], events[0]["gpus"]) == ("run", [0])
    assert events[1].keys() >= {"at", "event", "job", "name", "command"}
    started = next(event for event in events if event["event"] == "started")
    assert started.keys() >= {"attempt", "gpus", "folder", "stdout", "stderr", "adopted"}
    outcomes = [event for event in events if event["event"] in ("ended", "refused")]
    keys = {"state", "exit_code", "signal", "cause", "message", "seconds"}
    assert all(event.keys() >= keys for event in outcomes)
    assert all(event["seconds"] in (None, round(event["seconds"] or 0, 3)) for event in outcomes)
    by_job = {event["job"]: (event["state"], event["exit_code"], event["signal"]) for event in outcomes}
    assert by_job == {
        1: ("succeeded", 0, None),
        2: ("failed", 3, None),
        3: ("failed", None, 9),
        4: ("failed", None, None),
    }
    assert events[-1]["event"] == "finished"
    assert (events[-1]["succeeded"], events[-1]["failed"], events[-1]["not_started"]) == (1, 3, 0)


def test_whoever_reads_the_first_event_only_hurts_nobody(world: World) -> None:
    world.write("jobs.txt", [world.ledger.job(number) for number in range(20)])

    shell = subprocess.run(
        ["bash", "-c", f'"{DIBS}" run --gpus 0 --json -f jobs.txt | head -1; echo ${{PIPESTATUS[0]}}'],
        cwd=world.folder,
        env=world.environ,
        capture_output=True,
        text=True,
        timeout=30,
    )

    event, status = shell.stdout.splitlines()
    assert json.loads(event)["event"] == "run"
    assert len(world.ledger.ended()) == 20
    assert "Exception" not in shell.stderr and "Traceback" not in shell.stderr
    assert status == "0"


def test_an_output_folder_holds_a_folder_per_job(world: World) -> None:
    world.write("jobs.txt", ["[name='../../x'] echo out; echo err >&2", "echo two; exit 4", "kill -TERM $$"])

    ended = world.dibs("run", "--gpus", "0", "-f", "jobs.txt", "--output-dir", "out")

    out = world.folder / "out"
    assert ended.status == 1
    assert sorted(path.name for path in out.iterdir()) == [".dibs", "job_1", "job_2", "job_3"]
    assert sorted(path.name for path in (out / "job_1").iterdir()) == ["SUCCESS", "info", "stderr", "stdout"]
    assert world.read("out/job_1/stdout") == "out\n"
    assert world.read("out/job_1/stderr") == "err\n"
    assert (out / "job_2/FAILURE").exists() and not (out / "job_2/SUCCESS").exists()
    info = dict(
        line.split(": ", 1) if ": " in line else (line.strip(":"), "")
        for line in world.read("out/job_2/info").splitlines()
    )
    assert (info["exit_code"], info["gpu"], info["command"]) == ("4", "0", "echo two; exit 4")
    assert "signal: 15" in world.read("out/job_3/info")


def test_a_retry_waits_longer_each_time_and_keeps_the_output_before_it(world: World) -> None:
    world.write("jobs.txt", ["echo try $DIBS_ATTEMPT; date +%s.%N >> times; test $DIBS_ATTEMPT = 3"])

    ended = world.dibs("run", "--gpus", "0", "-f", "jobs.txt", "--output-dir", "out", "--retries", "2")

    first, second, third = map(float, world.read("times").split())
    assert ended.status == 0, ended
    assert second - first > 0.9 and third - second > 1.9
    assert [world.read(f"out/job_1/stdout{n}") for n in (".1", ".2", "")] == ["try 1\n", "try 2\n", "try 3\n"]
    assert "it is tried again in 1.0s" in ended.stderr
    assert re.search(r"^1 +0 +0 \(3rd try\) ", ended.stderr, re.MULTILINE)


def test_the_table_at_the_end_shows_failures_first_with_their_last_lines(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0", input="true\nseq 9 >&2; exit 7\nkill -SEGV $$")

    said = ended.said
    head = next(number for number, line in enumerate(said) if re.match(r"job +GPU +exit +time +command", line))
    rows = [line.split()[:3] for line in said[head + 1 :] if not line.startswith(" ")]
    assert rows[:3] == [["2", "0", "7"], ["3", "0", "SIGSEGV"], ["1", "0", "0"]]
    assert said[head + 2 : head + 7] == [f"    {number}" for number in range(5, 10)]
    assert re.fullmatch(r"1 succeeded, 2 failed in .*", said[-2])


def test_the_table_at_the_end_has_the_last_numbers_of_the_jobs(world: World) -> None:
    lines = 'echo loss=0.5; echo "acc=0.25" >> "$DIBS_METRICS"; echo loss=0.125\ntrue'

    ended = world.dibs("run", "--gpus", "0", "--metric-pattern", r"loss=(?P<loss>\S+)", input=lines)

    assert ended.said[1].split()[4:6] == ["acc=0.25", "loss=0.125"]
    assert ended.said[0].split()[4] == "metrics"


def test_what_is_no_utf8_passes_through_exactly_and_is_shown_escaped(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0", input=b"printf '%s\\n' a\xffb\nfalse \xfe")

    assert ended.stdout == "[1] a\udcffb\n"
    assert "false \\xfe" in ended.stderr


def test_escapes_in_a_name_command_nobody(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0", input="[name='\x1b]0;x\x07'] false")

    assert "\x1b" not in ended.stderr and "\x07" not in ended.stderr


def test_one_command_is_passed_through_to_the_byte(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0", "--", "printf", "a\\0b\\nno newline")

    assert (ended.status, ended.stdout) == (0, "a\0b\nno newline")


def test_a_piece_of_a_line_of_one_command_is_shown_before_its_end(world: World) -> None:
    running = world.start(
        "run", "--gpus", "0", "--", "bash", "-c", "printf 'name? '; read x", stdin=subprocess.PIPE
    )

    wait_until(lambda: running.stdout == "name? ", show=lambda: running.stdout)
    running.say("me\n")

    assert running.wait().status == 0


def test_closed_streams_are_no_reason_to_fail(world: World) -> None:
    world.write("jobs.txt", [world.ledger.job(number) for number in range(3)])

    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        shell = world.start(f'exec "$0" run --gpus 0 -f jobs.txt {closed}', DIBS, program=("bash", "-c")).wait()
        assert shell.status == 0, (closed, shell)
        assert "Traceback" not in shell.stderr

    assert len(world.ledger.ended()) == 12


def test_only_stderr_is_closed_and_stdout_still_has_everything(world: World) -> None:
    shell = world.start('exec "$0" run --gpus 0 -f <(echo "echo out") 2>&-', DIBS, program=("bash", "-c")).wait()

    assert shell.stdout == "[1] out\n"


def test_a_closed_stdin_without_a_list_is_one_sentence(world: World) -> None:
    shell = world.start('exec "$0" run --gpus 0 <&-', DIBS, program=("bash", "-c")).wait()

    assert shell.status in (0, 2)
    assert "Traceback" not in shell.stderr
