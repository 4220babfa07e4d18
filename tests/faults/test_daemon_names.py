"""Names, projects, tags and output are only text: they lead nowhere, command nothing and are no SQL."""

import re

import pytest

from daemon.daemon_process import DaemonProcess
from stories.outside import World, wait_until

# Everything that a terminal would obey; a line break of our own is none.
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

NAMES = (
    *("../../x", "/etc/passwd", ".", "..", "-rf", "a\nb", "%2e%2e", "%2e%2e%2fx", "con", "~root", "$(touch BAD)"),
    *(
        "\u202egnp.exe",
        "раураl",
        "a/b/c",
        "x" * 255,
        " ",
        "'; drop table jobs; --",
        "<img src=x onerror=alert(1)>",
    ),
    *("\x1b]52;c;aGk=\x07", "\x1b[2J\x1b]0;title\x07", "\r\rover", "{0}", "%s%n", "NaN"),
)
REFERENCES = ("1", "@", "3-9")  # refused as names; a project or a tag may be called so


def test_no_name_leads_out_of_its_folder_or_commands_a_terminal(world: World) -> None:
    world.run_daemon()
    outside = set(world.folder.parent.iterdir())
    first = DaemonProcess(world).add(
        *({"command": "echo hi", "name": name, "project": name, "tags": [name]} for name in NAMES),
        *({"command": "echo hi", "project": name, "tags": [name]} for name in REFERENCES),
    )
    names = [*NAMES, *("" for _ in REFERENCES)]
    jobs = list(range(first, first + len(names)))

    found = world.wait_for(*jobs)
    evil = [number for number, name in zip(jobs, names, strict=True) if OBEYED.search(name)]
    shown = [world.dibs("ls", "--all"), world.dibs("why", str(evil[0]))]
    shown += [world.dibs("info", str(number)) for number in evil]
    world.dibs("daemon", "stop")

    assert [job["name"] for job in found] == names
    made = {path for path in world.folder.parent.iterdir() if not re.match(r"std(out|err)\.\d+$", path.name)}
    assert made - outside <= {world.state, world.leases, world.folder.parent / "stdin"}
    assert not (world.folder / "BAD").exists()
    links = [path for path in (world.state / "results").rglob("*") if path.is_symlink()]
    assert sorted(int(path.name) for path in links) == jobs
    assert all(len(path.relative_to(world.state / "results").parts) == 3 for path in links)
    for one in shown:
        assert one.status == 0, one
        assert not OBEYED.search(one.stdout), one.stdout
    world.assert_nothing_is_left()


def test_what_a_job_wrote_commands_no_terminal_unless_it_may(world: World) -> None:
    world.run_daemon()
    evil = "\x1b]52;c;aGk=\x07\x1b]0;title\x07\x1b[2J\x1b[6n\x9b5n\rover\x08\x08\x00\udcff"
    (world.folder / "evil").write_bytes(evil.encode("utf-8", "surrogateescape"))
    job = world.add("--", "cat evil; cat evil >&2; exit 1")
    world.wait_for(job)

    shown = world.dibs("log", str(job))
    raw = world.dibs("log", "--raw", str(job))
    world.dibs("daemon", "stop")

    assert not OBEYED.search(shown.stdout + shown.stderr), shown
    assert raw.stdout == evil.replace("\r", "\n")  # as a text file is read
    world.assert_nothing_is_left()


SQL = "'; drop table jobs; --"


def test_sql_is_only_text_in_everything_that_people_type(world: World) -> None:
    world.run_daemon()
    job = world.add(
        *(
            "--hold",
            "-J",
            SQL,
            "-P",
            SQL,
            "--tag",
            SQL,
            "--once",
            SQL,
            "--env",
            f"A={SQL}",
            "--gpu-type",
            "",
            "--",
            SQL,
        )
    )

    by = [world.dibs("ls", "--ids", option, SQL) for option in ("-J", "-P", "--tag")]
    refused = [world.dibs("ls", option, SQL) for option in ("--state", "--since", "--array", "--cursor")]
    found = [world.dibs("why", SQL), world.dibs("pause", "--project", SQL), world.dibs("clean", "-y", "-P", SQL)]
    again = world.dibs("add", "--parsable", "--once", SQL, "--", "true")

    assert [one.stdout for one in by] == [f"{job}\n"] * 3
    assert all(one.status == 2 for one in refused), refused
    assert [one.status for one in found] == [0, 0, 0], found
    assert again.stdout == f"{job}\n"
    assert world.client().job(job)["name"] == SQL
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


@pytest.mark.parametrize("broken", ["a file of one's own", "no such disk"])
def test_a_link_that_cannot_be_made_keeps_no_job_from_running(world: World, broken: str) -> None:
    if broken == "no such disk":
        world.environ["DIBS_RESULTS_FOLDER"] = "/proc/nowhere"
    own = world.state / "results/default/job/1"
    own.mkdir(parents=True)
    world.run_daemon()

    job = world.add("--", world.ledger.job("only"))
    over = wait_until(lambda: (found := world.client().job(job))["state"] == "succeeded" and found)

    assert over["attempts"] == 1
    assert own.is_dir() and not own.is_symlink()
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()
