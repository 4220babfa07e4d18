"""The disks that Slurm's jobs write to: too much output, another root, one that does not answer, a full one."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.private_slurm import PrivateSlurm
from stories.on_slurm import HOLD, PATIENCE, Afar, afar
from stories.outside import World, fill, needs_root, wait_until

pytestmark = pytest.mark.parametrize("slurm", [{"kind": "h200"}], indirect=True, scope="module", ids=["h200"])

MUCH = "head -c 900000 /dev/urandom"


@pytest.fixture
def there(world: World, slurm: PrivateSlurm) -> Iterator[Afar]:
    with afar(world, slurm) as one:
        yield one


@pytest.fixture
def root(there: Afar) -> Path:
    """What the nodes see, apart from the queue's folder. Another queue has jobs there, too."""
    place = there.world.folder.parent / "shared"
    neighbour = place / "q00000000" / "attempts" / "0" / "1.1"
    neighbour.mkdir(parents=True)
    (neighbour / "stdout").write_bytes(os.urandom(3_000_000))
    there.world.environ["DIBS_SLURM_ROOT"] = str(place)
    return place


def folder(there: Afar, job: int) -> Path:
    return Path(there.attempt(job)["folder"])


def neighbours(root: Path) -> list[str]:
    """What the other queue has."""
    return [path.name for path in (root / "q00000000/attempts/0/1.1").iterdir()]


# -- too much of it ----------------------------------------------------------------------------------------


def test_the_oldest_output_goes_from_a_root_of_its_own_and_never_that_of_another_queue(
    there: Afar, root: Path
) -> None:
    there.daemon(env={"DIBS_KEEP_LOGS": "1M"})
    old = there.add("--", f"{MUCH}; echo x > model.pt")
    there.wait_for(old)
    new = there.add("--", MUCH)
    there.wait_for(new)

    there.world.client().clean(older_seconds=3600)

    gone, kept = folder(there, old), folder(there, new)
    assert gone.is_relative_to(root)
    assert (gone / "output-removed").exists() and not (gone / "stdout").exists()
    assert (gone / "record").exists()
    assert (kept / "stdout").stat().st_size == 900_000
    said = there.world.dibs("log", str(old))
    assert f"the output of job {old} was removed to make room" in said.stderr
    assert neighbours(root) == ["stdout"]


# -- another root ------------------------------------------------------------------------------------------


def test_what_jobs_left_in_an_earlier_root_is_cleaned_away_and_counts(there: Afar, root: Path) -> None:
    daemon = there.daemon()
    old = there.add("--", MUCH)
    there.wait_for(old)
    there.world.dibs("daemon", "stop")
    daemon.wait(PATIENCE)
    there.world.environ["DIBS_SLURM_ROOT"] = str(root.with_name("other"))
    there.daemon(env={"DIBS_KEEP_LOGS": "1M"})
    new = there.add("--", MUCH)
    there.wait_for(new)
    before, now = folder(there, old), folder(there, new)
    mine = before.parents[2]
    (mine / "mine.txt").touch()

    there.world.client().clean(older_seconds=3600)
    left = {path.name for path in before.iterdir()}
    removed = there.world.client().clean()["removed"]

    assert "output-removed" in left and "stdout" not in left
    assert removed == 2
    assert not before.exists() and not now.exists()
    assert list(root.glob("q*/environments/*")) == [], "what may be secret"
    assert (mine / "mine.txt").exists() and neighbours(root) == ["stdout"]


# -- a file of one's own -----------------------------------------------------------------------------------


def test_the_folder_of_an_output_file_need_not_be_there(there: Afar, root: Path) -> None:
    there.daemon()
    job = there.add("-o", "new/folder/%j.txt", "--", "echo fine")

    [over] = there.wait_for(job)

    assert over["state"] == "succeeded"
    assert there.world.read(f"new/folder/{job}.txt") == "fine\n"


# -- one that does not answer ------------------------------------------------------------------------------


def test_a_record_that_cannot_be_read_keeps_nobody_waiting(there: Afar, root: Path) -> None:
    there.daemon()
    job = there.add("--retries", "1", "--", "exit 3")
    [over] = there.wait_for(job)
    record = Path(over["attempts_list"][0]["folder"]) / "record"
    record.unlink()
    os.mkfifo(record)  # has no reader and no writer

    shown = there.world.dibs("info", "--json", str(job), timeout=PATIENCE)
    listed = there.world.dibs("ls", "--all", timeout=PATIENCE)

    told = json.loads(shown.stdout)
    told = told[0] if isinstance(told, list) else told
    assert (told["state"], told["exit_code"]) == ("failed", 3)
    assert [one["exit_code"] for one in told["attempts_list"]] == [3, 3]
    assert all(one["cpu_seconds"] is not None for one in over["attempts_list"])
    first, second = told["attempts_list"]
    assert first["cpu_seconds"] is None and second["cpu_seconds"] is not None, "what answers is shown"
    assert listed.status == 0


