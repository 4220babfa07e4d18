"""What a probe of this machine's GPUs is, and how to ask one with a deadline."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from dibs.errors import DibsError
from dibs.model.gpus import Gpu, Reading
from dibs.worker_thread import wait_in_thread

_DEADLINE = 10.0  # seconds; a driver without persistence mode has to wake its cards first

Answer = TypeVar("Answer")


class Probe(Protocol):
    """Reads the GPUs of this machine."""

    def read(self, *, energy: bool = False) -> Reading:
        """Read every GPU once. A failing driver may block this call for minutes: see `Watcher`.

        Energy is expensive and is not part of every reading. With `energy` it is, unless it was read a moment ago.
        Raises ProbeFailed when the driver cannot be asked.
        """
        ...


class ProbeFailed(DibsError):
    """The driver is there, but cannot be asked."""

    code = "probe-failed"


def answer_within(question: Callable[[], Answer], seconds: float = _DEADLINE) -> Answer:
    """Call `question` in a thread and return its result; ProbeFailed when it takes longer than this.

    A thread that hangs in the driver is left behind.
    """
    try:
        return wait_in_thread(question, seconds, "gpu-question")
    except TimeoutError:
        raise ProbeFailed(
            f"cannot ask the driver for its GPUs: no answer within {seconds:g} seconds",
            remedy="a failing GPU may block it: see whether `nvidia-smi` answers, and what `dmesg` says",
        ) from None


def require_distinct(gpus: Iterable[Gpu]) -> None:
    """Leases go by key: raise ProbeFailed where two GPUs have the same key or the same number."""
    seen: set[str] = set()
    for gpu in gpus:
        if gpu.key in seen or gpu.number in seen:
            raise ProbeFailed(
                f"cannot tell the GPUs apart: two of them are number {gpu.number} or have the UUID {gpu.key}",
                remedy="`nvidia-smi -L` or `amd-smi list` shows what the driver says",
            )
        seen |= {gpu.key, gpu.number}


def utc_now() -> datetime:
    return datetime.now(UTC)
