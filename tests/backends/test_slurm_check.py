"""Whether Slurm would ever take a job, and that a node to be avoided is no reason to have none. A real Slurm."""

import logging
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.private_slurm import PrivateSlurm
from backends.sites import NO_GPU, Site, slurm_backend
from dibs.backends.protocol import Phase, Resources
from dibs.backends.slurm.backend import SlurmBackend, SlurmSettings
from dibs.backends.slurm.controller import Commands
from dibs.backends.slurm.root_mark import forget_below
from dibs.errors import BackendMissing, BackendRefused, BackendSilent
from dibs.model.jobs import Cause, Wishes
from stories.outside import NOBODY, World, needs_root, wait_until

GIB = 1024**3
HOLD = "echo $SLURMD_NODENAME >> here; until test -e go; do sleep 0.05; done; exit 5"
pytestmark = pytest.mark.parametrize("slurm", [{"nodes": 2, "kind": "h200"}], indirect=True)


@pytest.fixture
def site(world: World, slurm: PrivateSlurm) -> Iterator[Site]:
    root = Path(world.folder) / "run"
    one = Site(root, slurm_backend(slurm, root))
    slurm.ask("scontrol", "create", "partitionname=closed", "nodes=n1", "allowaccounts=lab")
    slurm.ask("scontrol", "create", "partitionname=narrow", "nodes=n1,n2", "maxnodes=1")
    # One that was drained a moment ago does not answer yet.
    wait_until(lambda: all(node.is_usable for node in one.backend.nodes()), show=one.backend.nodes)
    yield one
    slurm.ask("scontrol", "update", "partitionname=gpu", "state=up", "maxtime=infinite")
    slurm.clear()


def _with(*options: tuple[str, str], **wishes: object) -> Resources:
    return Resources(wishes=Wishes(**wishes), options=options)  # type: ignore[arg-type]


def test_a_job_that_fits_is_told_when_it_would_start_and_is_not_submitted(site: Site, slurm: PrivateSlurm) -> None:
    free = site.backend.check(_with(num_gpus=2))
    fillers = [site.submission("sleep 1000", wanted=Resources(time_limit=3600.0, wishes=Wishes(num_gpus=2)))] * 2
    fillers[1] = site.submission("sleep 1000", wanted=fillers[0].wanted)
    site.backend.submit(fillers)
    for one in fillers:
        site.wait(one.ref, Phase.RUNNING)
    full = site.backend.check(_with(num_gpus=2))
    jobs = slurm.ask("squeue", "-h", "-o", "%j").split()

    assert free.node in ("n1", "n2") and free.expected_start is not None
    assert abs(free.expected_start - time.time()) < 300
    assert free.sentence == f"it would start at once on {free.node}"
    assert full.expected_start is not None and full.expected_start > time.time() + 1800
    assert full.sentence.startswith("it would start in about ")
    assert len(jobs) == 2


@pytest.mark.parametrize(
    ("wanted", "sentence", "remedy"),
    [
        (_with(("partition", "nope")), "there is no partition nope", "`sinfo -s`"),
        (_with(("constraint", "nope")), "no node has the feature nope", "`sinfo"),
        (_with(("nodelist", "nope")), "there is no such node: nope", "`sinfo -N`"),
        (_with(("nodelist", "n1,n2")), "all nodes of n1,n2, and a job of dibs runs on one", "name one"),
        (_with(("exclude", "nope")), "there is no such node: nope", "`sinfo -N`"),
        (_with(("exclude", "n1,n2")), "no node is left of those that it may use", "`sinfo"),
        (_with(("reservation", "nope")), "there is no reservation nope for you", "`scontrol"),
        (_with(("licenses", "nope")), "there is no licence nope", "`scontrol"),
        (_with(gpu_type="a100"), "no node has GPUs of type a100", "there are h200"),
        (_with(num_gpus=3), "no node has 3 GPUs; the most is 2", "`sinfo"),
        (_with(num_gpus=3, gpu_type="h200"), "no node has 3 h200 GPUs; the most is 2", "`sinfo"),
        (_with(cpus=5), "no node has 5 CPUs; the most is 4", "`sinfo"),
        (_with(("nodes", "3")), "it asks for 3 nodes, and it may use 2", "`sinfo"),
        (_with(("partition", "narrow"), ("nodes", "2")), "2 nodes, and partition narrow gives a job 1", "`sinfo"),
        (_with(("nodes", "2"), ("gpus", "5")), "no 2 nodes have 5 GPUs together; the most is 4", "`sinfo"),
        (_with(("nodes", "1-2"), ("gpus", "a100:2")), "no node has a100 GPUs", "`sinfo"),
        (_with(("nodes", "2"), ("gpus-per-task", "h200:3")), "no node has 3 h200 GPUs; the most is 2", "`sinfo"),
        (_with(("ntasks", "5"), ("gpus-per-task", "1")), "no 2 nodes have 5 GPUs together", "`sinfo"),
        (
            _with(("nodes", "2"), ("ntasks-per-node", "5")),
            "no 2 nodes have 10 CPUs together; the most is 8",
            "`sinfo",
        ),
        (
            _with(("ntasks-per-gpu", "2"), num_gpus=0),
            "--ntasks-per-tres needs either a GRES GPU",
            "--ntasks-per-gpu",
        ),
        (_with(("from-a-newer-slurm", "3")), "unrecognized option '--from-a-newer-slurm=3'", "--from-a-newer"),
        (_with(mem=100 * GIB), "no node has 100 GiB of memory; the most is 3.91 GiB", "`sinfo"),
        (_with(("wrap", "x")), "cannot tell Slurm about 'wrap'", "`sbatch --help`"),
        (
            _with(("nodelist", "n1"), ("exclude", "n[1-2]")),
            "on n1, which it is to avoid: --nodelist and",
            "take it",
        ),
        (
            _with(("partition", "closed")),
            "the partition closed is closed to a user without an account",
            "`scontrol",
        ),
        (_with(("partition", "closed"), ("account", "other")), "is closed to the account other", "--account"),
    ],
)
def test_what_can_never_run_is_refused_in_one_sentence(
    site: Site, wanted: Resources, sentence: str, remedy: str
) -> None:
    with pytest.raises(BackendRefused) as refused:
        site.backend.check(wanted)

    assert sentence in refused.value.message and "\n" not in refused.value.message
    assert refused.value.message.startswith("cannot ")
    assert remedy in (refused.value.remedy or "")


