"""The shim as a batch job of another system such as Slurm, for one attempt.

It runs the attempt of a folder and ends. Locks do not work across machines: the file `started` is the fence, and
the other system reports whether the job runs. Commands come as signals, which a batch system can send: USR1 stop,
USR2 kill, TERM when the system itself ends the job. When the parent process has ended, the other system considers
the job dead and may start another attempt: then this one ends too.

Standard library only, everything imported at the top: the package may be deleted while we run.
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping
from typing import Any

from dibs.supervise import fence
from dibs.supervise.command import AttemptDescriptors
from dibs.supervise.folder import RECORD_SIZE, decode_record
from dibs.supervise.shim import NOT_RUN, Shim, insist

NO_FOLDER = 72  # exit statuses: nothing was started
FENCED = 73

_LOOK_EVERY = 2.0  # seconds between two looks at who started us
_LONGEST_CANCEL = 10.0  # seconds; a controller that does not answer delays the end by this at most
_PAUSES = (1.0, 5.0, 30.0)  # seconds; too many processes or a full disk may pass
_NOT_POSSIBLE = "its supervisor could not start it: too many processes, or a full disk?"
# What a batch system tells its jobs. What was captured where the job was submitted is about another job.
_THEIRS = ("SLURM",)
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK")


def main(folder: str, fence_at: tuple[str, str] | None = None) -> int:
    """Run the attempt of this folder; the exit status is the command's, as a shell would tell it.

    `fence_at` is the fence, as a folder and a name, where it is not in the attempt's own.
    """
    try:
        record = os.open(f"{folder}/record", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return NO_FOLDER
    content = os.pread(record, os.fstat(record).st_size, 0)
    spec: dict[str, Any] = json.loads(content[RECORD_SIZE:].decode())
    node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    cards = _cards(os.environ)
    control = _listen(spec)
    where, name = fence_at or (folder, fence.STARTED)
    if not fence.take(where, fence.word_of(node, cards), name):
        return FENCED
    _remove_own_output()
    if checkpoints := spec["env"].get("DIBS_CHECKPOINT_DIR"):
        with contextlib.suppress(OSError):  # the command meets it, too, and tells more of it
            os.makedirs(checkpoints, mode=0o700, exist_ok=True)
    shim = Shim(given=_given(os.environ, spec), forget=_THEIRS)
    shim.listen(control, node=node, gpus=cards, number=_number(os.environ))
    handed = AttemptDescriptors(record)
    answer = shim.take(handed)
    for pause in _PAUSES:
        if answer != NOT_RUN:
            break
        time.sleep(pause)
        answer = shim.take(handed)
    if answer == NOT_RUN:
        ended = time.time()
        answer = shim.write_end(record, {"by": "start", "message": _NOT_POSSIBLE, "code": 127, "ended": ended})
    insist(lambda: os.fsync(record))
    found = decode_record(answer)
    if found is not None and found.get("by") == "stop":
        _tell_that_it_was_cancelled()
    return _exit_status(found)


def _listen(spec: Mapping[str, Any]) -> int:
    """A pipe that says what was signalled, as the FIFO of another shim would."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    name = f"{spec['job']}.{spec['attempt']}"
    words = {
        signal.SIGUSR1: "stop",
        signal.SIGUSR2: "kill",
        signal.SIGTERM: f"outside {spec.get('outside_grace', spec['grace'])}",
    }

    def heard(number: int, _: Any) -> None:
        with contextlib.suppress(BlockingIOError):  # so many that one of them is read in any case
            os.write(writing, f"{words[signal.Signals(number)]} {name}\n".encode())

    for number in words:
        signal.signal(number, heard)
    parent = os.getppid()

    def look(*_: Any) -> None:
        if os.getppid() != parent:
            heard(signal.SIGTERM, None)

    # Not the kernel's word for it, PR_SET_PDEATHSIG: that counts the parent's thread, which may go before it.
    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_EVERY, _LOOK_EVERY)
    return reading