# -- one that cannot be written to -------------------------------------------------------------------------


@pytest.fixture
def disk(there: Afar) -> Iterator[Path]:
    """Eight megabytes for Slurm's jobs."""
    place = there.world.folder.parent / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], check=True)
    there.world.environ["DIBS_SLURM_ROOT"] = str(place)
    yield place
    there.world.clean_up()
    subprocess.run(["umount", "-l", str(place)], check=True)


def why(there: Afar, job: int) -> str:
    """The sentence on a job that is not handed over, on one line."""
    told = wait_until(
        lambda: next((said for said in [there.world.dibs("why", str(job)).stdout] if "cannot " in said), ""),
        seconds=PATIENCE,
    )
    return " ".join(told.split())


def test_a_root_that_is_no_folder_is_one_sentence_with_a_remedy(there: Afar) -> None:
    there.world.write("file", "")
    root = there.world.folder / "file" / "below"
    there.world.environ["DIBS_SLURM_ROOT"] = str(root)
    there.daemon()
    job = there.add("--", "true")

    told = why(there, job)
    (there.world.folder / "file").unlink()
    [over] = there.wait_for(job)

    assert "below: not a directory; `dibs config set backends.slurm.root` names" in told
    assert over["state"] == "succeeded"


def test_a_root_that_is_gone_is_one_sentence_with_a_remedy(there: Afar, root: Path) -> None:
    there.daemon()
    there.wait_for(there.add("--", "true"))
    root.rename(root.with_name("unmounted"))
    job = there.add("--", "true")

    told = why(there, job)
    left = root.exists()
    root.with_name("unmounted").rename(root)
    [over] = there.wait_for(job)

    assert f"{root} is not the folder that it was, as if it were not mounted; dibs goes on by itself" in told
    assert not left, "nothing is written to the wrong disk, an environment least of all"
    assert over["state"] == "succeeded"


def test_a_mark_that_a_cleaner_removed_keeps_no_job_waiting(there: Afar, root: Path) -> None:
    there.daemon()
    runs = there.add("--", HOLD)
    there.wait_until_up(runs)

    (root / ".dibs-root").unlink()
    job = there.add("--", "true")
    [over] = there.wait_for(job)
    there.let_go()
    [other] = there.wait_for(runs)

    assert (over["state"], other["state"]) == ("succeeded", "succeeded")
    assert f"the mark in {root} was gone: left it anew" in there.world.dibs("daemon", "log").stdout


def test_a_root_that_is_gone_for_good_is_left_behind_with_another_one_and_kill(there: Afar, root: Path) -> None:
    daemon = there.daemon()
    old = there.add("--nodelist", "n1", "-n", "2", "--", HOLD)
    there.wait_until_up(old)
    stuck = there.add("--nodelist", "n1", "--", "true")
    there.wait_until("submitted", stuck)  # it has its place there, and waits for the other one
    root.rename(root.with_name("gone"))
    told = why(there, stuck)
    there.world.dibs("daemon", "stop")
    daemon.wait(PATIENCE)

    there.world.environ["DIBS_SLURM_ROOT"] = str(root.with_name("other"))
    there.daemon()
    new = there.add("--", "true")
    [over] = there.wait_for(new)
    killed = there.world.dibs("kill", str(old), str(stuck))
    ends = there.wait_for(old, stuck)

    assert "gone for good" in told and "`dibs kill`" in told
    assert over["state"] == "succeeded"
    assert killed.status == 0
    assert [one["state"] for one in ends] == ["cancelled", "cancelled"]
    assert not root.exists()


@needs_root
@pytest.mark.parametrize(
    ("reason", "remedy"),
    [("read-only file system", "make it writable"), ("no space left on device", "make room there")],
)
def test_a_root_that_cannot_be_written_to_is_one_sentence_with_a_remedy_and_passes(
    there: Afar, disk: Path, reason: str, remedy: str
) -> None:
    there.daemon()
    first = there.add("--", "true")
    there.wait_for(first)

    if "space" in reason:
        fill(disk)
    else:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    job = there.add("--", "true")
    told = why(there, job)
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    (disk / "ballast").unlink(missing_ok=True)
    [over] = there.wait_for(job)

    assert f"cannot write to {disk}/" in told
    assert f": {reason}; {remedy}, or set backends.slurm.root to another folder" in told
    assert "Errno" not in told
    assert over["state"] == "succeeded"
