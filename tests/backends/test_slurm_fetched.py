"""Nodes that share no file system with us: everything goes with the script and comes back over ssh."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.private_slurm import PrivateSlurm
from backends.private_sshd import PrivateSshd
from backends.sites import Site, fetching_backend, node_root, slurm_backend
from dibs.backends.protocol import Phase, Resources
from dibs.backends.slurm.backend import SlurmSettings
from dibs.backends.slurm.fetched import FetchedFiles
from dibs.backends.slurm.ssh import NodeQuery, Ssh
from dibs.errors import BackendMissing
from dibs.model.jobs import Cause, Wishes
from dibs.supervise import fence
from stories.outside import World, wait_until

HOLD = "echo here >> here; until test -e go; do sleep 0.05; done"


@pytest.fixture
def site(world: World, slurm: PrivateSlurm, sshd: PrivateSshd) -> Iterator[Site]:
    root = Path(world.folder) / "run"
    one = Site(root, fetching_backend(slurm, sshd, root))
    yield one
    (one.workdir / "go").touch()
    slurm.clear()


def _folders(site: Site) -> list[str]:
    return sorted(os.listdir(node_root(site.root) / "attempts"))


def test_output_comes_while_it_runs_and_the_rest_with_the_record(site: Site) -> None:
    card = Resources(wishes=Wishes(num_gpus=2))
    ref = site.start(f"echo one; {HOLD}; echo two; echo bad >&2; exit 4", wanted=card)
    site.wait_for("here")

    seen = site.wait(ref, Phase.RUNNING)
    wait_until(lambda: (site.look(ref), site.log(ref))[1] == "one\n", show=lambda: site.log(ref))
    cards = site.look(ref).gpus
    before = set(os.listdir(ref.folder))
    (site.workdir / "go").touch()
    record = site.record(ref)

    assert (record["code"], record["node"], record["gpus"]) == (4, seen.node, "0,1")
    assert cards == "0,1"
    assert (site.log(ref), site.log(ref, "stderr")) == ("one\ntwo\n", "bad\n")
    # The shim wrote to the node's folder: here is what was fetched, and nothing of its own.
    assert before == {"record", "handed", "started", "stdout", "stderr"}
    assert _folders(site) == [f"{ref.key}.1.1"]
    assert {"stdout", "environment.json"} <= set(os.listdir(node_root(site.root) / "attempts" / f"{ref.key}.1.1"))


def test_stderr_in_a_file_of_its_own_arrives_there(site: Site) -> None:
    named = f"{site.workdir}/%N.err"

    ref = site.start("echo out; echo err >&2", stderr=named)
    node = site.wait(ref, Phase.ENDED).node

    assert site.log(ref) == "out\n"
    assert (site.workdir / f"{node}.err").read_text() == "err\n"
    assert not (site.workdir / "%N.err").exists()


def test_paths_below_our_folders_are_paths_on_the_node(site: Site) -> None:
    one = site.submission("")
    line = (
        'echo "$DIBS_METRICS|$DIBS_CHECKPOINT_DIR|$OTHER"; cd "$DIBS_CHECKPOINT_DIR" && echo 0.5 > "$DIBS_METRICS"'
    )
    env = {
        "DIBS_METRICS": f"{one.ref.folder}/metrics",
        "DIBS_CHECKPOINT_DIR": f"{site.root}/checkpoints/0/1",
        "OTHER": "/x",
    }
    ref = site.start(line, key=one.ref.key, env=env)

    assert site.record(ref)["code"] == 0
    there = node_root(site.root)
    own = f"{there}/attempts/{ref.key}.1.1"
    said = f"{own}/metrics|{own}/checkpoint|/x\n"
    assert Path(ref.folder, "stdout").read_bytes() == os.fsencode(said)
    assert site.log(ref, "metrics") == "0.5\n"


def test_what_was_delivered_is_removed_from_the_node_and_still_cannot_start_again(
    site: Site, slurm: PrivateSlurm, sshd: PrivateSshd
) -> None:
    ref = site.start("echo ran >> ran")
    site.record(ref)
    left = _folders(site)

    site.backend = fetching_backend(slurm, sshd, site.root)  # whoever comes after a crash clears up as well
    site.backend.observe([])
    again = site.backend.submit([site.submission("echo ran >> ran", key=ref.key)])

    assert (left, _folders(site)) == ([f"{ref.key}.1.1"], [])
    assert (node_root(site.root) / "fences" / f"{ref.key}.1.1").read_text() == site.record(ref)["node"]
    assert again.accepted == {ref} and site.wait_for("ran") == "ran\n"


def test_big_and_binary_output_arrives_whole(site: Site) -> None:
    line = f"head -c {5 << 20} /dev/urandom | tee ../sent; printf 'a\\0\\377b' >&2"
    ref = site.start(line)

    site.record(ref)

    assert Path(ref.folder, "stdout").read_bytes() == (site.root / "sent").read_bytes()
    assert Path(ref.folder, "stderr").read_bytes() == b"a\0\xffb"


def test_more_than_a_round_takes_comes_in_several_and_no_record_before_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dibs.backends.slurm.ssh.MOST", 100_000)
    monkeypatch.setattr("dibs.backends.slurm.fetched._AT_A_STRETCH", 0.0)
    ref = site.start("head -c 350000 /dev/zero; echo >> done")
    site.wait_for("done")
    reasons = set()

    def is_over() -> bool:
        seen = site.look(ref)
        reasons.add(seen.reason)
        assert seen.phase is not Phase.ENDED or Path(ref.folder, "stdout").stat().st_size == 350_000
        return seen.phase is Phase.ENDED

    wait_until(is_over, show=lambda: reasons, seconds=60)

    assert any("its output is still on its way" in reason for reason in reasons)


def test_a_log_that_is_cut_on_the_node_is_cut_here(site: Site) -> None:
    write = "head -c {} /dev/zero | tr '\\0' x"
    ref = site.start(f"{write.format(60000)}; {HOLD}; {write.format(3000000)}; echo end", log_limit=65536)
    wait_until(lambda: (site.look(ref), site.log(ref))[1] == "x" * 60000, show=lambda: site.look(ref))

    (site.workdir / "go").touch()
    site.record(ref)

    log, cut = Path(ref.folder, "stdout").stat(), Path(ref.folder, "stdout.cut").read_text().split()
    assert (log.st_size, cut[0]) == (3_060_004, "16384")
    assert log.st_blocks * 512 < 80_000, "what the node gave back is no burden here"
    assert site.log(ref).startswith("x" * 16384 + "\0") and site.log(ref).endswith("xend\n")


def test_a_kill_reaches_what_runs_and_what_waits(site: Site, slurm: PrivateSlurm) -> None:
    running = site.start("trap 'echo saved; exit 3' TERM; echo here > here; while :; do sleep 0.05; done")
    site.wait_for("here")
    slurm.ask("scontrol", "update", "partitionname=gpu", "state=down")
    waiting = site.start("echo ran > ran")

    site.backend.cancel([running, waiting])
    records = [site.record(ref) for ref in (running, waiting)]
    slurm.ask("scontrol", "update", "partitionname=gpu", "state=up")

    assert (records[0]["code"], records[0]["by"], site.log(running)) == (3, "stop", "saved\n")
    assert records[1]["message"] == "cancelled before it started"
    assert not (site.workdir / "ran").exists()


def test_while_ssh_is_down_nothing_is_lost(site: Site, sshd: PrivateSshd) -> None:
    ref = site.start(f"{HOLD}; echo late; exit 7")
    site.wait_for("here")
    site.wait(ref, Phase.RUNNING)

    sshd.stop()
    (site.workdir / "go").touch()
    wait_until(
        lambda: "does not answer over ssh" in site.look(ref).reason, show=lambda: site.look(ref), seconds=60
    )
    meanwhile = site.look(ref)
    again = site.backend.submit([site.submission("true", key=ref.key)])
    sshd.start()
    record = site.record(ref)

    assert meanwhile.phase is Phase.RUNNING
    assert ref not in again.refused and site.wait_for("here") == "here\n"
    assert (record["code"], site.log(ref)) == (7, "late\n")


def test_a_node_that_stays_silent_loses_its_attempt_and_nobody_submits_it_again(
    site: Site, slurm: PrivateSlurm, sshd: PrivateSshd
) -> None:
    site.backend = fetching_backend(slurm, sshd, site.root, patience=0.1)
    ref = site.start("echo ran >> ran")
    site.wait_for("ran")

    sshd.stop()
    seen = site.wait(ref, Phase.LOST)
    put_off = site.backend.submit([site.submission("echo ran >> ran", key=ref.key)])
    sshd.start()

    assert (seen.cause, seen.never_started) == (Cause.LOST, False)
    assert "does not answer over ssh" in seen.reason
    assert ref not in put_off.accepted and "does not answer over ssh" in put_off.put_off[ref]
    assert site.wait_for("ran") == "ran\n"


def test_what_the_nodes_never_started_is_submitted_again_under_another_name(
    site: Site, slurm: PrivateSlurm, sshd: PrivateSshd
) -> None:
    slurm.ask("scontrol", "update", "partitionname=gpu", "state=down")
    one = site.submission("echo ran >> ran")
    site.backend.submit([one])
    wait_until(lambda: slurm.ask("squeue", "-h", "-o", "%j").strip())
    # As if the controller had forgotten it: the copy is there, and has no mark by which it could be found.
    (number,) = slurm.ask("squeue", "-h", "-o", "%i").split()
    slurm.ask("scontrol", "update", f"jobid={number}", "name=forgotten", "comment=forgotten")

    seen = site.wait(one.ref, Phase.LOST)
    answer = site.backend.submit([one])
    slurm.ask("scontrol", "update", "partitionname=gpu", "state=up")
    record = site.record(one.ref)
    wait_until(lambda: not slurm.ask("squeue", "-h", "-o", "%j").strip())

    assert seen.never_started
    assert answer.accepted == {one.ref}
    assert record["code"] == 0
    assert site.wait_for("ran") == "ran\n", "the forgotten copy was started beside the new one"
    assert fence.holder(str(node_root(site.root) / "fences"), f"{one.ref.key}.1.1") == fence.CANCELLED


def test_one_that_slurm_takes_back_does_not_run_on_another_node(site: Site, slurm: PrivateSlurm) -> None:
    ref = site.start("echo ran >> ran; sleep 1000")
    site.wait_for("ran")
    (number,) = slurm.ask("squeue", "-h", "-o", "%i", f"--name=dibs-{ref.key}.1").split()

    slurm.ask("scontrol", "update", f"jobid={number}", "requeue=1")
    slurm.ask("scontrol", "requeue", number)
    wait_until(lambda: slurm.ask("squeue", "-h", "-o", "%T", f"--jobs={number}").strip() == "PENDING")
    shutil.rmtree(node_root(site.root) / "fences")  # another node's disk: nothing stands there
    slurm.ask("scontrol", "update", f"jobid={number}", "starttime=now")
    wait_until(lambda: not slurm.ask("squeue", "-h", "-o", "%i", f"--jobs={number}").strip())

    assert site.wait_for("ran") == "ran\n"


def test_an_array_goes_with_one_script(site: Site) -> None:
    many = [site.submission(f"echo {task}; exit {task}", key=f"{site.mark}-9_{task}") for task in range(12)]
    refs = [one.ref for one in many]

    answer = site.backend.submit(many)
    wait_until(lambda: all(seen.phase is Phase.ENDED for seen in site.backend.observe(refs).values()), seconds=90)
    seen = site.backend.observe(refs)

    assert answer.accepted == set(refs)
    assert [(seen[ref].record or {})["code"] for ref in refs] == list(range(12))
    assert [site.log(ref) for ref in refs] == [f"{task}\n" for task in range(12)]


def test_a_mirror_that_cannot_be_read_puts_one_job_off_and_no_other(site: Site) -> None:
    bad, good = site.submission("true"), site.submission("true")
    (site.root / "attempts/0").mkdir(parents=True)
    Path(bad.ref.folder).touch()

    answer = site.backend.submit([bad, good])
    site.backend.cancel([bad.ref])

    assert answer.accepted == {good.ref}
    assert answer.put_off[bad.ref].startswith("cannot look into its folder: ")
    assert site.backend.observe([bad.ref, good.ref])[bad.ref].phase is Phase.QUEUED
    assert site.record(good.ref)["code"] == 0


def test_another_engine_goes_on(site: Site, slurm: PrivateSlurm, sshd: PrivateSshd) -> None:
    ref = site.start(f"echo one; {HOLD}; echo two; exit 6")
    site.wait_for("here")
    wait_until(lambda: (site.look(ref), site.log(ref))[1] == "one\n")

    site.backend = fetching_backend(slurm, sshd, site.root)
    before = site.look(ref)
    (site.workdir / "go").touch()

    assert before.phase is Phase.RUNNING
    assert site.record(ref)["code"] == 6
    assert site.log(ref) == "one\ntwo\n"


def test_a_node_without_room_for_us_is_named(site: Site, slurm: PrivateSlurm, sshd: PrivateSshd) -> None:
    node_root(site.root).mkdir()
    (node_root(site.root) / "attempts").touch()
    site.backend = fetching_backend(slurm, sshd, site.root, patience=0.2)

    seen = site.wait(site.start("true"), Phase.LOST)

    assert (seen.cause, seen.never_started) == (Cause.START_ERROR, False)
    assert seen.reason.startswith(f"it cannot write on {seen.node}: is backends.slurm.node_root a folder of yours")


def test_a_node_without_dibs_answers_nobody(site: Site, slurm: PrivateSlurm, sshd: PrivateSshd) -> None:
    site.backend = fetching_backend(slurm, sshd, site.root, patience=0.1, source="/no/such/source")
    ref = site.start("true")

    seen = site.wait(ref, Phase.LOST)

    assert (seen.cause, seen.never_started) == (Cause.LOST, False)
    assert "No module named 'dibs'" in seen.reason


def test_ssh_without_a_folder_on_the_nodes_is_one_sentence(slurm: PrivateSlurm, tmp_path: Path) -> None:
    with pytest.raises(BackendMissing, match="no folder on the nodes is named"):
        slurm_backend(slurm, tmp_path, ssh=("ssh",))


def test_a_node_that_does_not_answer_is_left_alone_for_a_while(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    program = tmp_path / "reach"
    program.write_text(f'#!/bin/sh\necho "$1" >> {calls}\necho no route >&2\nexit 255\n')
    program.chmod(0o755)
    now = [0.0]
    settings = SlurmSettings(root=str(tmp_path), ssh=(str(program), "{node}.lan"), node_root="/x")
    ssh = Ssh(settings, clock=lambda: now[0])

    for moment in (0.0, 1.0, 2.5, 5.0, 7.0):
        now[0] = moment
        answer = ssh.ask({"n1": NodeQuery()})["n1"]

    assert answer.fault == "node n1 does not answer over ssh: no route"
    assert calls.read_text() == "n1.lan\n" * 3


def test_a_login_shell_that_talks_disturbs_no_answer(tmp_path: Path) -> None:
    program = tmp_path / "reach"
    program.write_text('#!/bin/sh\necho "Welcome!"\neval "$2"\n')
    program.chmod(0o755)
    settings = SlurmSettings(root=str(tmp_path), ssh=(str(program),), node_root=str(tmp_path / "node"))

    answer = Ssh(settings).ask({"n1": NodeQuery({"k-1.1.1": {"have": {}}})})["n1"]

    assert (answer.fault, answer.found["k-1.1.1"]["holder"]) == ("", None)


def test_a_node_is_reached_under_another_name_and_this_machine_without_ssh(tmp_path: Path) -> None:
    program = tmp_path / "reach"
    program.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/calls\neval "$2"\n')
    program.chmod(0o755)
    destinations = (("n1", "me@host1"), ("n2", ""))
    settings = SlurmSettings(
        root=str(tmp_path), ssh=(str(program),), node_root=str(tmp_path / "node"), destinations=destinations
    )

    answers = Ssh(settings).ask({node: NodeQuery({"k-1.1.1": {"have": {}}}) for node in ("n1", "n2", "n3")})

    assert [answer.fault for answer in answers.values()] == ["", "", ""]
    assert sorted((tmp_path / "calls").read_text().split()) == ["me@host1", "n3"]


def test_nothing_is_asked_where_nothing_runs(tmp_path: Path) -> None:
    settings = SlurmSettings(root=str(tmp_path), ssh=("/no/such/program",), node_root="/x")
    files = FetchedFiles(settings, list)

    files.look({})

    assert files.output == "/dev/null"