def _given(environment: Mapping[str, str], spec: Mapping[str, Any]) -> dict[str, str]:
    """What the batch system tells the command, in its words and in ours, as if the user had submitted it there."""
    found = {name: value for name, value in environment.items() if name in _VISIBLE or name.startswith(_THEIRS)}
    cards = found.setdefault("CUDA_VISIBLE_DEVICES", "")
    found["DIBS_GPUS"] = cards
    found["GPU"] = ",".join(f"cuda{card}" if card.isdecimal() else card for card in cards.split(",") if card)
    found["SLURM_SUBMIT_DIR"] = spec["workdir"]
    found["SLURM_RESTART_COUNT"] = str(spec["attempt"] - 1)
    if spec.get("name"):
        found["SLURM_JOB_NAME"] = spec["name"]
    # What was said of the job counts more: of an array, Slurm may have only a part.
    found |= {name: value for name, value in spec["env"].items() if name.startswith(_THEIRS)}
    if task := spec["env"].get("DIBS_ARRAY_TASK_ID"):
        found["SLURM_ARRAY_TASK_ID"] = task  # over there it may have another number, or be a job by itself
    return found


def _cards(environment: Mapping[str, str]) -> str:
    """Which cards this node gave us, as it counts them itself: in a container of ours they begin with 0 again.

    `0,1,+4`: and so many more on the other nodes of the job, of which this one does not know the numbers.
    """
    here = environment.get("SLURM_JOB_GPUS") or environment.get("CUDA_VISIBLE_DEVICES") or ""
    number = len([one for one in here.split(",") if one])
    more = _cards_of_all_nodes(environment, number) - number
    return ",".join(filter(None, (here, f"+{more}" if more > 0 else "")))


def _cards_of_all_nodes(environment: Mapping[str, str], here: int) -> int:
    """How many the job has where so many are on this node, from what it asked for."""
    nodes = _count(environment.get("SLURM_JOB_NUM_NODES"))
    if nodes < 2:
        return here
    if whole := _count(environment.get("SLURM_GPUS")):
        return whole
    if each := _count(environment.get("SLURM_GPUS_PER_TASK")):
        return each * _count(environment.get("SLURM_NTASKS"))
    return here * nodes  # all other options give each node the same


def _count(text: str | None) -> int:
    """`2`, `h200:2` and `a100:1,h200:2`; 0 where it is nothing of the kind."""
    numbers = [one.rpartition(":")[2] for one in (text or "").split(",")]
    return sum(int(one) if one.isdecimal() else 0 for one in numbers)


def _number(environment: Mapping[str, str]) -> str:
    """What people over there call this job: `4711`, or `4711_3` in an array."""
    if array := environment.get("SLURM_ARRAY_JOB_ID"):
        return f"{array}_{environment.get('SLURM_ARRAY_TASK_ID', '')}"
    return environment.get("SLURM_JOB_ID", "")


def _remove_own_output() -> None:
    """The file for what goes wrong before us: nothing did."""
    with contextlib.suppress(OSError):
        path = os.readlink("/proc/self/fd/1")
        if os.path.basename(path) == f"{os.environ.get('SLURM_JOB_ID')}.out":
            os.unlink(path)


def _tell_that_it_was_cancelled() -> None:
    """Have it cancelled by the batch system itself, whose books say that it failed otherwise."""
    if not (job := _number(os.environ)):  # an element by its place: the last one has the number of the array, too
        return
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    with contextlib.suppress(OSError):  # it is not on this node
        pid = os.posix_spawnp("scancel", ["scancel", "--quiet", job], os.environ, file_actions=null)
        until = time.monotonic() + _LONGEST_CANCEL
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)


def _exit_status(record: Mapping[str, Any] | None) -> int:
    found = record or {}
    if found.get("signal"):
        return 128 + int(found["signal"])
    return 1 if found.get("code") is None else int(found["code"])
