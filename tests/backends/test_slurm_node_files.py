"""What attempts take along to nodes that share no file system with us, what comes back, and what does not."""

import io
import json
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.private_slurm import PrivateSlurm
from backends.private_sshd import PrivateSshd
from backends.sites import Site, fetching_backend, node_root
from dibs.backends.protocol import AttemptRef, Phase
from dibs.backends.slurm import ssh
from dibs.backends.slurm.files import NotReached
from dibs.backends.slurm.mirror import LEFT_BEHIND, AttemptFiles, belongings
from dibs.backends.slurm.ssh import NodeAnswer
from dibs.errors import BackendRefused
from dibs.supervise import fence, node_files, node_sync
from dibs.supervise.folder import RECORD_SIZE, encode_record
from dibs.worker_thread import wait_in_thread
from stories.outside import PATIENCE, World, wait_until

RECORD = encode_record({"v": 1, "state": "ended", "code": 0}).decode()


# -- what a node may say -----------------------------------------------------------------------------------


def _checked(own: AttemptFiles, pieces: list[tuple[str, Any, bytes]] | None = None, **found: Any) -> None:
    usual = {"holder": "n1", "record": RECORD, "cut": {}}
    ssh.checked("n1", "k.1.1", own, NodeAnswer({"k.1.1": usual | found}, {"k.1.1": pieces or []}))


@pytest.fixture
def own(tmp_path: Path) -> AttemptFiles:
    (tmp_path / "attempt").mkdir()
    return AttemptFiles(
        folder=str(tmp_path / "attempt"),
        result="result-1",
        call=str(tmp_path / "call"),
        checkpoint=str(tmp_path / "checkpoints/0/1"),
        output=str(tmp_path / "out"),
    )


def test_what_was_asked_for_is_taken(own: AttemptFiles) -> None:
    pieces = [("stdout", 7, b"abc"), ("result-1", 0, b"abc"), ("checkpoint/a/b", 1, b"bc")]

    _checked(own, pieces, checkpoint={"a/b": [3, 1]}, cut={"stdout": [4096, 8192]}, brought={"call": 3})


@pytest.mark.parametrize(
    "name",
    [
        *("record", "handed", "started", "result-2", "", "/etc/passwd", "../stdout", "stdout/../../x"),
        *("checkpoint/other", "checkpoint/../record", "checkpoint//etc/passwd", "checkpoint"),
    ],
)
def test_a_piece_of_another_file_is_not_taken(own: AttemptFiles, name: str) -> None:
    with pytest.raises(NotReached, match="node n1 gives an answer over ssh that it was not asked for"):
        _checked(own, [(name, 0, b"x")], checkpoint={"a": [1, 1]})


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b", "a//b", ".", "..", "", "a/.", "a\0b", "a" * 1001])
def test_a_checkpoint_has_no_name_that_leads_out_of_it(own: AttemptFiles, name: str) -> None:
    with pytest.raises(NotReached):
        _checked(own, [(f"checkpoint/{name}", 0, b"x")], checkpoint={name: [1, 1]})


@pytest.mark.parametrize(
    "found",
    [
        {"checkpoint": {"a": [node_files.MOST_BYTES + 1, 1]}},
        {"checkpoint": {str(number): [0, 1] for number in range(node_files.MOST_FILES + 1)}},
        {"checkpoint": {"a": [-1, 1]}},
        {"checkpoint": {"a": [1, 2**63]}},
        {"checkpoint": ["a"]},
        {"record": RECORD + '{"words": ["rm"]}'},
        {"record": "x" * RECORD_SIZE},
        {"holder": "-oProxyCommand=x"},
        {"holder": 5},
        {"cut": {"../x": [0, 1]}},
        {"cut": {"stdout": [5, 1]}},
        {"excess": {"checkpoint": "much"}},
    ],
)
def test_what_makes_no_sense_is_not_taken(own: AttemptFiles, found: dict[str, Any]) -> None:
    with pytest.raises(NotReached):
        _checked(own, **found)