@needs_root
def test_a_partition_that_is_closed_to_our_groups_is_refused(
    site: Site, slurm: PrivateSlurm, tmp_path: Path
) -> None:
    """As somebody else: Slurm refuses nothing to the user that it runs as."""
    slurm.ask("scontrol", "create", "partitionname=grouped", "nodes=n1", "allowgroups=mail")
    program = shutil.which("sbatch")
    words = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups {program}"
    (tmp_path / "sbatch").write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    (tmp_path / "sbatch").chmod(0o755)
    environment = {**slurm.environment, "PATH": f"{tmp_path}{os.pathsep}{slurm.environment['PATH']}"}
    place = SlurmBackend(SlurmSettings(root=str(site.root)), Commands(environment))

    with pytest.raises(BackendRefused) as refused:
        place.check(_with(("partition", "grouped")))
    answer = place.submit([site.submission("true", wanted=_with(("partition", "grouped")))])
    open_one = place.check(_with(("partition", "gpu")))

    message = "cannot run this on Slurm: the partition grouped is closed to your groups"
    assert refused.value.message == message
    assert [error.message for error in answer.refused.values()] == [message]
    assert "would start" in open_one.sentence


def test_a_time_limit_above_the_partitions_is_refused_though_slurm_would_take_it(
    site: Site, slurm: PrivateSlurm
) -> None:
    slurm.ask("scontrol", "update", "partitionname=gpu", "maxtime=10")
    wishes = Wishes(num_gpus=0)

    with pytest.raises(BackendRefused) as refused:
        site.backend.check(Resources(wishes=wishes, time_limit=1200.0))
    fits = site.backend.check(Resources(wishes=wishes, time_limit=600.0))

    message = "cannot run this on Slurm: its time limit of 20 minutes is above the 10 minutes of partition gpu"
    assert refused.value.message == message
    assert fits.expected_start is not None


