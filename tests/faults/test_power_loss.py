"""Power loss: whatever was acknowledged is there after any cut (faults.md, row 9).

A child works with a real store and a real journal while strace writes down what it tells the disk. Then the disk
is made again as it would be after a cut before each sync: what was synced is there, of the rest nothing or a part.
"""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dibs.errors import DibsError
from dibs.model.jobs import JobId
from dibs.store.journal import Journal, read
from dibs.store.journal_lines import numbers
from dibs.store.replay import catch_up
from dibs.store.store import Store
from faults.figures import record_figures

TESTS = Path(__file__).resolve().parent.parent
CALLS = (
    "openat,close,write,pwrite64,ftruncate,fsync,fdatasync,"
    "?link,linkat,?rename,renameat,renameat2,?unlink,unlinkat"  # those with a mark are not on every machine
)
# Every act is acknowledged once it has returned. Job 1 is cleaned away.
CHILD = textwrap.dedent(
    """
    import os, sys
    from dibs.model.jobs import Dependency, After, JobId
    from dibs.store.journal import Journal
    from store.builders import a_request
    from store.campaign import BAD, Books

    folder, plant = sys.argv[1:]
    if plant == "the journal is not synced":
        Journal.sync = lambda self: None
    books = Books(folder)
    if plant == "synchronous is normal":
        books.store._db.execute("pragma synchronous = normal")
    told = os.open(f"{folder}/told", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(act, *jobs):
        for job in jobs:
            os.write(told, b"%s %d\\n" % (act, job))

    def run(job, outcome=None):
        attempt = books.start(job)
        tell(b"start", job)
        books.end(attempt, *([outcome] if outcome else []))
        tell(b"end", job)

    tell(b"add", *(job.id for job in books.add(a_request("first"))))
    run(JobId(1))
    tell(b"add", *(job.id for job in books.add(a_request("second"), a_request("third"))))
    run(JobId(2), BAD)
    books.clean([JobId(1)])
    tell(b"clean", 1)
    books.compact()
    tell(b"add", *(job.id for job in books.add(a_request("fourth"))))
    run(JobId(3))
    books.start(JobId(4))
    tell(b"start", 4)
    books.close()
    """
)
ORDER = ("", "add", "start", "end", "clean")  # how far a job has come
STANDS = {"queued": 1, "running": 2, "succeeded": 3, "failed": 3}


def _can_trace() -> bool:
    """Whether strace is installed, and allowed to do its work: in some containers it is not."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True).returncode == 0


needs_strace = pytest.mark.skipif(not _can_trace(), reason="there is no strace that may trace")


# -- what a disk was told ----------------------------------------------------------------------------------


@dataclass
class File:
    """A file's content as programs see it, what of it is safe, and the changes in between."""

    now: bytearray = field(default_factory=bytearray)
    safe: bytes = b""
    changes: list[tuple[int, bytes | None]] = field(default_factory=list)  # no bytes: cut at that place

    def change(self, at: int, data: bytes | None) -> None:
        _apply(self.now, at, data)
        self.changes.append((at, data))

    def sync(self) -> None:
        self.safe = bytes(self.now)
        self.changes.clear()

    def after(self, kept: list[tuple[int, bytes | None]]) -> bytes:
        """What is there after a cut that let only these changes through."""
        content = bytearray(self.safe)
        for at, data in kept:
            _apply(content, at, data)
        return bytes(content)


@dataclass
class Handle:
    file: File | None  # None: a folder
    path: str
    appends: bool
    at: int = 0


Content = dict[str, bytes]


