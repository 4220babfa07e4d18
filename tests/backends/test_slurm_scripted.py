"""What a Slurm says that nobody can be asked to be: commands that print what they are told."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dibs.backends.protocol import AttemptRef, Observed, Phase, Resources, Submission, Submitted
from dibs.backends.slurm.backend import SlurmBackend, SlurmSettings
from dibs.backends.slurm.controller import Commands
from dibs.backends.slurm.squeue import _COLUMNS
from dibs.errors import BackendRefused, BackendSilent
from dibs.model.jobs import Cause
from dibs.supervise.folder import encode_record


def scripted(
    folder: Path,
    rows: Sequence[dict[str, str]] = (),
    *,
    clock: Callable[[], float] = time.monotonic,
    **settings: float,
) -> SlurmBackend:
    """A cluster whose queue has these rows; `asked` in the folder names the commands, `ended` what is to end."""
    folder.mkdir()
    lines = ["".join(row.get(name, "").ljust(width) for name, width in _COLUMNS) for row in rows]
    (folder / "rows").write_text("".join(f"{line}\n" for line in lines))
    says_of = {
        "squeue": f"cat '{folder}/rows'",
        "scontrol": "echo 'BOOT_TIME = 1'",
        "scancel": f"echo $* >> '{folder}/ended'",
    }
    for command, says in says_of.items():
        command_says(folder, command, says)
    root = folder / "root"
    root.mkdir()
    commands = Commands({"PATH": f"{folder}:/usr/bin:/bin"})
    return SlurmBackend(SlurmSettings(root=str(root), **settings), commands, clock=clock)


def command_says(folder: Path, command: str, script: str) -> None:
    (folder / command).write_text(f"#!/bin/sh\necho {command} >> '{folder}/asked'\n{script}\n")
    (folder / command).chmod(0o755)


def a_submission(folder: Path, number: int, name: str = "") -> Submission:
    path = folder / "root" / f"{number}.1"
    spec = {
        "job": number,
        "attempt": 1,
        "opened_at": 1.0,
        "words": ["true"],
        "env": {},
        "environment": "/dev/null",
        "workdir": "/",
        "stdout": f"{path}/stdout",
        "stderr": f"{path}/stderr",
        "grace": 1.0,
        "name": name,
    }
    return Submission(ref=AttemptRef(f"q1-{number}", 1, str(path)), spec=spec)


def observe(backend: SlurmBackend, *folders: str) -> list[Observed]:
    refs = [AttemptRef(f"q1-{number}", 1, folder) for number, folder in enumerate(folders, 1)]
    found = backend.observe(refs)
    return [found[ref] for ref in refs]


def test_one_whose_folder_cannot_be_looked_into_does_not_run_for_that(tmp_path: Path):
    backend = scripted(tmp_path / "there")
    (tmp_path / "file").touch()

    (seen,) = observe(backend, str(tmp_path / "file" / "1.1"))

    assert (seen.phase, seen.never_started) == (Phase.QUEUED, False)
    assert seen.reason.startswith("cannot look into its folder: ")


def test_many_that_somebody_cancelled_cost_one_question_more(tmp_path: Path):
    cancelled = {"State": "CANCELLED", "EndTime": "5000", "SubmitTime": "4000"}
    rows = [{**cancelled, "JobID": str(number), "Name": f"dibs-q1-{number}.1"} for number in range(1, 21)]
    backend = scripted(tmp_path / "there", rows, patience=0.0)

    found = observe(backend, *(str(tmp_path / str(number)) for number in range(1, 21)))

    assert {(seen.phase, seen.cause) for seen in found} == {(Phase.LOST, Cause.KILLED)}
    asked = (tmp_path / "there" / "asked").read_text().split()
    assert sorted(asked) == ["scontrol", "squeue"]


def test_what_slurm_has_forgotten_is_looked_for_in_its_books_at_once(tmp_path: Path):
    backend = scripted(tmp_path / "there", patience=0.0)
    there = tmp_path / "there"
    lines = [
        "41|41|NODE_FAIL|0:0|900|1000|1500|n2|dibs-q1-1.1|train | a",
        "45|43_2|CANCELLED by 7|0:15|900|1000|1600|n3||dibs-q1-2.1",
        "44|44|RUNNING|0:0|900|1000|Unknown|n3||dibs-q1-3.1",  # left from a crash
        "40|40|OUT_OF_MEMORY|0:125|90|100|150|n1||another's",
    ]
    said = "\n".join(lines)
    (there / "sacct").write_text(f"#!/bin/sh\necho sacct $5 >> '{there}/asked'\ncat <<'.'\n{said}\n.\n")
    (there / "sacct").chmod(0o755)
    folders = [tmp_path / "1", tmp_path / "2", tmp_path / "3"]
    refs = [AttemptRef(key, 1, str(path)) for key, path in zip(("q1-1", "q1-2_2", "q1-3"), folders, strict=True)]
    for path, number in zip(folders, ("41", "43_2", "44"), strict=True):
        path.mkdir()
        record = {"v": 1, "state": "running", "began": 1001.0, "number": number}
        (path / "record").write_bytes(encode_record(record))

    found = backend.observe(refs)

    node, cancelled, forgotten = [found[ref] for ref in refs]
    assert (node.cause, node.reason, node.node) == (Cause.LOST, "its node failed (n2)", "n2")
    assert (node.began, node.ended) == (1000.0, 1500.0)
    assert (cancelled.cause, cancelled.reason) == (Cause.KILLED, "it was cancelled in Slurm")
    assert cancelled.ended == 1600.0
    assert (forgotten.cause, forgotten.reason) == (Cause.LOST, "Slurm does not know it any more")
    asked = (there / "asked").read_text().splitlines()
    assert [line for line in asked if line.startswith("sacct")] == ["sacct 41,43_2,44"]


def test_a_controller_whose_clock_was_set_right_is_believed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    waits = {"JobID": "1", "Name": "dibs-q1-1.1", "State": "PENDING", "StartTime": f"{int(time.time()) + 7200}"}
    backend = scripted(tmp_path / "there", [waits])

    def starts_in(clock: int) -> float:
        says = f"echo Configuration data as of $(($(date +%s) + {clock}))"
        command_says(tmp_path / "there", "scontrol", says)
        [seen] = observe(backend, str(tmp_path / "1"))
        assert seen.expected_start is not None
        return seen.expected_start - time.time()

    wrong, soon = starts_in(3600), starts_in(0)
    monkeypatch.setattr("dibs.backends.slurm.controller._CLOCK_COUNTS", 0.0)
    right = starts_in(0)

    assert [round(one / 600) for one in (wrong, soon, right)] == [6, 6, 12]


def test_an_answer_that_is_late_is_no_wrong_clock(tmp_path: Path):
    starts = int(time.time()) + 7200
    waits = {"JobID": "1", "Name": "dibs-q1-1.1", "State": "PENDING", "StartTime": f"{starts}"}
    backend = scripted(tmp_path / "there", [waits])
    says = "now=$(date +%s); sleep 1.5; echo Configuration data as of $now"
    command_says(tmp_path / "there", "scontrol", says)

    [seen] = observe(backend, str(tmp_path / "1"))

    assert seen.expected_start == starts


def test_what_nobody_asked_about_is_told_and_taken_out_in_one_call(tmp_path: Path):
    rows = [
        {"JobID": "1", "State": "RUNNING", "Name": "dibs-q1-1.1"},  # asked about
        {"JobID": "2", "State": "PENDING", "Name": "dibs-q1-2.1"},
        {"JobID": "3", "State": "CANCELLED", "Name": "dibs-q1-2.1"},
        {"JobID": "4", "State": "PENDING", "Name": "dibs-q1-2.1"},  # another copy
        {"JobID": "5", "ArrayJobID": "5", "ArrayTaskID": "3", "State": "PENDING", "Name": "dibs-q1-7+10.2"},
        {"JobID": "6", "State": "COMPLETING", "Name": "dibs-q1-3.1"},
        {"JobID": "7", "State": "COMPLETED", "Name": "dibs-q1-4.1"},
        {"JobID": "8", "State": "PENDING", "Name": "dibs-q12-1.1"},  # another queue's
        {"JobID": "9", "State": "PENDING", "Name": "somebody else's"},
    ]
    backend = scripted(tmp_path / "there", rows)

    observe(backend, str(tmp_path / "1"))
    strays = backend.strays("q1")
    backend.remove_strays([*strays, ("q1-3", 1)])

    assert sorted(strays) == [("q1-2", 1), ("q1-7_13", 2)]
    assert (tmp_path / "there" / "ended").read_text() == "2 4 5_3\n"


def test_parts_of_an_array_together_have_no_more_elements_there_than_run_at_once(tmp_path: Path):
    """Each part would have a limit of its own in Slurm."""
    array = {"ArrayJobID": "7", "Name": "dibs-q1-9.1"}
    rows = [
        {"JobID": "7", "ArrayTaskID": "0", "State": "RUNNING", **array},
        {"JobID": "8", "ArrayTaskID": "1", "State": "COMPLETED", **array},
        {"JobID": "9", "State": "RUNNING", "Name": "dibs-q1-10.1"},
    ]
    there = tmp_path / "there"
    backend = scripted(there, rows)
    command_says(there, "sbatch", "echo 99")
    left = [
        replace(
            a_submission(there, task),
            ref=AttemptRef(f"q1-9_{task}", 1, f"{there}/{task}"),
            wanted=Resources(most=2),
        )
        for task in (2, 3, 4)
    ]

    told = backend.submit(left)

    assert told.accepted == {left[0].ref}
    assert told.put_off == dict.fromkeys(
        (one.ref for one in left[1:]), "1 elements of its array are there, which may run 2 at once"
    )


def test_a_limit_that_was_learned_is_not_tried_again_at_once(tmp_path: Path):
    now = [0.0]
    there = tmp_path / "there"
    rows = [{"JobID": number, "State": "RUNNING", "Name": "another"} for number in ("1", "2")]
    backend = scripted(there, rows, clock=lambda: now[0])
    command_says(there, "sbatch", "echo 'sbatch: error: AssocMaxSubmitJobLimit' >&2; exit 1")
    many = [
        replace(a_submission(there, task), ref=AttemptRef(f"q1-9_{task}", 1, f"{there}/{task}"))
        for task in range(4)
    ]

    def tries(seconds: float) -> int:
        (there / "asked").write_text("")
        now[0] += seconds
        answers.append(backend.submit(many))
        return (there / "asked").read_text().split().count("sbatch")

    answers: list[Submitted] = []
    halves = 3  # all four, two, one

    assert [tries(0), tries(30), tries(29), tries(2), tries(2)] == [halves, 0, 0, halves, 0]
    limit = "its account has reached a limit: jobs submitted (AssocMaxSubmitJobLimit)"
    whys = {why for one in answers for why in one.put_off.values()}
    assert whys == {f"Slurm takes 2 of your jobs at once: {limit}"}
    assert [len(one.put_off) for one in answers] == [4] * 5


def test_a_command_that_cannot_be_run_is_no_answer(tmp_path: Path):
    backend = scripted(tmp_path / "there")
    (tmp_path / "there" / "squeue").write_bytes(b"\x00")  # as too many processes would be

    with pytest.raises(BackendSilent, match="cannot run squeue: Exec format error"):
        observe(backend, str(tmp_path / "1.1"))


_NO_ANSWER = "echo 'error: Unable to contact slurm controller (connect failure)' >&2; exit 1"


def test_what_slurm_may_have_though_it_did_not_answer_is_not_taken_back(tmp_path: Path):
    there = tmp_path / "there"
    backend = scripted(there)
    command_says(there, "sbatch", _NO_ANSWER)
    one = a_submission(there, 1)

    told = backend.submit([one])  # raising says that nothing was handed over

    assert set(told.put_off) == {one.ref} and not told.accepted
    assert told.put_off[one.ref].startswith("cannot reach Slurm's controller: ")


def test_a_refusal_is_told_where_the_nodes_cannot_be_listed(tmp_path: Path):
    there = tmp_path / "there"
    backend = scripted(there)
    no = "echo 'sbatch: error: Batch job submission failed: Invalid account' >&2; exit 1"
    command_says(there, "sbatch", f"case $* in *q1-2*) {no};; esac; echo 99")
    command_says(there, "sinfo", _NO_ANSWER)
    first, second = a_submission(there, 1), a_submission(there, 2)

    told = backend.submit([first, second])

    assert (told.accepted, set(told.refused)) == ({first.ref}, {second.ref})


def test_a_mark_stays_in_the_name_though_comments_came_back(tmp_path: Path):
    there = tmp_path / "there"
    mark = "dibs-q1-1.1"
    backend = scripted(there, [{"JobID": "41", "State": "RUNNING", "Name": f"train.{mark}", "Comment": mark}])
    command_says(there, "sbatch", f"printf '%s\\n' \"$@\" > '{there}/given'; echo 42")

    backend.submit([a_submission(there, 2, "train")])  # a site may rewrite this one's comment while it runs

    assert "--job-name=train.dibs-q1-2.1" in (there / "given").read_text().splitlines()


@pytest.mark.parametrize(
    ("allowed", "books", "is_refused"),
    [
        (
            "Physics",
            "physics-ml|\nphysics-ml|physics\nphysics|root\nroot|",
            False,
        ),  # a list stands for the parts of its accounts
        ("biology", "physics-ml|\nphysics-ml|physics\nphysics|root\nroot|", True),
        ("biology", "physics-ml|physics", False),  # not all is shown to us
    ],
)
def test_a_partition_is_open_to_the_parts_of_an_account(
    tmp_path: Path, allowed: str, books: str, is_refused: bool
):
    there = tmp_path / "there"
    backend = scripted(there)
    config = "AccountingStorageType = accounting_storage/slurmdbd"
    partition = f"PartitionName=gpu Default=YES MaxTime=UNLIMITED State=UP AllowAccounts={allowed}"
    command_says(there, "scontrol", f"case $* in *partition*) echo '{partition}';; *) echo '{config}';; esac")
    command_says(there, "sacctmgr", f"echo '{books}'")
    command_says(there, "sbatch", "echo 'sbatch: Job 1 to start at 1 using 1 processors on nodes n1' >&2")
    wanted = Resources(options=(("account", "physics-ml"),))

    with pytest.raises(BackendRefused, match="closed to the account") if is_refused else contextlib.nullcontext():
        backend.check(wanted)
