"""What the verbs must do at every place where attempts run.

On this machine, on a real Slurm, and on one whose nodes share no file system with us.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.private_slurm import PrivateSlurm
from backends.sites import LocalVerbs, Site, fetching_backend, node_root, slurm_backend
from dibs.backends.protocol import Phase
from dibs.backends.slurm.backend import SlurmBackend
from stories.outside import World, wait_until
from supervise.hands import is_alive

# Three generations that leave the session, the group and the parent, ignore TERM, and say who they are.
LEAVE = r"""
trap '' TERM
echo $$ >> pids
test $1 = 0 || setsid nohup bash leave.sh $(($1 - 1)) >/dev/null 2>&1 </dev/null &
test $1 != 1 || exit
while :; do sleep 0.2; done
"""


@pytest.fixture(params=["local", "slurm", "slurm over ssh"])
def site(request: pytest.FixtureRequest, world: World) -> Iterator[Site]:
    root = Path(world.folder) / "run"
    if request.param == "local":
        local = LocalVerbs(root)
        yield Site(root, local)
        local.close()
    else:
        yield Site(root, _slurm(root, request, over_ssh=request.param != "slurm"))


def _slurm(root: Path, request: pytest.FixtureRequest, *, over_ssh: bool) -> SlurmBackend:
    slurm: PrivateSlurm = request.getfixturevalue("slurm")
    if over_ssh:
        return fetching_backend(slurm, request.getfixturevalue("sshd"), root)
    return slurm_backend(slurm, root)


def _another_engine(site: Site, request: pytest.FixtureRequest) -> Site:
    """The same folder, and nothing remembered."""
    if isinstance(site.backend, LocalVerbs):
        site.backend.close()
        site.backend = LocalVerbs(site.root)
    else:
        site.backend = _slurm(site.root, request, over_ssh=node_root(site.root).exists())
    return site


def test_the_exit_record_decides_the_outcome(site: Site) -> None:
    ref = site.start("echo out; echo err >&2; exit 4")

    record = site.record(ref)

    assert (record["state"], record["code"], record["signal"], record["by"]) == ("ended", 4, None, "")
    assert (site.log(ref), site.log(ref, "stderr")) == ("out\n", "err\n")


def test_what_cannot_be_started_is_over_and_says_why(site: Site) -> None:
    ref = site.start("", words=["/no/such/program"])

    record = site.record(ref)

    assert (record["by"], record["message"]) == (
        "start",
        "cannot start /no/such/program: No such file or directory",
    )


def test_submitting_again_is_submitting_once(site: Site, request: pytest.FixtureRequest) -> None:
    one = site.submission("echo ran >> ran; until test -e go; do sleep 0.05; done; exit 6")

    answers = [site.backend.submit([one])]
    site.wait_for("ran")
    answers.append(site.backend.submit([one]))
    answers.append(_another_engine(site, request).backend.submit([one]))
    (site.workdir / "go").touch()
    record = site.record(one.ref)
    answers.append(site.backend.submit([one]))

    assert [answer.accepted for answer in answers] == [{one.ref}] * 4
    assert site.look(one.ref).phase is Phase.ENDED
    assert record["code"] == 6
    assert (site.workdir / "ran").read_text() == "ran\n"


def test_what_was_never_submitted_never_started(site: Site) -> None:
    ref = site.submission("true").ref

    seen = site.wait(ref, Phase.LOST)

    assert seen.never_started and seen.reason


def test_one_look_at_many_does_not_mix_them_up(site: Site) -> None:
    many = [site.submission(f"echo {number}; exit {number}") for number in range(12)]

    answer = site.backend.submit(many)
    refs = [one.ref for one in many]
    wait_until(lambda: all(seen.phase is Phase.ENDED for seen in site.backend.observe(refs).values()), seconds=60)
    seen = site.backend.observe(refs)

    assert answer.accepted == set(refs)
    # The local shims tell it once; then it stands in the folder.
    assert [site.log(ref) for ref in refs] == [f"{number}\n" for number in range(12)]
    assert [(seen[ref].record or {})["code"] for ref in refs] == list(range(12))


def test_attempts_of_one_job_are_apart(site: Site) -> None:
    first = site.start("exit 1", key="one-job")
    site.record(first)

    second = site.start("exit 2", key="one-job", attempt=2)

    assert site.record(second)["code"] == 2
    assert site.record(first)["code"] == 1


def test_who_runs_is_seen_running(site: Site) -> None:
    ref = site.start("echo here > here; until test -e go; do sleep 0.05; done")
    site.wait_for("here")

    seen = site.look(ref)
    (site.workdir / "go").touch()

    assert (seen.phase, seen.record) == (Phase.RUNNING, None)
    assert site.record(ref)["code"] == 0


def test_a_stop_gives_grace_and_is_recorded(site: Site) -> None:
    ref = site.start("trap 'echo saved; exit 3' TERM; echo here > here; while :; do sleep 0.05; done")
    site.wait_for("here")

    site.backend.cancel([ref])
    record = site.record(ref)

    assert (record["code"], record["by"]) == (3, "stop")
    assert site.log(ref) == "saved\n"


def test_who_insists_does_not_wait_for_the_grace(site: Site) -> None:
    ref = site.start("trap '' TERM; echo here > here; while :; do sleep 0.05; done", grace=1000.0)
    site.wait_for("here")
    site.backend.cancel([ref])

    site.backend.cancel([ref], insist=True)
    record = site.record(ref)

    assert (record["signal"], record["by"]) == (signal.SIGKILL, "stop")


def test_nothing_of_a_hostile_tree_is_left_behind(site: Site) -> None:
    (site.workdir / "leave.sh").write_text(LEAVE)
    ref = site.start("exec bash leave.sh 2", grace=0.2)
    wait_until(lambda: len(_pids(site)) == 3, show=lambda: _pids(site))

    site.backend.cancel([ref])
    record = site.record(ref)

    assert record["by"] == "stop"
    wait_until(lambda: not any(map(is_alive, _pids(site))), show=lambda: _pids(site))


def test_the_time_limit_is_the_shims(site: Site) -> None:
    ref = site.start("sleep 1000", time_limit=0.2, grace=0.2)

    record = site.record(ref)

    assert record["by"] == "time"


def test_another_engine_finds_what_was_left_behind(site: Site, request: pytest.FixtureRequest) -> None:
    ref = site.start("echo here > here; until test -e go; do sleep 0.05; done; exit 7")
    site.wait_for("here")

    other = _another_engine(site, request)
    before = other.look(ref).phase
    (site.workdir / "go").touch()

    assert before is Phase.RUNNING
    assert other.record(ref)["code"] == 7


def test_a_supervisor_that_is_killed_leaves_a_lost_attempt(site: Site) -> None:
    ref = site.start("echo $PPID > shim; sleep 1000")
    shim = int(site.wait_for("shim"))

    os.kill(shim, signal.SIGKILL)
    seen = site.wait(ref, Phase.LOST)

    assert seen.reason and not seen.never_started


def test_there_is_a_node(site: Site) -> None:
    nodes = site.backend.nodes()

    assert nodes and all(node.is_usable and node.cpus for node in nodes)


def _pids(site: Site) -> list[int]:
    path = site.workdir / "pids"
    return [int(line) for line in path.read_text().split()] if path.exists() else []