class Disk:
    """Takes calls in their order. A name is safe when its folder was synced, content when its file was."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.told: dict[int, int] = {}  # how far each job was acknowledged
        self._names: dict[str, File] = {}
        self._safe_names: dict[str, File] = {}
        self._handles: dict[int, Handle] = {}

    def cuts(self, trace: Path) -> Iterator[tuple[str, Content]]:
        """Before each sync and at the end: what may be there if the power goes at that moment."""
        number = 0
        for line in trace.read_text().splitlines():
            call = re.fullmatch(r"(\w+)\((.*)\) += (-?\d+).*", line)
            if call is None or int(call[3]) < 0:
                continue
            name, arguments, result = call[1], call[2], int(call[3])
            if name in ("fsync", "fdatasync") and int(arguments) in self._handles:
                number += 1
                yield from self._after_a_cut(f"before sync {number}")
            self._take(name, arguments, result)
        yield from self._after_a_cut("at the end")

    def _after_a_cut(self, moment: str) -> Iterator[tuple[str, Content]]:
        lost: list[tuple[int, bytes | None]] = []
        yield f"{moment}, all lost", self._content(self._safe_names, lambda file: lost)
        yield f"{moment}, names kept", self._content(self._names, lambda file: lost)
        yield f"{moment}, half kept", self._content(self._names, lambda file: _half(file.changes))
        yield f"{moment}, the last kept", self._content(self._names, lambda file: file.changes[-1:])

    def _content(self, names, kept) -> Content:
        return {path: file.after(kept(file)) for path, file in names.items() if not path.endswith("/told")}

    def _take(self, name: str, arguments: str, result: int) -> None:
        texts = [_bytes(text) for text in re.findall(r'"((?:\\x[0-9a-f]{2})*)"', arguments)]
        if name == "openat":
            self._open(os.fsdecode(texts[0]), arguments, result)
        elif name.startswith(("link", "rename", "unlink")):
            self._change_names(name, [os.fsdecode(text) for text in texts])
        elif (handle := self._handles.get(int(arguments.partition(",")[0]))) is None:
            return
        elif name == "close":
            del self._handles[int(arguments)]
        elif name in ("fsync", "fdatasync"):
            self._sync(handle)
        elif handle.file is not None:
            last = int(arguments.rpartition(",")[2])
            if name == "ftruncate":
                handle.file.change(last, None)
            elif name == "pwrite64":
                handle.file.change(last, texts[0][:result])
            else:
                self._write(handle, texts[0][:result])

    def _open(self, path: str, arguments: str, result: int) -> None:
        self._handles.pop(result, None)
        if path == self.folder:
            self._handles[result] = Handle(None, path, False)
        elif path.startswith(f"{self.folder}/"):
            file = self._names.setdefault(path, File())
            if "O_TRUNC" in arguments and file.now:
                file.change(0, None)
            self._handles[result] = Handle(file, path, "O_APPEND" in arguments)

    def _write(self, handle: Handle, data: bytes) -> None:
        assert handle.file is not None
        if handle.path.endswith("/told"):
            act, job = data.decode().split()
            self.told[int(job)] = ORDER.index(act)
        at = len(handle.file.now) if handle.appends else handle.at
        handle.file.change(at, data)
        handle.at = at + len(data)

    def _change_names(self, name: str, paths: list[str]) -> None:
        if not paths[0].startswith(f"{self.folder}/"):
            return
        file = self._names[paths[0]]
        if not name.startswith("unlink"):
            self._names[paths[1]] = file
        if not name.startswith("link"):
            del self._names[paths[0]]

    def _sync(self, handle: Handle) -> None:
        if handle.file is not None:
            handle.file.sync()
        else:
            self._safe_names = dict(self._names)


def _apply(content: bytearray, at: int, data: bytes | None) -> None:
    content.extend(bytes(max(0, at - len(content))))
    if data is None:
        del content[at:]
    else:
        content[at : at + len(data)] = data


def _half(changes: list[tuple[int, bytes | None]]) -> list[tuple[int, bytes | None]]:
    """The first half of them, and half of what was written next."""
    middle = len(changes) // 2
    torn = [(at, data and data[: len(data) // 2]) for at, data in changes[middle : middle + 1]]
    return changes[:middle] + torn


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


# -- the test ----------------------------------------------------------------------------------------------


def record(folder: Path, plant: str) -> Path:
    """Let the child work in a folder; what it told the disk."""
    folder.mkdir()
    (folder / "environments").mkdir()
    trace = folder.with_suffix(".trace")
    strace = ["strace", "-o", str(trace), "-xx", "-s", "10000000", "-e", f"trace={CALLS}"]
    subprocess.run(
        [*strace, sys.executable, "-c", CHILD, str(folder), plant],
        check=True,
        env={"PATH": os.defpath, "PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return trace


def what_is_lost(tmp_path: Path, plant: str = "") -> tuple[int, list[str]]:
    """How many cuts were tried, and what was missing after which."""
    disk = Disk(str(tmp_path / "queue"))
    complaints: list[str] = []
    cuts = 0
    again = tmp_path / "again"
    for moment, content in disk.cuts(record(tmp_path / "queue", plant)):
        cuts += 1
        shutil.rmtree(again, ignore_errors=True)
        again.mkdir()
        for path, data in content.items():
            (again / Path(path).name).write_bytes(data)
        complaints += [f"{moment}: {complaint}" for complaint in look(again, disk.told)]
    assert max(disk.told.values()) == ORDER.index("clean") and len(disk.told) == 4
    return cuts, complaints


def look(folder: Path, told: dict[int, int]) -> list[str]:
    """Open what is left as a daemon would; say what is missing of what was acknowledged."""
    try:
        with closing(Store(f"{folder}/store.db")) as store, closing(Journal(f"{folder}/journal.jsonl")) as journal:
            catch_up(store, journal)
            states = store.listing.states([JobId(number) for number in told])
    except (DibsError, OSError, sqlite3.Error) as error:
        return [f"cannot open it: {error}"]
    complaints = []
    for number, act in told.items():
        gone = ORDER.index("clean") if act >= ORDER.index("end") and number == 1 else 0
        stands = STANDS[states[JobId(number)]] if JobId(number) in states else gone
        if stands < act:
            complaints.append(
                f"job {number}: {ORDER[act]} was acknowledged, {ORDER[stands] or 'nothing'} is there"
            )
    with closing(sqlite3.connect(f"{folder}/store.db")) as db:
        (found,) = db.execute("pragma integrity_check").fetchone()
    if found != "ok":
        complaints.append(f"the store is damaged: {found}")
    in_journal = _added(folder)
    complaints += [f"job {number} is not in the journal" for number in told if number not in in_journal]
    return complaints


def _added(folder: Path) -> set[int]:
    """The jobs that the journal alone could make again, and those of which it knows that they are gone."""
    found: set[int] = set()
    for line in read(f"{folder}/journal.jsonl"):
        if line.body is not None and line.body["k"] == "add":
            found.update(range(line.body["first"], line.body["first"] + len(line.body["jobs"])))
        elif line.body is not None and line.body["k"] == "gone":
            found.update(numbers(line.body["jobs"]))
    return found


@needs_strace
def test_a_power_cut_at_any_sync_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    cuts, complaints = what_is_lost(tmp_path)

    assert complaints == []
    assert cuts > 60
    record_figures(
        "the power fails",
        "the writes of a daemon are replayed up to each sync, without what was not synced",
        times=cuts,
        jobs=4,
        result="nothing that was acknowledged is lost",
    )


@needs_strace
@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        ("synchronous is normal", "end was acknowledged"),
        ("the journal is not synced", "is not in the journal"),
    ],
)
def test_a_planted_bug_loses_something(tmp_path: Path, plant: str, expected: str) -> None:
    _, complaints = what_is_lost(tmp_path, plant)

    assert [complaint for complaint in complaints if expected in complaint], complaints
