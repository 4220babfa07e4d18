"""Slurm's rows, names, reasons and flags: plain values."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.backends.protocol import AttemptRef, Node, NodeGpus, Phase, Resources, Submission
from dibs.backends.slurm import sinfo, squeue
from dibs.backends.slurm.acceptance import is_full, prospect, refusal, what_is_too_much
from dibs.backends.slurm.controller import last_line
from dibs.backends.slurm.sbatch import JobMark, array_script, batches, flags, identity, named, script
from dibs.backends.slurm.squeue import SqueueRow
from dibs.backends.slurm.states import judge_gone, why_it_ended, why_it_waits
from dibs.errors import BackendRefused
from dibs.model.jobs import Cause, Wishes

GIB = 1024**3
BASES = st.from_regex(r"[A-Za-z0-9-]{1,20}", fullmatch=True)
NUMBERS = st.integers(1, 99)


def a_row(**changed: Any) -> SqueueRow:
    usual: dict[str, Any] = {
        "job": 5,
        "array": 5,
        "task": None,
        "name": "dibs-k-17.1",
        "comment": "",
        "state": "PENDING",
        "status": 0,
        "restarts": 0,
        "submitted": 100.0,
        "start": None,
        "ended": None,
        "node": "",
        "reason": "",
    }
    return SqueueRow(**usual | changed)


def a_submission(key: str, attempt: int = 1, **wanted: Any) -> Submission:
    return Submission(ref=AttemptRef(key, attempt, f"/x/{key}.{attempt}"), spec={}, wanted=Resources(**wanted))


@given(BASES, NUMBERS, st.integers(0, 10**6))
def test_a_name_leads_back_to_its_attempt(base: str, attempt: int, task: int) -> None:
    assert identity(str(JobMark(base, attempt)), "", None) == (base, attempt)
    assert identity(str(JobMark(base, attempt, task)), "", None) == (f"{base}_{task}", attempt)
    assert identity(str(JobMark(base, attempt, offset=3000)), "", task) == (f"{base}_{3000 + task}", attempt)


@pytest.mark.parametrize("title", ["train", "a b.c", "dibs-k-1.1", "x.dibs-k-1.1", "ü" * 300, "", "-x"])
def test_a_job_with_a_name_of_its_own_is_found_by_the_mark_behind_it_or_in_its_comment(title: str) -> None:
    mark = JobMark("k-17", 2)

    whole = named(title, mark)

    assert identity(whole, "", None) == ("k-17", 2)
    assert len(whole.encode()) <= 160 and whole[:6] in f"{title[:6]}.dibs-k"
    assert identity(title, f"{mark} and a user's comment", None) == ("k-17", 2)
    assert identity(whole, "billing=7", None) == ("k-17", 2)


@pytest.mark.parametrize(
    "name", ["wrap", "dibs-", "dibs-17", "dibs-17.x", "xdibs-17.1", "dibs-17.1 ", "dibs-a+5.1"]
)
def test_a_strangers_job_is_not_ours(name: str) -> None:
    assert identity(name, "", None) is None


@given(BASES, st.sets(st.integers(0, 5000), min_size=1, max_size=40), st.integers(2, 1001))
def test_however_an_array_is_cut_every_element_is_found_again(base: str, tasks: set[int], largest: int) -> None:
    wanted = [(a_submission(f"{base}_{task}"), ("--x",)) for task in sorted(tasks)]

    cut = batches(wanted, largest_array=largest)

    found = []
    for batch in cut:
        for number, one in batch.members.items():
            assert number < largest
            assert identity(str(batch.mark), "", number if batch.is_array else None) == (one.ref.key, 1)
            found.append(one.ref.key)
    assert sorted(found) == sorted(f"{base}_{task}" for task in tasks)


def test_elements_that_ask_for_different_things_are_different_arrays() -> None:
    wanted = [(a_submission(f"k_{task}"), (f"--mem={task % 2}",)) for task in range(6)]

    assert [sorted(batch.members) for batch in batches(wanted, largest_array=1001)] == [[0, 2, 4], [1, 3, 5]]


def test_a_script_quotes_what_it_names() -> None:
    folder = "/a 'folder'\n$(touch BAD)"

    text = script("/usr/bin/python3", "/src", folder).decode()
    many = array_script("/usr/bin/python3", "/src", {3: folder, 1: "/b"}).decode()

    assert text.startswith("#!/bin/sh\nexec /usr/bin/python3 -I -S -X utf8 -c ")
    quoted = "'/a '\"'\"'folder'\"'\"'\n$(touch BAD)'"
    assert text.endswith(f" /src {quoted}\n")
    assert f"3) folder={quoted};;" in many and "1) folder=/b;;" in many


def _line(**cells: str) -> bytes:
    return b"".join(cells.get(name, "N/A").encode().ljust(width)[:width] for name, width in squeue._COLUMNS)


def test_rows_are_cut_by_their_places() -> None:
    ours = _line(
        JobID="7",
        ArrayJobID="6",
        ArrayTaskID="2",
        State="PENDING",
        exit_code="0",
        RestartCnt="1",
        SubmitTime="1794772547",
        StartTime="1794772608",
        NodeList="",
        Reason="Nodes required for job are DOWN, DRAINED or reserved",
        Name="dibs-k-17.1",
    )
    stranger = _line(JobID="8", State="RUNNING", NodeList="n" * 80, Name="ein \xe9\xe9 Name")

    wide = _line(JobID="9", State="RUNNING", NodeList="n[1-2]", BatchHost="n1")

    rows = list(squeue.parse(ours + b"\n" + stranger + b"\n" + wide + b"\nslurm_load_jobs error: nonsense\n\n"))

    assert [row.job for row in rows] == [7, 8, 9]
    assert (rows[0].address, rows[0].restarts, rows[0].start) == ("6_2", 1, 1794772608.0)
    assert why_it_waits(rows[0]) == (
        "the nodes that it needs are down, drained or kept for jobs of higher priority"
    )
    assert (rows[1].node, rows[1].address, rows[1].start) == ("n" * 64, "8", None)
    assert rows[2].node == "n1", "of several nodes the one that its shim is on"
    assert squeue.by_identity(rows).keys() == {("k-17_2", 1)}


@given(st.binary(max_size=2000))
def test_no_answer_of_squeue_or_sinfo_breaks_us(output: bytes) -> None:
    squeue.by_identity(squeue.parse(output))
    sinfo.parse_nodes(output)


def test_of_two_copies_the_one_that_lives_counts_then_the_latest() -> None:
    over = a_row(job=9, state="COMPLETED", submitted=300.0)
    older = a_row(job=8, state="FAILED", submitted=200.0)
    waits = a_row(job=3, state="PENDING", submitted=100.0)
    runs = a_row(job=2, state="RUNNING", submitted=50.0)

    assert squeue.by_identity([older, over])["k-17", 1] is over
    assert squeue.by_identity([over, waits, older])["k-17", 1] is waits
    assert squeue.by_identity([waits, runs, over])["k-17", 1] is runs


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("", "Slurm has not looked at it yet"),
        ("Priority", "jobs with a higher priority go first"),
        ("ReqNodeNotAvail, UnavailableNodes:n1", "a node that it needs is down, drained or reserved"),
        ("QOSMaxGRESPerUser", "its QOS has reached a limit: GPUs (QOSMaxGRESPerUser)"),
        ("AssocGrpCpuLimit", "its account has reached a limit: CPUs (AssocGrpCpuLimit)"),
        ("AssocMaxJobsLimit", "its account has reached a limit: jobs at once (AssocMaxJobsLimit)"),
        ("MaxJobsPerAccount", "its QOS has reached a limit: jobs at once (MaxJobsPerAccount)"),
        ("MaxGRESPerAccount", "its QOS has reached a limit: GPUs (MaxGRESPerAccount)"),
        ("QOSGrpMemoryMinutes", "its QOS has reached a limit: memory (QOSGrpMemoryMinutes)"),
        ("QOSMinGRES", "it wants less than its QOS asks for: GPUs (QOSMinGRES)"),
        ("SomethingNew2030", "Slurm says: SomethingNew2030"),
    ],
)
def test_a_reason_to_wait_is_a_sentence(reason: str, sentence: str) -> None:
    assert why_it_waits(a_row(reason=reason)) == sentence


@pytest.mark.parametrize(
    ("state", "status", "sentence", "cause"),
    [
        ("NODE_FAIL", 0, "its node failed (n2)", Cause.LOST),
        ("OUT_OF_MEMORY", 0, "it used more memory than Slurm gave it", Cause.HOST_OOM),
        ("PREEMPTED", 0, "a job that goes first took its place (n2)", Cause.LOST),
        ("TIMEOUT", 0, "it reached Slurm's time limit", Cause.TIME_LIMIT),
        ("CANCELLED", 0, "it was cancelled in Slurm", Cause.KILLED),
        (
            "FAILED",
            53,
            "its folder is not there on n2, or cannot be written: is backends.slurm.root on a file system that all"
            " nodes share?",
            Cause.START_ERROR,
        ),
        (
            "FAILED",
            127 << 8,
            "the Python of dibs is not there on n2: backends.slurm.python names it",
            Cause.START_ERROR,
        ),
        ("FAILED", 1 << 8, "its supervisor failed on n2", Cause.START_ERROR),
        ("FAILED", 9, "Slurm says failed (exit code 137)", Cause.LOST),
        (
            "FAILED",
            73 << 8,
            "another copy of it was started, and Slurm does not know that one any more",
            Cause.LOST,
        ),
    ],
)
def test_an_end_without_a_record_is_explained(state: str, status: int, sentence: str, cause: Cause) -> None:
    assert why_it_ended(a_row(state=state, status=status, node="n2")) == (sentence, cause)


@pytest.mark.parametrize(
    ("row", "record", "has_started", "is_patient", "phase", "never_started"),
    [
        (None, None, False, True, Phase.QUEUED, False),
        (None, None, False, False, Phase.LOST, True),
        (None, {"state": "running"}, True, True, Phase.RUNNING, False),
        (None, {"state": "running"}, True, False, Phase.LOST, False),
        (None, {"state": "ended", "code": 0}, True, False, Phase.ENDED, False),
        ("COMPLETED", {"state": "ended", "code": 0}, True, True, Phase.ENDED, False),
        ("COMPLETING", {"state": "ended", "code": 0}, True, True, Phase.ENDED, False),
        ("COMPLETING", {"state": "ended", "code": 1}, True, True, Phase.RUNNING, False),
        ("COMPLETING", {"state": "ended", "code": 1}, True, False, Phase.ENDED, False),
        ("NODE_FAIL", None, False, False, Phase.LOST, True),
        ("CANCELLED", None, False, False, Phase.LOST, False),
    ],
)
def test_where_one_stands_that_slurm_let_go(
    row: str | None,
    record: dict[str, Any] | None,
    has_started: bool,
    is_patient: bool,
    phase: Phase,
    never_started: bool,
) -> None:
    there = None if row is None else a_row(state=row)

    seen = judge_gone(there, record, has_started=has_started, is_patient=is_patient)

    assert (seen.phase, seen.never_started) == (phase, never_started)
    assert (seen.record is not None) == (phase is Phase.ENDED)
    assert seen.reason or phase in (Phase.ENDED, Phase.RUNNING)


@pytest.mark.parametrize(
    ("row", "never_started"),
    [
        (a_row(state="CANCELLED", ended=1010.0), True),
        (a_row(state="FAILED", status=2 << 8, ended=1010.0), True),  # its script was gone
        (a_row(state="FAILED", status=72 << 8, ended=1010.0), False),  # its script said why
        (a_row(state="CANCELLED", ended=990.0), False),
        (a_row(state="CANCELLED", ended=9000.0), False),
        (a_row(state="FAILED", status=2 << 8, ended=9000.0), False),
    ],
)
def test_what_a_confused_controller_cancelled_or_robbed_of_its_script_is_submitted_again(
    row: SqueueRow, never_started: bool
) -> None:
    seen = judge_gone(row, None, has_started=False, is_patient=False, controller_started=1000.0)
    started = judge_gone(row, None, has_started=True, is_patient=False, controller_started=1000.0)

    assert (seen.phase, seen.never_started, started.never_started) == (Phase.LOST, never_started, False)


def test_slurms_blame_is_told_unless_we_asked_for_the_end_or_it_went_well() -> None:
    timed_out = a_row(state="TIMEOUT")
    record = {"state": "ended", "signal": 15, "by": "outside"}

    def blamed(**changed: Any) -> Cause | None:
        return judge_gone(timed_out, record | changed, has_started=True, is_patient=False).cause

    assert blamed() is Cause.TIME_LIMIT
    assert blamed(by="stop") is None
    assert blamed(signal=None, code=0) is None


@pytest.mark.parametrize(
    ("row", "record", "cause"),
    [
        ({"state": "PENDING", "restarts": 1}, {"signal": 15, "by": "outside"}, Cause.LOST),
        ({"state": "PENDING", "restarts": 1}, {"signal": 15, "by": ""}, Cause.LOST),
        ({"state": "PENDING", "restarts": 1}, {"code": 5, "by": ""}, None),
        ({"state": "PENDING", "restarts": 1}, {"signal": 15, "by": "stop"}, None),
        ({"state": "NODE_FAIL"}, {"signal": 15, "by": "outside"}, Cause.LOST),
        ({"state": "NODE_FAIL"}, {"signal": 15, "by": ""}, Cause.LOST),  # an operator set it down
        ({"state": "PREEMPTED"}, {"signal": 15, "by": ""}, Cause.LOST),
        ({"state": "PREEMPTED"}, {"code": 3, "by": ""}, Cause.LOST),  # what it ends with when it is asked
        ({"state": "NODE_FAIL"}, {"signal": 11, "by": ""}, None),
        ({"state": "NODE_FAIL"}, {"code": 5, "by": ""}, None),
        ({"state": "CANCELLED"}, {"code": 1, "by": "outside"}, Cause.KILLED),
        ({"state": "FAILED", "status": 15}, {"signal": 15, "by": "outside"}, Cause.KILLED),
        (None, {"signal": 15, "by": "outside"}, Cause.KILLED),
        (None, {"code": 0, "by": "outside"}, None),
    ],
)
def test_who_was_ended_by_slurm_says_so(
    row: dict[str, Any] | None, record: dict[str, Any], cause: Cause | None
) -> None:
    there = None if row is None else a_row(**row)

    seen = judge_gone(there, record | {"state": "ended"}, has_started=True, is_patient=False)

    assert (seen.phase, seen.cause, bool(seen.reason)) == (Phase.ENDED, cause, cause is not None)


def test_a_command_that_is_not_found_is_no_missing_python_of_ours() -> None:
    failed = a_row(state="FAILED", status=127 << 8, node="n2")

    ended = judge_gone(failed, {"state": "ended", "code": 127}, has_started=True, is_patient=False)
    lost = judge_gone(failed, {"state": "running"}, has_started=True, is_patient=False)

    assert (ended.phase, ended.cause, ended.reason) == (Phase.ENDED, None, "")
    assert (lost.phase, lost.cause) == (Phase.LOST, Cause.LOST)


@pytest.mark.parametrize(
    ("wanted", "flag"),
    [
        (Resources(), "--gres=gpu:1"),
        (Resources(wishes=Wishes(num_gpus=2, gpu_type="h200")), "--gres=gpu:h200:2"),
        (Resources(wishes=Wishes(cpus=3)), "--cpus-per-task=3"),
        (Resources(wishes=Wishes(mem=GIB + 1)), "--mem=1025M"),
        (Resources(time_limit=61.0), "--time=2"),
        (Resources(time_limit=1.0), "--time=1"),
        (Resources(priority=-3), "--nice=3"),
        (Resources(avoid=("n1", "n2"), options=(("exclude", "n9"),)), "--exclude=n9,n1,n2"),
        (Resources(options=(("account", "lab"),)), "--account=lab"),
        (Resources(wishes=Wishes(vram=12 * GIB)), "--gres=shard:12"),
        (Resources(wishes=Wishes(share=Fraction(1, 3))), "--gres=shard:27"),
        (Resources(wishes=Wishes(vram=200 * GIB)), "--gres=gpu:1"),
        (Resources(wishes=Wishes(vram=12 * GIB, num_gpus=2)), "--gres=gpu:2"),
        (Resources(wishes=Wishes(vram=12 * GIB, gpu_type="h200")), "--gres=gpu:h200:1"),
    ],
)
def test_a_wish_is_a_flag(wanted: Resources, flag: str) -> None:
    found = flags(wanted, shards_per_gpu=80)

    assert flag in found
    assert {"--no-requeue", "--kill-on-invalid-dep=yes"} <= set(found)


def test_a_script_that_says_how_many_nodes_tasks_or_cards_it_has_is_not_made_smaller() -> None:
    asked = (("nodes", "2"), ("gpus-per-task", "1"), ("mem-per-gpu", "8G"), ("exclusive", ""))

    found = flags(Resources(wishes=Wishes(num_gpus=1, mem=GIB), options=asked))

    names = [flag.partition("=")[0] for flag in found if not flag.startswith(("--no-requeue", "--kill-on"))]
    assert names == ["--nodes", "--gpus-per-task", "--mem-per-gpu", "--exclusive"]
    assert found[-1] == "--exclusive"


def test_no_flag_is_given_that_nobody_wants() -> None:
    names = {flag.partition("=")[0] for flag in flags(Resources(wishes=Wishes(num_gpus=0, vram=GIB), priority=5))}

    assert names == {"--no-requeue", "--kill-on-invalid-dep", "--ntasks", "--nodes"}


@pytest.mark.parametrize(
    "wanted",
    [
        Resources(wishes=Wishes(only=("0",))),
        Resources(options=(("wrap", "rm -r /"),)),
        Resources(options=(("partition", "a b"),)),
        Resources(options=(("partition", "a\nb"),)),
        Resources(wishes=Wishes(gpu_type="a,shard:1")),
    ],
)
def test_what_slurm_has_no_word_for_is_refused(wanted: Resources) -> None:
    with pytest.raises(BackendRefused, match="cannot"):
        flags(wanted)


def test_a_refusal_says_what_is_wrong_with_the_job() -> None:
    said = "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified"

    error = refusal(said, ["--account=lab"])
    other = refusal("sbatch: error: Batch job submission failed: Something new", ["--mem=1M"])
    never = refusal("sbatch: error: QOSMaxWallDurationPerJobLimit\nsbatch: error: ... time limits)", ["--time=60"])
    kind = refusal("whatever", ["--gres=gpu:h300:1"], {"a100", ""})

    assert error.message == "cannot run this on Slurm: you cannot use the account lab here"
    assert (other.message, other.remedy) == (
        "cannot run this on Slurm: Something new",
        "it was asked for --mem=1M",
    )
    limit = "its QOS has reached a limit: time (QOSMaxWallDurationPerJobLimit)"
    assert never.message == f"cannot run this on Slurm: {limit}"
    assert (kind.message, kind.remedy) == (
        "cannot run this on Slurm: no node has GPUs of type h300",
        "there are a100",
    )


def test_a_full_cluster_is_not_a_refusal() -> None:
    limit = "Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size ...)"

    assert is_full(limit) and not is_full("Invalid partition name specified")
    assert is_full(f"sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: {limit}")
    assert not is_full(f"sbatch: error: QOSMaxWallDurationPerJobLimit\nsbatch: error: {limit}")
    assert last_line(f"sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: {limit}").startswith("Job violates")


@pytest.mark.parametrize(
    ("said", "sentence", "start"),
    [
        (
            "sbatch: Job 4 to start at 1060 using 1 processors on nodes n1 in partition gpu",
            "at once on n1",
            1060.0,
        ),
        (
            "sbatch: Job 4 to start at 8200 using 1 processors on nodes n1 in partition gpu",
            "in about 2 hours",
            8200.0,
        ),
        (
            "sbatch: Job 4 to start at 34007038346 using 1 processors on nodes n1 in partition gpu",
            "not know",
            None,
        ),
        ("something new", "not know", None),
    ],
)
def test_an_estimate_is_a_sentence_and_a_time(said: str, sentence: str, start: float | None) -> None:
    found = prospect(said, 1000.0)

    assert sentence in found.sentence and found.expected_start == start


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10:00", 600.0), ("01:30:00", 5400.0), ("2-00:00:30", 172830.0), ("UNLIMITED", None), ("", None)],
)
def test_partitions_have_limits(text: str, seconds: float | None) -> None:
    line = f"PartitionName=gpu Default=YES MaxTime={text} State=DRAIN\nPartitionName=long Default=NO\n"

    gpu, long = sinfo.parse_partitions(line.encode())

    assert (gpu.longest, gpu.is_default, gpu.is_up, long.is_up) == (seconds, True, False, True)
    assert sinfo.chosen_partitions((gpu, long), "") == (gpu,)
    assert sinfo.chosen_partitions((gpu, long), "long,other") == (long,)


def test_what_needs_several_things_of_one_node_is_explained() -> None:
    big = Node(name="n1", state="idle", is_usable=True, cpus=64, memory=GIB, gpus=())
    fast = Node(
        name="n2", state="down", is_usable=False, cpus=4, memory=GIB, gpus=(NodeGpus(type="", total=2, used=0),)
    )

    def much(**wishes: Any) -> str:
        return what_is_too_much(Resources(wishes=Wishes(**wishes)), [big, fast], ())

    assert much(num_gpus=2, cpus=4) == "", "that it is down is another matter"
    assert much(num_gpus=2, cpus=8) == "no node has 8 CPUs together with the rest that it asks for"
    assert much(num_gpus=0, mem=2 * GIB) == "no node has 2 GiB of memory; the most is 1 GiB"
    assert much(num_gpus=0, mem=1024 * GIB) == "no node has 1024 GiB of memory; the most is 1 GiB"
    assert much(num_gpus=1, gpu_type="t4") == "no node has t4 GPUs"


@pytest.mark.parametrize(
    "options",
    [
        {"nodes": "1-4:2", "gpus": "4"},
        {"nodes": "1,2", "gpus": "4"},
        {"nodes": "1-2", "gpus": "a100:2,t4:2"},
        {"gres": "gpu:a100:1,gpu:t4:1,shm:7"},
        {"nodes": "2", "gres": "gpu:a100:1"},
        {"ntasks": "16", "overcommit": ""},
        {"ntasks": "2", "gpus-per-task": "a100"},
        {"ntasks": "8", "gpus": "2"},
    ],
)
def test_what_nodes_have_together_is_no_reason_to_refuse_what_they_have_or_what_cannot_be_read(
    options: dict[str, str],
) -> None:
    cards = (NodeGpus(type="a100", total=1, used=0), NodeGpus(type="t4", total=1, used=0))
    nodes = [Node(name=name, state="down", is_usable=False, cpus=4, gpus=cards) for name in ("n1", "n2")]

    wishes = Wishes(num_gpus=4 if "gpu" in str(options) else 0)  # a script's number is a wish, too

    assert what_is_too_much(Resources(wishes=wishes, options=tuple(options.items())), nodes, ()) == ""


def test_nodes_have_cards_states_and_reasons() -> None:
    rows = [
        (
            "n1",
            "gpu*",
            "mixed",
            "8/8/0/16",
            "64000",
            "1000",
            "gpu:a100:4(S:0-1),shard:320",
            "gpu:a100:1(IDX:0)",
            "none",
        ),
        (
            "n1",
            "long",
            "mixed",
            "8/8/0/16",
            "64000",
            "1000",
            "gpu:a100:4(S:0-1),shard:320",
            "gpu:a100:1(IDX:0)",
            "none",
        ),
        ("n2", "gpu*", "down*", "0/0/16/16", "64000", "0", "gpu:2", "gpu:0", "Not responding"),
        ("n3", "gpu*", "idle+drain", "0/0/16/16", "64000", "0", "(null)", "(null)", "new cards"),
    ]
    text = [
        b"".join(cell.encode().ljust(width) for cell, (_, width) in zip(row, sinfo._COLUMNS, strict=True))
        for row in rows
    ]

    nodes = sinfo.parse_nodes(b"\n".join(text))

    assert [(node.name, node.is_usable, node.reason) for node in nodes] == [
        ("n1", True, ""),
        ("n2", False, "Not responding"),
        ("n3", False, "new cards"),
    ]
    assert nodes[0].groups == ("gpu", "long")
    assert [(gpus.type, gpus.total, gpus.used) for gpus in nodes[0].gpus] == [("a100", 4, 1)]
    assert (nodes[0].shards, nodes[0].cpus, nodes[0].cpus_used, nodes[0].memory) == (320, 16, 8, 64000 * 1024**2)
    assert nodes[2].gpus == ()
