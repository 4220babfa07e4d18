"""What `squeue` says, as rows.

Columns of fixed width, cut by position: a value may hold blanks, and a longer one is cut by Slurm itself. Not
`--json`, whose shape changes between versions.
"""

from collections.abc import Iterable, Iterator

from dibs.backends.slurm.sbatch import identity
from dibs.dataclass import dataclass

# Comment and name come last: a stranger's may hold anything.
_COLUMNS = (
    ("JobID", 16),
    ("ArrayJobID", 16),
    ("ArrayTaskID", 16),
    ("State", 24),
    ("exit_code", 12),
    ("RestartCnt", 12),
    ("SubmitTime", 24),
    ("StartTime", 24),
    ("EndTime", 24),
    ("NodeList", 64),
    ("BatchHost", 64),
    ("Reason", 120),
    ("Account", 64),
    ("QOS", 64),
    ("Partition", 160),
    ("Comment", 160),
    ("Name", 160),
)
FORMAT = ",".join(f"{name}:{width}" for name, width in _COLUMNS)
_LIVE_QUEUED = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
_LIVE_RUNNING = frozenset({"RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})

_OOM = 125  # in the place of a signal


@dataclass(frozen=True, kw_only=True, slots=True)
class SqueueRow:
    """A job, or one element of an array, as Slurm has it."""

    job: int
    array: int
    task: int | None
    name: str
    comment: str
    state: str
    status: int  # as `wait` tells it
    restarts: int  # how often Slurm took it back; asked not to, it still does where a node did not confirm a start
    submitted: float  # seconds since the epoch
    start: float | None  # when it started or, while it waits, may start
    ended: float | None
    node: str  # on which its shim runs; of several the first
    reason: str  # Slurm's own word
    account: str = ""
    qos: str = ""
    partition: str = ""  # of one that waits there may be several

    @property
    def identity(self) -> tuple[str, int] | None:
        """The key and attempt of ours that it is."""
        return identity(self.name, self.comment, self.task)

    @property
    def address(self) -> str:
        """What `scancel` takes. Elements that wait have no number of their own yet."""
        return str(self.job) if self.task is None else f"{self.array}_{self.task}"

    @property
    def is_queued(self) -> bool:
        return self.state in _LIVE_QUEUED

    @property
    def is_running(self) -> bool:
        return self.state in _LIVE_RUNNING

    @property
    def is_held(self) -> bool:
        """By its owner, or in the owner's name."""
        return self.is_queued and self.reason == "JobHeldUser"

    @property
    def is_suspended(self) -> bool:
        return self.state == "SUSPENDED"

    @property
    def is_live(self) -> bool:
        return self.is_queued or self.is_running

    @property
    def was_taken_back(self) -> bool:
        return self.is_queued and self.restarts > 0

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the kernel killed a process of it for its memory; known before Slurm has cleaned up after it."""
        return self.state == "OUT_OF_MEMORY" or self.status & 0x7F == _OOM

    @property
    def exit_code(self) -> int:
        """Of the batch script; 128 and more where a signal ended it."""
        return 128 + (self.status & 0x7F) if self.status & 0x7F else self.status >> 8 & 0xFF


def parse(output: bytes) -> Iterator[SqueueRow]:
    """The rows of an answer in FORMAT. A line that makes no sense is skipped: it is no job of ours."""
    for line in output.splitlines():
        cells = {}
        start = 0
        for name, width in _COLUMNS:
            cells[name] = line[start : start + width].decode("utf-8", "replace").strip()
            start += width
        if not cells["JobID"].isdecimal():
            continue
        yield SqueueRow(
            job=int(cells["JobID"]),
            array=_number(cells["ArrayJobID"]) or int(cells["JobID"]),
            task=_number(cells["ArrayTaskID"]),
            name=cells["Name"],
            comment=_name(cells["Comment"]),
            state=cells["State"],
            status=_number(cells["exit_code"]) or 0,
            restarts=_number(cells["RestartCnt"]) or 0,
            submitted=_moment(cells["SubmitTime"]) or 0.0,
            start=_moment(cells["StartTime"]),
            ended=_moment(cells["EndTime"]),
            node=_name(cells["BatchHost"]) or _name(cells["NodeList"]),
            reason="" if cells["Reason"] in ("None", "(null)") else cells["Reason"],
            account=_name(cells["Account"]),
            qos=_name(cells["QOS"]),
            partition=_name(cells["Partition"]),
        )


def by_identity(rows: Iterable[SqueueRow]) -> dict[tuple[str, int], SqueueRow]:
    """Our jobs by key and attempt. Of several copies the one that lives, then the latest."""
    found: dict[tuple[str, int], SqueueRow] = {}
    for row in rows:
        name = row.identity
        if name is not None and (name not in found or _weight(row) > _weight(found[name])):
            found[name] = row
    return found


def _weight(row: SqueueRow) -> tuple[bool, bool, float, int]:
    return (row.is_running, row.is_queued, row.submitted, row.job)


def _name(text: str) -> str:
    return "" if text in ("(null)", "N/A", "n/a") else text


def _moment(text: str) -> float | None:
    """Seconds since the epoch; `N/A` and `Unknown` are none."""
    number = _number(text)
    return None if number is None else float(number)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
