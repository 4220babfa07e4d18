"""The steps by which the processes of an attempt are suspended and go on again: decided from how they stand now.

Pure: the helper looks, has the next steps decided here, does them, and looks again, until none is left. So it may
be killed at any point, and the next one goes on from there. Going back after a failure is the same as resuming.

While any process is stopped by us, all CUDA processes are locked or checkpointed: a stopped one does not answer.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from dibs.gpus.cuda_checkpoint import ProcessState
from dibs.model.suspensions import Obstacle

_OF_CUDA = frozenset({ProcessState.RUNNING, ProcessState.LOCKED, ProcessState.CHECKPOINTED, ProcessState.FAILED})
_TAKEN = frozenset({ProcessState.LOCKED, ProcessState.CHECKPOINTED})


class MoveAct(StrEnum):
    """What is done to one process."""

    LOCK = "lock"
    STOP = "stop"  # by SIGSTOP
    CHECKPOINT = "checkpoint"
    RESTORE = "restore"
    CONTINUE = "continue"  # by SIGCONT
    UNLOCK = "unlock"


class Seen(NamedTuple):
    """How a process stands."""

    state: ProcessState | None = ProcessState.NOT_CUDA  # None: it is stopped, and did not answer
    is_stopped: bool = False
    is_ours: bool = True  # False: it runs as another user
    shares_memory: bool = False  # by CUDA IPC, as torch and NCCL do

    @property
    def is_off(self) -> bool:
        """Whether its memory is off its card."""
        return self.state == ProcessState.CHECKPOINTED

    @property
    def is_cuda(self) -> bool:
        return self.state in _OF_CUDA


class Refusal(NamedTuple):
    """Why an attempt is not suspended."""

    code: str
    why: str


Step = tuple[MoveAct, int]


def steps_to_suspend(seen: Mapping[int, Seen]) -> list[Step]:
    """Lock all of CUDA, stop the others, and only then checkpoint. No step: it is suspended."""
    return (
        _each(MoveAct.LOCK, seen, lambda one: one.state == ProcessState.RUNNING)
        or _each(MoveAct.STOP, seen, lambda one: one.state == ProcessState.NOT_CUDA and not one.is_stopped)
        or _each(MoveAct.CHECKPOINT, seen, lambda one: one.state == ProcessState.LOCKED)
    )


def steps_to_resume(seen: Mapping[int, Seen]) -> list[Step]:
    """Restore all, let the others go on, and only then unlock. No step: it runs."""
    return (
        _each(MoveAct.CONTINUE, seen, lambda one: one.is_stopped and one.state != ProcessState.NOT_CUDA)
        or _each(MoveAct.RESTORE, seen, lambda one: one.state == ProcessState.CHECKPOINTED)
        or _each(MoveAct.CONTINUE, seen, lambda one: one.is_stopped)
        or _each(MoveAct.UNLOCK, seen, lambda one: one.state == ProcessState.LOCKED)
    )


def refusal_of(seen: Mapping[int, Seen], *, may_have_several: bool) -> Refusal | None:
    """Why these processes must not be suspended by the driver; asked before the first is locked."""
    for pid, one in seen.items():
        if not one.is_ours:
            return Refusal("not-permitted", f"its process {pid} runs as another user")
        if one.state in (ProcessState.FAILED, ProcessState.GONE):
            return Refusal("failed", f"the driver cannot reach its process {pid} any more")
        if one.is_stopped and one.state != ProcessState.NOT_CUDA and not is_begun(seen):
            return Refusal("stopped", f"its CUDA process {pid} is stopped by a signal")
    if any(one.shares_memory for one in seen.values()):
        why = "its processes share memory of the card (CUDA IPC), which cannot be restored"
        return Refusal(Obstacle.CUDA_IPC, why)
    number = cuda_processes(seen)
    if number > 1 and not may_have_several:
        return Refusal(
            Obstacle.SEVERAL_PROCESSES,
            f"{number} of its processes use CUDA and may share memory of the card",
        )
    return None


def cuda_processes(seen: Mapping[int, Seen]) -> int:
    return sum(one.is_cuda for one in seen.values())


def is_begun(seen: Mapping[int, Seen]) -> bool:
    """Whether an earlier helper got past its look: what is stopped now, it has stopped."""
    return any(one.state in _TAKEN for one in seen.values())


def _each(act: MoveAct, seen: Mapping[int, Seen], is_due: Callable[[Seen], bool]) -> list[Step]:
    return [(act, pid) for pid, one in sorted(seen.items()) if is_due(one)]
