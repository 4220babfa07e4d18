"""Makes a store as a daemon leaves it after very many jobs, without running them all."""

import sqlite3

from dibs_daemon import Daemon

_RUN = 1_000  # the rest are copies of these
_NUMBERS = frozenset({"id", "batch", "job"})  # of jobs: each copy has its own
_TIMES = frozenset({"queued_at", "started_at", "opened_at", "ended_at"})


def fill(daemon: Daemon, jobs: int) -> None:
    """Let a daemon run jobs of `true`, stop it, and copy them in its store until there are so many."""
    ran = min(jobs, _RUN)
    if jobs % ran:
        raise ValueError(f"{jobs} is no multiple of {ran}")
    lines = daemon.folder / "filling.txt"
    lines.write_text("".join(f"true {number}\n" for number in range(ran)))
    daemon.start()
    try:
        daemon.dibs("add", "-q", "-P", "bench", "-f", str(lines))
        daemon.wait_for(ran, limit_seconds=120)
    finally:
        daemon.stop()
    multiply(daemon.store, ran, jobs // ran)


def multiply(path: str, step: int, times: int) -> None:
    """The triggers run for every copy, so that the counts are right. A copy is a second older than the next."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("pragma synchronous = off")
    db.execute("pragma cache_size = -400000")
    db.execute("begin")
    for table, number in (("jobs", "id"), ("attempts", "job")):
        columns = [row[1] for row in db.execute(f"pragma table_info({table})")]
        values = [
            f"{name} + :turn * {step}"
            if name in _NUMBERS
            else f"{name} - {times} + :turn"
            if name in _TIMES
            else name
            for name in columns
        ]
        copy = (
            f"insert into {table} ({', '.join(columns)}) select {', '.join(values)} from {table}"
            f" where {number} <= {step}"
        )
        for turn in range(1, times):
            db.execute(copy, {"turn": turn})
    db.execute("commit")
    db.execute("pragma wal_checkpoint(truncate)")
    db.close()
