"""What every backend must do: this machine, a real Slurm, and one whose nodes share no file system with us.

The fakes of the engine's tests keep the part of the contract that needs no processes.
"""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.sites import NO_GPU, FakeClusterSite, FakeMachineSite, LocalSite, Site, SlurmSite
from dibs.backends.protocol import Backend, Phase
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


REAL = ["local", "slurm", "slurm over ssh"]


@pytest.fixture(params=REAL)
def site(request: pytest.FixtureRequest, world: World) -> Iterator[Site]:
    yield from _make(request, world)


@pytest.fixture(params=[*REAL, "fake machine", "fake cluster"])
def any_site(request: pytest.FixtureRequest, world: World) -> Iterator[Site]:
    yield from _make(request, world)


def _make(request: pytest.FixtureRequest, world: World) -> Iterator[Site]:
    root = Path(world.folder) / "run"
    if request.param == "local":
        local = LocalSite(root)
        local.backend.make_ready()
        yield local
        local.close()
    elif request.param.startswith("fake"):
        yield FakeMachineSite(root) if request.param == "fake machine" else FakeClusterSite(root)
    else:
        sshd = request.getfixturevalue("sshd") if request.param == "slurm over ssh" else None
        yield SlurmSite(root, request.getfixturevalue("slurm"), sshd)


# -- the verbs -------------------------------------------------------------------------------------------


def test_submitting_again_is_submitting_once(any_site: Site) -> None:
    one = any_site.held(code=6)

    answers = [any_site.backend.submit([one])]
    any_site.wait_until_running(one.ref)
    answers.append(any_site.backend.submit([one]))
    any_site.renew()
    answers.append(any_site.backend.submit([one]))
    any_site.let_end(one.ref)
    record = any_site.record(one.ref)
    answers.append(any_site.backend.submit([one]))

    assert [answer.accepted for answer in answers] == [{one.ref}] * 4
    assert any_site.look(one.ref).phase is Phase.ENDED
    assert record["code"] == 6
    assert any_site.starts(one.ref) == 1


def test_what_was_never_submitted_never_started(any_site: Site) -> None:
    one = any_site.held(code=0)
    any_site.prepare(one)

    seen = any_site.wait(one.ref, Phase.LOST)

    assert seen.never_started and seen.reason


def test_one_look_at_many_does_not_mix_them_up(any_site: Site) -> None:
    """Nor two attempts of one job."""
    many = [any_site.held(code=number) for number in range(11)]
    many.append(any_site.held(code=11, key=many[0].ref.key, attempt=2))
    refs = [one.ref for one in many]

    answer = any_site.backend.submit(many)
    for ref in refs:
        any_site.wait_until_running(ref)
        any_site.let_end(ref)
    for ref in refs:
        any_site.wait(ref, Phase.ENDED)
    seen = any_site.backend.observe(refs)

    assert answer.accepted == set(refs)
    assert [(seen[ref].record or {})["code"] for ref in refs] == list(range(12))


def test_a_cancelled_attempt_ends_and_its_record_says_so(any_site: Site) -> None:
    one = any_site.held(code=0)
    any_site.backend.submit([one])
    any_site.wait_until_running(one.ref)

    any_site.backend.cancel([one.ref])

    assert any_site.record(one.ref)["by"] == "stop"


def test_another_engine_finds_what_was_left_behind(any_site: Site) -> None:
    one, done = any_site.held(code=7), []
    any_site.backend.submit([one])
    any_site.wait_until_running(one.ref)

    any_site.renew()
    before = [any_site.look(one.ref) for _ in range(5)]  # looking does not disturb it
    is_watched = any_site.backend.watch(one.ref, lambda: done.append(1))
    any_site.let_end(one.ref)
    record = any_site.record(one.ref)

    assert {(seen.phase, seen.record is None) for seen in before} == {(Phase.RUNNING, True)}
    assert record["code"] == 7
    if is_watched:
        wait_until(lambda: any_site.look(one.ref) and done)


def test_a_supervisor_that_is_killed_leaves_a_lost_attempt(any_site: Site) -> None:
    one = any_site.held(code=0)
    any_site.backend.submit([one])
    any_site.wait_until_running(one.ref)

    any_site.kill_shim(one.ref)
    seen = any_site.wait(one.ref, Phase.LOST)
    any_site.let_end(one.ref)

    assert seen.reason and not seen.never_started


def test_what_is_not_asked_about_may_be_a_stray_and_is_removed(any_site: Site) -> None:
    one = any_site.held(code=0)
    any_site.backend.submit([one])
    any_site.wait_until_running(one.ref)

    any_site.backend.observe([one.ref])
    known = any_site.backend.strays(any_site.mark)
    any_site.backend.observe([])
    strays = any_site.backend.strays(any_site.mark)
    any_site.backend.remove_strays(strays)
    if not strays:  # a backend that brings nothing back has none
        any_site.backend.cancel([one.ref])

    assert list(known) == []
    assert set(strays) <= {(one.ref.key, one.ref.attempt)}
    assert any_site.record(one.ref)


def test_a_hold_leaves_alone_what_has_started(any_site: Site) -> None:
    one = any_site.held(code=5)
    any_site.backend.submit([one])
    any_site.wait_until_running(one.ref)

    any_site.backend.hold([one.ref])
    seen = any_site.look(one.ref)
    any_site.backend.hold([one.ref], release=True)
    any_site.let_end(one.ref)

    assert (seen.phase, seen.is_held) == (Phase.RUNNING, None)
    assert any_site.record(one.ref)["code"] == 5


def test_there_is_a_node_that_would_accept_an_attempt(any_site: Site) -> None:
    any_site.backend.make_ready()

    assert any_site.backend.check(NO_GPU).sentence
    assert any(node.is_usable for node in any_site.backend.nodes())


# -- what the shim does on each of them ------------------------------------------------------------------


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


def _pids(site: Site) -> list[int]:
    path = site.workdir / "pids"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_the_documents_name_the_verbs_of_the_protocol() -> None:
    verbs = [name for name in vars(Backend) if not name.startswith("_")]
    root = Path(__file__).parents[2]
    page, contributing = (
        (root / "docs/explanation/backends.md").read_text(),
        (root / "CONTRIBUTING.md").read_text(),
    )
    in_page = re.findall(r"^\| `(\w+)\(", page, re.MULTILINE)
    entry = re.search(r"^- \*\*a backend\*\*.*?(?=^- )", contributing, re.MULTILINE | re.DOTALL)
    assert entry is not None

    assert in_page == re.findall(r"`(\w+)`", entry[0]) == verbs