def test_a_job_whose_nodes_are_down_is_not_refused(site: Site, slurm: PrivateSlurm) -> None:
    slurm.ask("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
    drained = site.backend.check(_with(("nodelist", "n2")))
    # A script's number of cards for all of its nodes is a wish, too.
    spread = [_with(("nodes", "2"), ("gpus", "4"), num_gpus=4), _with(("ntasks", "4"), ("gpus", "4"), num_gpus=4)]
    of_all = [site.backend.check(one) for one in (*spread, _with(("ntasks", "8")))]
    slurm.ask("scontrol", "update", "nodename=n2", "state=resume")
    closed = []
    for state in ("down", "drain"):
        slurm.ask("scontrol", "update", "partitionname=gpu", f"state={state}")
        closed.append(site.backend.check(NO_GPU))
    put_off = site.backend.submit([site.submission("true")]).put_off

    assert drained.sentence == "Slurm would take it, but the nodes that it needs are down or drained"
    assert of_all == [drained] * 3
    assert {one.sentence for one in closed} == {"Slurm would take it, but its partition starts no jobs now"}
    assert {one.expected_start for one in (drained, *closed)} == {None}
    assert "Required partition not available" in "".join(put_off.values()), (
        "a drained partition is open again later"
    )


def test_a_retry_runs_on_the_same_node_where_no_other_is_left(site: Site, slurm: PrivateSlurm) -> None:
    avoid = Resources(wishes=Wishes(num_gpus=0), avoid=("n1",))
    elsewhere = site.start("echo $SLURMD_NODENAME", wanted=avoid)
    site.record(elsewhere)

    slurm.ask("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
    drained = site.start("echo $SLURMD_NODENAME", wanted=avoid)
    site.record(drained)
    both = site.start("echo $SLURMD_NODENAME", wanted=Resources(wishes=Wishes(num_gpus=0), avoid=("n1", "n2")))
    site.record(both)
    gone = site.start("echo $SLURMD_NODENAME", wanted=Resources(wishes=Wishes(num_gpus=0), avoid=("no-more",)))
    site.record(gone)

    assert [site.log(ref) for ref in (elsewhere, drained, both, gone)] == ["n2\n", "n1\n", "n1\n", "n1\n"]


def test_an_attempt_that_runs_tells_its_cards_and_its_folder_is_read_once(site: Site) -> None:
    ref = site.start("echo $DIBS_GPUS > cards; until test -e go; do sleep 0.05; done", wanted=_with(num_gpus=2))
    site.wait_for("cards")

    first = site.wait(ref, Phase.RUNNING)
    (Path(ref.folder) / "started").rename(f"{ref.folder}/started.away")
    second = site.look(ref)
    (Path(ref.folder) / "started.away").rename(f"{ref.folder}/started")
    (site.workdir / "go").touch()
    ended = site.wait(ref, Phase.ENDED)

    assert (first.gpus, second.gpus, ended.gpus) == ("0,1", "0,1", "0,1")


@pytest.mark.parametrize("is_remembered", [False, True])
def test_a_root_that_is_not_mounted_is_no_reason_to_give_anything_up(
    site: Site, slurm: PrivateSlurm, tmp_path: Path, is_remembered: bool
) -> None:
    memory = str(tmp_path / "mark") if is_remembered else ""
    site.backend = slurm_backend(slurm, site.root, patience=0.0, memory=memory)
    ref = site.start("exit 3")
    site.record(ref)
    new = site.submission("true")
    if is_remembered:  # another engine knows it, too
        site.backend = slurm_backend(slurm, site.root, patience=0.0, memory=memory)

    site.root.rename(site.root.with_name("away"))
    site.root.mkdir()
    for act in (lambda: site.backend.observe([ref]), lambda: site.backend.submit([new])):
        with pytest.raises(BackendSilent, match="as if it were not mounted"):
            act()
    left = list(site.root.iterdir())
    site.root.rmdir()
    site.root.with_name("away").rename(site.root)

    assert left == [], "nothing is written to the wrong disk"
    assert site.record(ref)["code"] == 3
    assert site.backend.submit([new]).accepted == {new.ref}


def test_a_mark_that_a_cleaner_removed_is_left_anew_where_attempts_are(
    site: Site, slurm: PrivateSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []  # not by `caplog`: xdist cannot carry a report with a name in it that is no UTF-8
    logger = logging.getLogger("dibs.slurm")
    monkeypatch.setattr(logger, "info", lambda text, *words: said.append(text % words))
    memory = str(tmp_path / "mark")
    site.backend = slurm_backend(slurm, site.root, memory=memory)
    ref = site.start(HOLD)
    site.wait_for("here")
    mark = site.root / ".dibs-root"
    was = mark.read_text()

    mark.unlink()
    seen, now = site.look(ref).phase, mark.read_text()
    mark.unlink()
    other = site.start("exit 4")  # nothing but the folder itself is asked about
    (site.workdir / "go").touch()

    assert (seen, now, mark.read_text()) == (Phase.RUNNING, was, was)
    assert said == [f"the mark in {site.root} was gone: left it anew"] * 2
    assert (site.record(ref)["code"], site.record(other)["code"]) == (5, 4)


def test_a_mark_that_is_another_one_is_never_replaced(site: Site, slurm: PrivateSlurm) -> None:
    site.backend = slurm_backend(slurm, site.root, patience=0.0)
    ref = site.start("exit 3")
    site.record(ref)

    (site.root / ".dibs-root").write_text("of another disk\n")

    with pytest.raises(BackendSilent, match="as if it were not mounted"):
        site.look(ref)
    assert (site.root / ".dibs-root").read_text() == "of another disk\n"


def test_a_root_that_is_gone_for_good_is_in_nobody_elses_way_and_kill_ends_what_was_there(
    site: Site, slurm: PrivateSlurm, tmp_path: Path
) -> None:
    memory = str(tmp_path / "mark")
    site.backend = slurm_backend(slurm, site.root, memory=memory, patience=0.5)
    runs = site.start(HOLD)
    site.wait_for("here")
    waits = site.submission("true")
    site.root.rename(site.root.with_name("gone"))
    other = Site(tmp_path / "other", slurm_backend(slurm, tmp_path / "other", memory=memory, patience=0.5))
    fresh = other.submission("exit 2")

    submitted = other.backend.submit([waits, fresh])
    seen = other.backend.observe([runs, fresh.ref])
    record = other.record(fresh.ref)
    other.backend.cancel([runs, waits.ref])
    ends = [other.wait(ref, Phase.LOST) for ref in (runs, waits.ref)]

    assert submitted.accepted == {fresh.ref}
    assert "is not the folder that it was" in submitted.put_off[waits.ref]
    assert seen[runs].phase is Phase.RUNNING, "Slurm has it, and that is enough to know"
    assert record["code"] == 2
    assert [(one.cause, one.never_started) for one in ends] == [(Cause.KILLED, False)] * 2
    assert not site.root.exists(), "nothing is written to the wrong disk"


def test_what_was_removed_with_its_cluster_is_lost_at_once_and_what_was_not_handed_over_comes_again(
    site: Site, slurm: PrivateSlurm, tmp_path: Path
) -> None:
    memory = str(tmp_path / "mark")
    base = site.root.parent / "cluster-1"
    site = Site(base / "attempts", slurm_backend(slurm, base / "attempts", memory=memory))
    runs = site.start("sleep 1000")
    waits = site.submission("true")
    slurm.ask("scancel", f"--user={os.getuid()}")
    wait_until(lambda: not slurm.ask("squeue", "-h").strip())
    shutil.rmtree(base)

    forget_below(memory, str(base), is_gone=True)
    old = site.backend.observe([runs])[runs]
    with pytest.raises(BackendSilent, match="was removed with its cluster"):
        site.backend.submit([waits])
    other = Site(tmp_path / "other", slurm_backend(slurm, tmp_path / "other", memory=memory))
    new = other.submission("exit 2")
    accepted = other.backend.submit([waits, new]).accepted
    again = other.look(waits.ref)

    assert (old.phase, old.cause, old.never_started) == (Phase.LOST, Cause.LOST, False)
    assert accepted == {waits.ref, new.ref}
    assert (again.phase, again.never_started) == (Phase.LOST, True)
    assert other.record(new.ref)["code"] == 2
    assert not base.exists()
    assert str(base) not in "".join(other.backend.roots)


def test_another_root_is_no_missing_one(site: Site, slurm: PrivateSlurm, tmp_path: Path) -> None:
    memory = str(tmp_path / "mark")
    slurm_backend(slurm, site.root, memory=memory).submit([site.submission("true")])
    (tmp_path / "other").mkdir()
    (tmp_path / "file").touch()

    other = Site(tmp_path / "other", slurm_backend(slurm, tmp_path / "other", memory=memory))
    bad = slurm_backend(slurm, tmp_path / "file/below")

    assert other.record(other.start("exit 2"))["code"] == 2
    with pytest.raises(BackendMissing, match="cannot write below"):
        bad.submit([site.submission("true")])


def test_who_is_gone_is_doubted_anew_when_the_controller_comes_back(site: Site, slurm: PrivateSlurm) -> None:
    now = [0.0]
    place = SlurmBackend(
        SlurmSettings(root=str(site.root), patience=60.0), Commands(slurm.environment), clock=lambda: now[0]
    )
    ref = site.submission("true").ref
    phases = [place.observe([ref])[ref].phase]
    slurm.kill_controller()
    with pytest.raises(BackendSilent):
        place.observe([ref])
    with pytest.raises(BackendSilent):
        SlurmBackend(SlurmSettings(root=str(site.root)), Commands(slurm.environment)).check(NO_GPU)

    now[0] = 1000.0
    slurm.start_controller()
    wait_until(lambda: "is UP" in slurm.ask("scontrol", "ping"))
    place = _same_with_new_commands(place, slurm)
    phases.append(place.observe([ref])[ref].phase)
    now[0] = 1061.0
    phases.append(place.observe([ref])[ref].phase)

    assert phases == [Phase.QUEUED, Phase.QUEUED, Phase.LOST]


def _same_with_new_commands(place: SlurmBackend, slurm: PrivateSlurm) -> SlurmBackend:
    """Its pause after a call that nobody answered is over."""
    place._commands = Commands(slurm.environment)
    return place


def test_without_slurm_there_is_one_sentence_about_that(
    slurm: PrivateSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dibs.backends.slurm.controller._FOLDERS", ())
    place = SlurmBackend(SlurmSettings(root=str(tmp_path)), Commands({"PATH": str(tmp_path)}))

    with pytest.raises(BackendMissing, match="cannot use Slurm: there is no sbatch on this machine"):
        place.check(NO_GPU)
