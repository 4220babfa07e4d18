"""A store made again from the journal and the attempts' folders. The old one is put aside, never removed."""

import fcntl
import itertools
import json
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Protocol

from dibs.dataclass import dataclass
from dibs.errors import DibsError, FolderInUse, StoreUnusable
from dibs.files import sync_folder
from dibs.model.gpus import GPU_VARIABLES
from dibs.model.jobs import Attempt, Command, JobId, Request
from dibs.model.sweeps import SweepState
from dibs.model.units import show_ranges
from dibs.model.usage import Usage
from dibs.policy.outcomes import outcome_of, retry_after
from dibs.store import journal
from dibs.store.codec import encode_usage
from dibs.store.recorder import remember_position
from dibs.store.replay import Replay
from dibs.store.store import Store

_LOGS = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a store
_LINES_A_TURN = 2_000
_MOST_NAMED = 1_000  # missing things; a journal of garbage has no end of them
# Stands in the store's place while it is exchanged: what is no store is refused, and an empty place is not.
_FENCE = b"`dibs doctor --rebuild` was interrupted here; run it again.\n"


class RecordFacts(Protocol):
    """What an attempt's folder says (supervise/folder.py)."""

    @property
    def has_started(self) -> bool: ...
    @property
    def damage(self) -> str: ...
    @property
    def exit_record(self) -> dict[str, Any] | None: ...

    def is_of(self, job: int, attempt: int, opened_at: float | None) -> bool: ...


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What was restored, and what could not be."""

    jobs: int
    attempts: int
    missing: list[str]  # one sentence each
    old: str | None  # where the old store is now; None where there was none


def rebuild(
    folder: str,
    *,
    look: Callable[[str], RecordFacts],
    spec_of: Callable[[str], Mapping[str, Any] | None],
    now: float,
    used: Callable[[str], Usage | None] = lambda folder: None,
) -> RebuildReport:
    """Make the store of the queue in `folder` again; `look`, `spec_of` and `used` read an attempt's folder.

    What may have run is not queued again unless its owner declared that it may. Numbers go on after the highest
    that was ever given. FolderInUse while a daemon works here; then, and on every other error, nothing changed.
    """
    new = f"{folder}/store.db.rebuilt"
    with _daemon_lock(folder):
        _remove(new)  # of a rebuild that was interrupted
        try:
            work = _Rebuilding(folder, Store(new), look, spec_of, now, used)
            try:
                report = work.run()
            finally:
                work.store.close()
            with open(new, "rb") as file:
                os.fsync(file.fileno())
            old = _exchange(folder, new, now)
        except OSError as error:
            raise StoreUnusable(
                f"cannot rebuild the store in {folder}: {error.strerror}",
                remedy="check the disk (`df -h`); the old store is still there",
            ) from error
        finally:
            _remove(new)
    return RebuildReport(*report, old)


class _Rebuilding:
    """One rebuild, on its way."""

    def __init__(
        self,
        folder: str,
        store: Store,
        look: Callable[[str], RecordFacts],
        spec_of: Callable[[str], Mapping[str, Any] | None],
        now: float,
        used: Callable[[str], Usage | None],
    ) -> None:
        self.store = store
        self._folder = folder
        self._look = look
        self._spec_of = spec_of
        self._now = now
        self._used = used
        self._missing: list[str] = []
        self._unnamed = 0
        self._replay = Replay(store, self._complain)
        self._highest = 0
        # The new file is not used before it is complete and synced.
        store._db.execute("pragma synchronous = off")

    def run(self) -> tuple[int, int, list[str]]:
        with self.store.turn():
            self._environments()
        self._read_journal()
        with self.store.turn():
            self._look_into_folders()
            self._settle()
            self._take_in_usage()
            self._name_lost_environments()
            self._name_lost_blockers()
            self._go_on_counting()
            if os.path.exists(path := f"{self._folder}/{journal.NAME}"):
                book = journal.Journal(path)
                remember_position(self.store, book)
                book.close()
            counts = self.store._db.execute(
                "select (select count(*) from jobs), (select count(*) from attempts)"
            ).fetchone()
        if self._unnamed:
            self._missing.append(f"and {self._unnamed} more")
        return counts[0], counts[1], self._missing

    def _complain(self, sentence: str) -> None:
        if len(self._missing) < _MOST_NAMED:
            self._missing.append(sentence)
        else:
            self._unnamed += 1

    def _environments(self) -> None:
        place = f"{self._folder}/environments"
        for name in _names_in(place):
            key, _, kind = name.partition(".")
            if kind != "json":
                continue
            try:
                with open(f"{place}/{name}") as file:
                    kept = self.store.keep_environment(json.load(file))
                if kept != key:
                    self._complain(f"the environment {key} is damaged")
            except (OSError, ValueError, TypeError):
                self._complain(f"the environment {key} cannot be read")

    def _read_journal(self) -> None:
        try:
            lines = journal.read(f"{self._folder}/{journal.NAME}")
            while part := list(itertools.islice(lines, _LINES_A_TURN)):
                with self.store.turn():
                    for line in part:
                        if line.body is not None:
                            self._replay.tell(line.number, line.body)
                        elif not line.is_torn:
                            self._complain(f"line {line.number} of the journal is damaged")
        except OSError as error:
            self._complain(f"the journal cannot be read: {error.strerror}")

    # -- attempts --------------------------------------------------------------------------------------

    def _look_into_folders(self) -> None:
        """Find what the journal does not know: its last lines may not have survived a power cut."""
        place = f"{self._folder}/attempts"
        for thousand in _names_in(place):
            for name in _names_in(f"{place}/{thousand}"):
                job, _, number = name.partition(".")
                if job.isdigit() and number.isdigit():
                    self._highest = max(self._highest, int(job))
                    self._take_in(JobId(int(job)), int(number), f"{place}/{thousand}/{name}")

    def _take_in(self, number: JobId, attempt: int, folder: str) -> None:
        known = self.store.queue.find([number])
        if (known and known[0].attempts >= attempt) or self._replay.was_cleaned(number):
            return
        try:
            facts = self._look(folder)
        except OSError as error:
            self._complain(f"the folder {folder} cannot be read: {error.strerror}")
            return
        spec = self._spec_of(folder)
        if not facts.has_started or spec is None or (spec.get("job"), spec.get("attempt")) != (number, attempt):
            return
        began = spec.get("opened_at") or os.stat(folder).st_ctime
        if not known:
            # The array and other wishes for its start are of no use any more.
            line = {"at": began, "environment": _environment_of(spec)}
            self._replay.add(number, [_request_of(spec)], line)
            self._complain(f"job {number} is not in the journal; what its folder says was restored")
        # What another system runs is not locked here: that system is asked, and it does not count as lost.
        on = known[0].request.on if known else ""
        self.store.open_attempt(
            Attempt(job=number, number=attempt, claims=(), boot_id="", opened_at=began, folder=folder, backend=on)
        )

    def _settle(self) -> None:
        for job, attempt in self.store.open_attempts():
            if attempt.backend:
                continue  # the next daemon asks the system that has it
            try:
                facts = self._look(attempt.folder)
            except OSError as error:
                self._complain(f"the folder {attempt.folder} cannot be read: {error.strerror}")
                continue
            record = facts.exit_record if facts.is_of(*attempt.key, attempt.opened_at) else None
            if record is None:
                # The next daemon adopts it, queues it again if it never ran, or sees what of it holds a GPU.
                if facts.damage:
                    what = f"{facts.damage} (attempt {attempt.number})"
                    self._complain(f"how job {job.id} ended is not known: {what}")
                continue
            outcome, ended = outcome_of(record), float(record.get("ended") or self._now)
            if outcome.checkpointed:
                continue  # not over: the next daemon queues it again
            pause = retry_after(job, outcome)
            self._replay.end(attempt, outcome, ended, None if pause is None else self._now + pause)
            if pause is None:
                for follower, _ in self.store.queue.followers(job.id):
                    self._hold_follower(follower, job.id, f"has ended ({outcome.state})")

    def _take_in_usage(self) -> None:
        """The journal does not tell what attempts used; a series in the folder does, of those that ran a while."""
        db = self.store._db
        rows = db.execute("select job, number, folder from attempts where ended_at is not null").fetchall()
        for job, number, folder in rows:
            if (usage := self._used(os.fsdecode(folder))) is not None:
                db.execute(
                    "update attempts set usage = ? where job = ? and number = ?",
                    (encode_usage(usage), job, number),
                )

    # -- what is left ----------------------------------------------------------------------------------

    def _name_lost_environments(self) -> None:
        rows = self.store._db.execute(
            "select environment, id, state from jobs where environment not in (select key from environments)"
            " order by environment, id"
        ).fetchall()
        for _, jobs in itertools.groupby(rows, key=lambda row: row[0]):
            affected = [(JobId(number), state) for _, number, state in jobs]
            self._complain(f"the environment of job {_shown([number for number, _ in affected])} is gone")
            waiting = [number for number, state in affected if state == "queued"]
            self.store.queue.hold(waiting, "its environment could not be restored")
        self._name_sweeps_without_environment()

    def _name_sweeps_without_environment(self) -> None:
        rows = self.store._db.execute(
            "select id, state from sweeps where environment not in (select key from environments) order by id"
        ).fetchall()
        for number, state in rows:
            self._complain(f"the environment of sweep {number} is gone")
            if state == SweepState.RUNNING:
                sweep = self.store.sweeps.sweep(number)
                why = "its environment could not be restored"
                self.store.sweeps.change(replace(sweep, state=SweepState.HELD, why=why))

    def _name_lost_blockers(self) -> None:
        rows = self.store._db.execute(
            "select job, needs from dependencies where needs not in (select id from jobs)"
            " and job in (select id from jobs where state = 'queued') order by job"
        ).fetchall()
        for job, needs in rows:
            self._hold_follower(job, needs, "could not be restored")

    def _hold_follower(self, job: JobId, needs: JobId, what: str) -> None:
        """Hold a job that waits for one that can never free it, until its owner decides."""
        self._complain(f"job {job} waits for job {needs}, which {what}")
        self.store.queue.hold([job], f"job {needs}, which it was to follow, {what}")

    def _go_on_counting(self) -> None:
        db = self.store._db
        highest = max(self._replay.next_number - 1, self._highest)
        db.execute("delete from sqlite_sequence where name in ('jobs', 'events')")
        # No count of events can be higher than this: a reader that asks for those after its last one misses none.
        events = int(self._now * 1000)
        db.execute("insert into sqlite_sequence values ('jobs', ?), ('events', ?)", (highest, events))
        self.store.events.write(self._now, "store.rebuilt")


def _shown(jobs: list[JobId]) -> str:
    """`1-2000, 2005`."""
    parts = show_ranges(jobs).split(",")
    return ", ".join(parts[:20]) + (", ..." if len(parts) > 20 else "")


# -- what a folder tells about its job ---------------------------------------------------------------------


def _request_of(spec: Mapping[str, Any]) -> Request:
    words = tuple(spec["words"])
    env = dict(spec["env"])
    name = env.get("DIBS_JOB_NAME", "")
    ours = {*GPU_VARIABLES, "PWD", "MASTER_PORT"}
    is_line = len(words) == 3 and words[1] == "-c"
    return Request(
        command=Command(words, words[2] if is_line else shlex.join(words)),
        name=name,
        workdir=spec.get("workdir", ""),
        env=tuple((key, env[key]) for key in env if key not in ours and not key.startswith("DIBS_")),
        time_limit=spec.get("time_limit"),
        grace=spec.get("grace", 10.0),
    )


def _environment_of(spec: Mapping[str, Any]) -> str:
    return os.path.basename(str(spec.get("environment", ""))).removesuffix(".json")


# -- files -------------------------------------------------------------------------------------------------


@contextmanager
def _daemon_lock(folder: str) -> Iterator[None]:
    """Hold the lock of the daemon, so that none starts meanwhile."""
    try:
        fd = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise DibsError(
            f"cannot open {folder}/lock: {error.strerror}", remedy="see whether the folder is there, and yours"
        ) from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FolderInUse(
                f"cannot rebuild the store in {folder}: a daemon works with it",
                remedy="`dibs daemon stop` ends it and leaves the jobs alone; then try again",
            ) from error
        yield
    finally:
        os.close(fd)


def _exchange(folder: str, new: str, now: float) -> str | None:
    """Put the old store aside and the new one in its place. Whenever this stops, no store opens by mistake."""
    path = f"{folder}/store.db"
    aside = _free_name(f"{path}.damaged-{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now))}")
    is_there = os.path.lexists(path) and not _is_fence(path)
    with open(f"{path}.fence", "wb") as file:
        file.write(_FENCE)
    if is_there:
        _keep(path, aside)
    os.replace(f"{path}.fence", path)
    # The log would be taken for the new store's own.
    for log in _LOGS:
        with suppress(FileNotFoundError):
            os.rename(f"{path}{log}", f"{aside}{log}")
    os.replace(new, path)
    sync_folder(folder)
    return aside if is_there else None


def _remove(store: str) -> None:
    for path in (store, *(f"{store}{log}" for log in _LOGS)):
        with suppress(FileNotFoundError):
            os.unlink(path)


def _keep(path: str, aside: str) -> None:
    try:
        os.link(path, aside, follow_symlinks=False)
    except OSError:  # a file system without links
        os.rename(path, aside)


def _is_fence(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(_FENCE) + 1) == _FENCE
    except OSError:
        return False


def _free_name(wanted: str) -> str:
    number, name = 1, wanted
    while any(os.path.lexists(f"{name}{log}") for log in ("", *_LOGS)):
        number += 1
        name = f"{wanted}-{number}"
    return name


def _names_in(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
