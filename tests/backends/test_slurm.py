"""What is Slurm's own: cards, reasons, arrays, refusals. Against a real one."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.private_slurm import PrivateSlurm
from backends.sites import Site, slurm_backend
from dibs.backends.protocol import Phase, Resources
from dibs.backends.slurm.backend import SlurmBackend, SlurmSettings
from dibs.backends.slurm.controller import Commands
from dibs.errors import BackendMissing, BackendSilent
from dibs.model.jobs import Cause, Wishes
from stories.outside import World, wait_until

HOLD = "echo here >> here; until test -e go; do sleep 0.05; done"


@pytest.fixture
def site(world: World, slurm: PrivateSlurm) -> Iterator[Site]:
    root = Path(world.folder) / "run"
    one = Site(root, slurm_backend(slurm, root))
    yield one
    (one.workdir / "go").touch()
    slurm.clear()


def _a_card(**more: object) -> Resources:
    return Resources(wishes=Wishes(num_gpus=1), **more)  # type: ignore[arg-type]


def test_every_job_is_told_its_own_cards(site: Site) -> None:
    line = "echo $SLURMD_NODENAME:$DIBS_GPUS:$GPU >> cards; until test -e go; do sleep 0.05; done"
    many = [site.submission(line, wanted=_a_card()) for _ in range(6)]

    site.backend.submit(many)
    wait_until(lambda: len(site.wait_for("cards").split()) == 6, show=lambda: site.wait_for("cards"), seconds=60)
    nodes = site.backend.nodes()

    expected = [f"n{node}:{card}:cuda{card}" for node in (1, 2, 3) for card in (0, 1)]
    assert sorted(site.wait_for("cards").split()) == expected
    assert [(node.name, node.gpus[0].total, node.gpus[0].used) for node in nodes] == [
        ("n1", 2, 2),
        ("n2", 2, 2),
        ("n3", 2, 2),
    ]


def test_a_job_without_gpus_sees_none_and_nothing_of_the_submitters_slurm_job(site: Site) -> None:
    ref = site.start('echo "[$CUDA_VISIBLE_DEVICES] [$SLURM_FOREIGN] $SLURM_JOB_NAME"; exit 0')

    site.record(ref)

    assert site.log(ref) == f"[] [] dibs-{ref.key}.1\n"


def test_a_job_that_waits_says_why(site: Site) -> None:
    running = [site.submission(HOLD, wanted=_a_card()) for _ in range(6)]
    site.backend.submit(running)
    for one in running:
        site.wait(one.ref, Phase.RUNNING)

    ref = site.start("true", wanted=_a_card(time_limit=30.0))

    wait_until(
        lambda: site.look(ref).reason == "other jobs have what it needs",
        show=lambda: site.look(ref),
    )
    assert site.look(ref).phase is Phase.QUEUED


def test_a_queued_job_that_is_cancelled_never_runs(site: Site) -> None:
    running = [site.submission(HOLD, wanted=_a_card()) for _ in range(6)]
    site.backend.submit(running)
    for one in running:
        site.wait(one.ref, Phase.RUNNING)
    ref = site.start("echo ran > ran", wanted=_a_card())

    site.backend.cancel([ref])
    record = site.record(ref)

    assert (record["by"], record["message"]) == ("stop", "cancelled before it started")
    assert not (site.workdir / "ran").exists()


def test_what_is_held_waits_until_it_is_released_and_nothing_else_of_its_array_does(
    site: Site, slurm: PrivateSlurm
) -> None:
    slurm.ask("scontrol", "update", "partitionname=gpu", "state=down")
    many = [
        site.submission("true", key=key) for key in (f"{site.mark}-8", *(f"{site.mark}-9_{n}" for n in (0, 1)))
    ]
    refs = [one.ref for one in many]
    site.backend.submit(many)

    for _ in range(2):
        site.backend.hold(refs[:2])
    held = [site.look(ref).is_held for ref in refs]
    slurm.ask("scontrol", "update", "partitionname=gpu", "state=up")
    site.wait(refs[2], Phase.ENDED)
    still = [site.look(ref).is_held for ref in refs[:2]]
    for _ in range(2):
        site.backend.hold(refs, release=True)
    for ref in refs[:2]:
        site.wait(ref, Phase.ENDED)

    assert held == [True, True, False]
    assert still == [True, True]


def test_what_slurm_has_is_looked_for_before_it_is_submitted(site: Site, slurm: PrivateSlurm) -> None:
    slurm.ask("scontrol", "update", "partitionname=gpu", "state=down")
    single = site.submission("true")
    many = [single, *(site.submission("true", key=f"{site.mark}-9_{task}") for task in range(4))]

    site.backend.submit(many[:3])
    for row in slurm.ask("squeue", "-h", "-o", "%A %j").splitlines():  # a site may rewrite either
        number, name = row.split()
        what = "comment" if name.endswith("-9.1") else "name"
        slurm.ask("scontrol", "update", f"jobid={number}", f"{what}=rewritten")
    site.backend = slurm_backend(slurm, site.root)  # it forgot what it did, or crashed before it knew
    answers = [site.backend.submit(many), site.backend.submit(many)]
    names = slurm.ask("squeue", "-h", "-r", "-o", "%j %K").splitlines()
    slurm.ask("scontrol", "update", "partitionname=gpu", "state=up")

    assert all(answer.accepted == {one.ref for one in many} for answer in answers)
    array = f"dibs-{site.mark}-9.1"
    assert sorted(names) == sorted(["rewritten N/A", *(f"{array} {task}" for task in range(4))])


def test_somebody_elses_scancel_is_told_from_ours(site: Site, slurm: PrivateSlurm) -> None:
    ref = site.start("echo here > here; sleep 1000")
    site.wait_for("here")

    slurm.ask("scancel", f"--name=dibs-{ref.key}.1")
    seen = site.wait(ref, Phase.ENDED)

    assert (seen.cause, seen.reason) == (Cause.KILLED, "it was cancelled in Slurm")
    assert seen.record is not None and seen.record["signal"] == signal.SIGTERM


def test_a_thousand_jobs_are_one_array(site: Site, slurm: PrivateSlurm) -> None:
    line = "echo $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID >> ../ran; exit $((SLURM_ARRAY_TASK_ID % 7))"
    many = [site.submission(line, key=f"{site.mark}-9_{task}") for task in range(1000)]
    refs = [one.ref for one in many]

    answer = site.backend.submit(many)
    again = site.backend.submit(many)

    def ended() -> int:
        return sum(seen.phase is Phase.ENDED for seen in site.backend.observe(refs).values())

    # Of so many short ones each costs an interpreter: some dozens tell as much as all, in a fraction of the time.
    wait_until(lambda: ended() >= 40, show=ended, seconds=170)
    site.backend.cancel(refs)
    wait_until(lambda: ended() == 1000, show=ended, seconds=170)

    assert answer.accepted == again.accepted == set(refs)
    ran = [line.split() for line in (site.root / "ran").read_text().splitlines()]
    tasks = sorted(int(task) for _, task in ran)
    assert len(tasks) >= 40
    assert len(set(tasks)) == len(tasks), "one of them ran twice"
    assert len({array for array, _ in ran}) == 1
    records = [site.backend.observe([refs[task]])[refs[task]].record or {} for task in tasks[:30]]
    assert [record["code"] for record in records] == [task % 7 for task in tasks[:30]]
    left = [refs[task] for task in range(1000) if task not in tasks][:50]
    assert {(site.backend.observe([ref])[ref].record or {})["by"] for ref in left} == {"stop"}


def test_a_turn_submits_some_dozens_and_the_next_one_goes_on(site: Site, slurm: PrivateSlurm) -> None:
    slurm.ask("scontrol", "update", "partitionname=gpu", "state=down")
    many = [site.submission("true", wanted=Resources(priority=number)) for number in range(60)]

    first = site.backend.submit(many)
    second = site.backend.submit(many)
    slurm.ask("scontrol", "update", "partitionname=gpu", "state=up")

    assert first.accepted == {one.ref for one in many[10:]}, "those of higher priority go first"
    assert second.accepted == {one.ref for one in many}
    assert not (first.refused or first.put_off or second.refused or second.put_off)


def test_a_folder_that_cannot_be_read_puts_one_job_off_and_no_other(site: Site) -> None:
    bad, good = site.submission("true"), site.submission("true")
    (site.root / "attempts/0").mkdir(parents=True)
    Path(bad.ref.folder).touch()

    answer = site.backend.submit([bad, good])

    assert answer.accepted == {good.ref}
    assert answer.put_off[bad.ref].startswith("cannot look into its folder: ")
    assert site.look(bad.ref).phase is Phase.QUEUED, "a file system that is away is no reason to give up"
    assert site.record(good.ref)["code"] == 0


def test_elements_beyond_slurms_numbers_and_retries_keep_their_names(site: Site) -> None:
    line = "echo $SLURM_JOB_NAME:${SLURM_ARRAY_TASK_ID-none} >> names"
    keys = [f"{site.mark}-7_{task}" for task in (1000, 1001, 1002, 5005, 5006)]
    many = [site.submission(line, key=key) for key in keys]

    site.backend.submit(many)
    for one in many:
        site.record(one.ref)
    site.record(site.start(line, key=keys[1], attempt=2))

    assert sorted(site.wait_for("names").split()) == sorted(
        [
            f"dibs-{site.mark}-7_1000.1:none",  # alone in its block
            f"dibs-{site.mark}-7+1001.1:0",
            f"dibs-{site.mark}-7+1001.1:1",
            f"dibs-{site.mark}-7+5005.1:0",
            f"dibs-{site.mark}-7+5005.1:1",
            f"dibs-{site.mark}-7_1001.2:none",
        ]
    )


def test_one_element_of_an_array_is_cancelled_alone(site: Site) -> None:
    many = [site.submission(HOLD, key=f"{site.mark}-8_{task}") for task in range(3)]
    site.backend.submit(many)
    for one in many:
        site.wait(one.ref, Phase.RUNNING)
    wait_until(lambda: len(site.wait_for("here").split()) == 3)

    site.backend.cancel([many[1].ref])
    stopped = site.record(many[1].ref)
    (site.workdir / "go").touch()

    assert stopped["by"] == "stop"
    assert [site.record(one.ref)["code"] for one in (many[0], many[2])] == [0, 0]


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        (Resources(options=(("partition", "nope"),)), "there is no partition nope"),
        (Resources(wishes=Wishes(gpu_type="h300")), "no node has GPUs of type h300"),
        (Resources(wishes=Wishes(num_gpus=9)), "no node has as much as it asks for"),
        (Resources(options=(("constraint", "nope"),)), "no node has the feature nope"),
        (Resources(options=(("nodelist", "nope"),)), "there is no such node: nope"),
    ],
)
def test_what_slurm_refuses_is_one_sentence(site: Site, wanted: Resources, sentence: str) -> None:
    bad, good = site.submission("true", wanted=wanted), site.submission("true")

    answer = site.backend.submit([bad, good])

    assert answer.accepted == {good.ref}
    error = answer.refused[bad.ref]
    assert error.message == f"cannot run this on Slurm: {sentence}"
    assert error.remedy


def test_a_node_without_our_python_is_named(site: Site, slurm: PrivateSlurm) -> None:
    site.backend = slurm_backend(slurm, site.root, patience=0.5, python="/no/such/python")
    ref = site.start("true")

    seen = site.wait(ref, Phase.LOST)

    assert (seen.cause, seen.never_started) == (Cause.START_ERROR, False)
    assert seen.reason.startswith(
        f"the Python of dibs is not there on {seen.node}: backends.slurm.python names it ("
    )
    assert "/no/such/python" in seen.reason


def test_a_folder_that_the_node_does_not_see_is_named(site: Site, slurm: PrivateSlurm) -> None:
    one = site.submission("true")
    site.backend = slurm_backend(slurm, site.root, patience=0.5)
    slurm.ask("scontrol", "update", "partitionname=gpu", "state=down")
    site.backend.submit([one])
    os.rename(one.ref.folder, f"{one.ref.folder}.elsewhere")
    slurm.ask("scontrol", "update", "partitionname=gpu", "state=up")

    seen = site.wait(one.ref, Phase.LOST)

    assert (seen.cause, seen.never_started) == (Cause.START_ERROR, False), seen
    assert "is backends.slurm.root on a file system that all nodes share?" in seen.reason


def test_a_node_that_sees_nothing_of_the_state_folder_is_tried_once(site: Site, slurm: PrivateSlurm) -> None:
    """Not even the folder for what goes wrong, so that Slurm itself cannot start it."""
    one = site.submission("true")
    site.backend = slurm_backend(slurm, site.root, patience=0.5)
    slurm.ask("scontrol", "update", "partitionname=gpu", "state=down")
    site.backend.submit([one])
    for path in (Path(one.ref.folder), site.root / "slurm"):
        path.rename(f"{path}.elsewhere")
    slurm.ask("scontrol", "update", "partitionname=gpu", "state=up")

    seen = site.wait(one.ref, Phase.LOST)

    assert (seen.cause, seen.never_started) == (Cause.START_ERROR, False), seen
    assert "is backends.slurm.root on a file system that all nodes share?" in seen.reason


def test_without_slurm_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.backends.slurm.controller._FOLDERS", ())
    place = SlurmBackend(SlurmSettings(root=str(tmp_path)), Commands({"PATH": str(tmp_path)}))

    with pytest.raises(BackendMissing, match="cannot use Slurm: there is no squeue on this machine"):
        place.observe([])


def test_a_slurm_that_is_not_set_up_is_one_sentence(tmp_path: Path, slurm: PrivateSlurm) -> None:
    environment = {**slurm.environment, "SLURM_CONF": f"{tmp_path}/none.conf"}
    place = SlurmBackend(SlurmSettings(root=str(tmp_path)), Commands(environment))

    with pytest.raises(BackendMissing, match="cannot use Slurm: it is not set up here"):
        place.observe([])


def test_a_controller_that_takes_calls_and_says_nothing_is_left_alone_for_a_while(
    tmp_path: Path, slurm: PrivateSlurm
) -> None:
    text = (slurm.folder / "etc/slurm.conf").read_text()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        lines = [line for line in text.splitlines() if not line.startswith(("SlurmctldPort", "MessageTimeout"))]
        (tmp_path / "slurm.conf").write_text("\n".join([*lines, f"SlurmctldPort={port}", "MessageTimeout=100"]))
        environment = {**slurm.environment, "SLURM_CONF": f"{tmp_path}/slurm.conf"}
        calls: list[float] = []
        now = [0.0]
        commands = Commands(environment, deadline=0.5, clock=lambda: now[0])
        place = SlurmBackend(SlurmSettings(root=str(tmp_path)), commands)
        for moment in (0.0, 1.0, 2.5, 5.0, 7.0):
            now[0] = moment
            before = _accepted(mute)
            with pytest.raises(BackendSilent, match=r"controller: no answer within 0\.5 seconds"):
                place.observe([])
            if _accepted(mute) or before:
                calls.append(moment)

    # The first pause is two seconds, the next one four.
    assert calls == [0.0, 2.5, 7.0]


def _accepted(server: socket.socket) -> int:
    """How many have called since the last time we looked."""
    server.setblocking(False)
    number = 0
    while True:
        try:
            connection, _ = server.accept()
        except BlockingIOError:
            return number
        connection.close()
        number += 1


def test_options_and_limits_arrive_in_slurm(site: Site, slurm: PrivateSlurm) -> None:
    wishes = Wishes(num_gpus=2, cpus=3, mem=100 * 1024 * 1024 + 1)
    wanted = Resources(wishes=wishes, time_limit=61.0, priority=-7, avoid=("n1",), options=(("partition", "gpu"),))
    ref = site.start("echo here > here; until test -e go; do sleep 0.05; done", wanted=wanted)
    site.wait_for("here")

    shown = slurm.ask("scontrol", "show", "job").split("JobId=")
    row = next(text for text in shown if f"JobName=dibs-{ref.key}.1\n" in text)

    for part in (
        "TimeLimit=00:02:00",
        "Nice=7",
        "ExcNodeList=n1",
        "Requeue=0",
        "cpu=3,mem=101M",
        "TresPerNode=gres:gpu:2",
    ):
        assert part in row