@pytest.mark.parametrize("piece", [("stdout", -1, b"x"), ("stdout", "0", b"x"), ("checkpoint/a", 2, b"xx")])
def test_a_piece_has_its_place_in_the_file(own: AttemptFiles, piece: tuple[str, Any, bytes]) -> None:
    with pytest.raises(NotReached):
        _checked(own, [piece], checkpoint={"a": [3, 1]})


def test_who_wants_no_checkpoint_is_given_none(tmp_path: Path) -> None:
    with pytest.raises(NotReached):
        _checked(AttemptFiles(folder=str(tmp_path)), [("checkpoint/a", 0, b"x")], checkpoint={"a": [1, 1]})


# -- which files travel -----------------------------------------------------------------------------------


def test_a_link_counts_as_the_file_inside_that_it_leads_to_and_what_leads_out_or_waits_does_not(
    tmp_path: Path,
) -> None:
    folder, outside = tmp_path / "saved", tmp_path / "saved too"
    (folder / "deep").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (folder / "deep/one").write_text("one")
    (folder / "last").symlink_to("deep/one")
    (folder / "out").symlink_to("../saved too/secret")
    (folder / "all").symlink_to(outside)
    (folder / "gone").symlink_to("nothing")
    os.mkfifo(folder / "pipe")

    found = node_files.found_below(str(folder))

    assert {name: size for name, (size, _) in found.items()} == {"deep/one": 3, "last": 3}


def test_a_variable_that_somebody_set_himself_is_no_folder_of_ours(tmp_path: Path) -> None:
    ref = AttemptRef("k-1", 1, f"{tmp_path}/attempts/0/1.1")
    streams = {"stdout": f"{ref.folder}/stdout", "stderr": f"{ref.folder}/stderr"}
    spec = {"words": ["true"], "env": {"DIBS_CHECKPOINT_DIR": "/home"}, **streams}

    own = belongings(ref, spec | {"umask": 0o022})

    assert (own.checkpoint, own.call, own.output) == ("", "", "")


def test_output_that_cannot_be_written_is_refused_in_a_sentence(own: AttemptFiles, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()

    with pytest.raises(BackendRefused, match=r"cannot write its output to .*/out: Is a directory"):
        own.check()


def test_what_came_back_takes_the_place_of_what_was_there(own: AttemptFiles, tmp_path: Path) -> None:
    for path, text in {own.checkpoint: "old", f"{own.folder}/checkpoint": "new"}.items():
        os.makedirs(path)
        Path(path, text).write_text(text)

    own.unpack("n1", {"checkpoint": {"new": [3, 1]}}, "/there")
    first = os.listdir(own.checkpoint)
    own.unpack("n1", {}, "/there")  # a node whose package is older says nothing of it
    second = os.listdir(own.checkpoint)
    own.unpack("n1", {"checkpoint": {}}, "/there")

    assert (first, second, os.listdir(own.checkpoint)) == (["new"], ["new"], [])


@pytest.mark.parametrize(
    ("file", "start", "expected"),
    [("call", 2, b"abcd"), ("call", 3, b"ab"), ("record", 0, b"ab"), ("../other/call", 0, b"ab")],
)
def test_a_node_takes_the_next_piece_of_what_it_waits_for_and_nothing_else(
    tmp_path: Path, file: str, start: int, expected: bytes
) -> None:
    folder = tmp_path / "attempts/k-1.1.1"
    folder.mkdir(parents=True)
    (folder / node_files.AWAITS).write_text(json.dumps({"call": [4, 1], "../other/call": [2, 1]}))
    (folder / "call").write_bytes(b"ab")
    bring = {"k-1.1.1": [[file, start, 2]], "../k-1.1.1": [["call", 2, 2]]}
    asked = {"root": str(tmp_path), "most": 1, "asked": {}, "drop": [], "bring": bring}

    node_sync.main(io.BytesIO(json.dumps(asked).encode() + b"\ncdxx"), io.BytesIO())

    assert (folder / "call").read_bytes() == expected
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["attempts", "awaits", "call", "k-1.1.1"]


REPLACED = ("record", "stdout.cut", node_files.AWAITS)  # what a node reads whole in the folder of an attempt


@pytest.mark.parametrize("name", REPLACED)
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_a_job_put_in_the_place_of_a_file_delays_nothing_on_a_node_and_is_not_followed(
    tmp_path: Path, name: str, kind: str
) -> None:
    replaced, other = (tmp_path / f"attempts/k-1.{number}.1" for number in (1, 2))
    contents = {"record": RECORD, "stdout.cut": "4096 8192\n", node_files.AWAITS: '{"call": [4, 1]}'}
    for folder in (replaced, other):
        folder.mkdir(parents=True)
        (folder / "stdout").write_bytes(b"x" * 9000)
        for file, content in contents.items():
            (folder / file).write_text(content)
    (replaced / name).unlink()
    if kind == "pipe":
        os.mkfifo(replaced / name)
    else:
        (replaced / name).symlink_to(other / name)
    wish = {"have": {}, "final": True, "bound": [1, 1]}
    asked = {"root": str(tmp_path), "most": 0, "drop": [], "asked": {"k-1.1.1": wish, "k-1.2.1": wish}}
    answer = io.BytesIO()

    wait_in_thread(lambda: node_sync.main(io.BytesIO(json.dumps(asked).encode()), answer), PATIENCE, "test")

    found = json.loads(answer.getvalue().split(b"\n", 2)[2])
    seen = {
        attempt: (one["has_record"], "stdout" in one["cut"], "brought" in one) for attempt, one in found.items()
    }
    assert seen == {"k-1.1.1": tuple(file != name for file in REPLACED), "k-1.2.1": (True, True, True)}


@pytest.mark.parametrize("content", ["[", "5", '["\\u0000"]', "\udcff", "[" * 100_000])
def test_a_list_of_awaited_files_that_a_job_wrote_delays_nothing_on_a_node(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "attempts/k-1.1.1"
    folder.mkdir(parents=True)
    (folder / node_files.AWAITS).write_text(content, errors="surrogateescape")
    (folder / "record").write_text(RECORD)
    wish = {"have": {}, "final": True, "bound": [1, 1]}
    asked = {"root": str(tmp_path), "most": 0, "drop": [], "asked": {"k-1.1.1": wish}}
    answer = io.BytesIO()

    node_sync.main(io.BytesIO(json.dumps(asked).encode()), answer)

    assert json.loads(answer.getvalue().split(b"\n", 2)[2])["k-1.1.1"]["record"] == RECORD


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_a_job_put_in_the_place_of_its_fence_is_not_read_and_still_says_that_it_started(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / "target").write_text(fence.CANCELLED)
    if kind == "pipe":
        os.mkfifo(tmp_path / fence.STARTED)
    else:
        (tmp_path / fence.STARTED).symlink_to(tmp_path / "target")

    assert wait_in_thread(lambda: fence.holder(str(tmp_path)), PATIENCE, "test") == ""


# -- with a Slurm ------------------------------------------------------------------------------------------


@pytest.fixture
def site(world: World, slurm: PrivateSlurm, sshd: PrivateSshd) -> Iterator[Site]:
    root = Path(world.folder) / "run"
    yield Site(root, fetching_backend(slurm, sshd, root))
    slurm.clear()


def _env(site: Site) -> dict[str, str]:
    return {"DIBS_CHECKPOINT_DIR": f"{site.root}/checkpoints/0/1", "DIBS_ATTEMPT": "1"}


def test_what_is_too_big_stays_on_its_node_and_that_is_said(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_files, "MOST_BYTES", 2_000_000)
    calls = site.root / "calls/1"
    calls.mkdir(parents=True)
    (calls / "call").write_text("{}")
    # A call with another program in the place of Python.
    line = 'head -c 3000000 /dev/zero | tee "$2/result-1" > "$DIBS_CHECKPOINT_DIR/state"'
    words = ["bash", "-c", line, "/x/dibs/api/work.py", "--f", str(calls)]
    ref = site.start("", words=words, env=_env(site))
    site.record(ref)
    site.backend.observe([])

    again = site.submission("true", key=ref.key, attempt=2, env=_env(site))
    refused = site.backend.submit([again]).refused[again.ref]

    left = node_root(site.root) / f"attempts/{ref.key}.1.1"
    head = json.loads((calls / "result-1").read_bytes())
    where = f"{site.look(ref).node} in {left}"
    assert (left / "checkpoint/state").stat().st_size == 3_000_000
    assert head["kind"] == "refused"
    assert head["message"].endswith(f"has 2M, too much to be fetched; it is still on node {where}/result-1")
    assert refused.message.startswith("cannot go on from its checkpoint: it has more than the 1M in 2000 files")
    assert refused.message.endswith(f"(2M), and is still on node {where}/checkpoint")
    (site.root / "checkpoints/0/1" / LEFT_BEHIND).unlink()
    assert site.backend.submit([again]).accepted == {again.ref}
    assert site.record(again.ref)["code"] == 0


def test_a_call_with_a_python_that_is_not_there_is_made_by_that_of_the_node(site: Site) -> None:
    calls = site.root / "calls/1"
    calls.mkdir(parents=True)
    about = {"python": sys.version_info[:2], "path": [], "name": "f", "function": "os:getpid", "is_runner": False}
    (calls / "call").write_bytes(json.dumps(about).encode() + b"\n" + pickle.dumps((None, (), {})))
    words = ["/no/such/python", "/no/such/source/dibs/api/work.py", "--f", str(calls)]

    record = site.record(site.start("", words=words))

    head, _, data = (calls / "result-1").read_bytes().partition(b"\n")
    assert (record["code"], json.loads(head)["kind"]) == (0, "value")
    assert pickle.loads(data) == record["pid"]


def test_what_is_too_big_to_be_carried_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_files, "MOST_FILES", 2)
    one = site.submission("true", env=_env(site))
    folder = site.root / "checkpoints/0/1"
    folder.mkdir(parents=True)
    for name in "abc":
        (folder / name).touch()

    refused = site.backend.submit([one]).refused[one.ref]

    assert refused.message.startswith("cannot carry its function or its checkpoint to a node: 1M in 3 files, and")


def test_one_that_is_cancelled_while_it_waits_for_its_luggage_never_starts(site: Site) -> None:
    folder = site.root / "checkpoints/0/1"
    folder.mkdir(parents=True)
    (folder / "state").write_bytes(bytes(2_000_000))
    ref = site.start("echo ran > ran", env=_env(site))
    there = node_root(site.root) / f"attempts/{ref.key}.1.1"
    wait_until(lambda: (there / node_files.AWAITS).exists(), seconds=60)  # nobody looks, so nothing is brought

    site.backend.cancel([ref])
    record = site.record(ref)

    assert record["message"] == "cancelled before it started"
    wait_until(lambda: not there.exists(), show=lambda: os.listdir(there))
    assert not (site.workdir / "ran").exists()


def test_what_is_brought_in_pieces_arrives_whole_with_empty_files_and_its_times(
    site: Site, slurm: PrivateSlurm, sshd: PrivateSshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dibs.backends.slurm.ssh.MOST", 600_000)
    folder = site.root / "checkpoints/0/1"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/state").write_bytes(os.urandom(2_000_000))
    (folder / "empty é\udcff").touch()
    os.utime(folder / "deep/state", (1e9, 1e9))
    before = (folder / "deep/state").read_bytes()

    ref = site.start('cd "$DIBS_CHECKPOINT_DIR" && ls && stat -c %Y deep/state && rm empty*', env=_env(site))
    site.backend = fetching_backend(slurm, sshd, site.root)  # whoever comes after a crash brings it as well
    seen = site.wait(ref, Phase.ENDED)

    assert (seen.record or {})["code"] == 0
    assert Path(ref.folder, "stdout").read_bytes() == "deep\nempty é\udcff\n1000000000\n".encode(
        "utf-8", "surrogateescape"
    )
    assert (folder / "deep/state").read_bytes() == before
    assert os.listdir(folder) == ["deep"]
