"""The helper that suspends one attempt, or lets it go on, and ends: its own process, since the driver may hang.

It reads one JSON object from stdin and writes one line with its answer to stdout (suspension.py has both sides):

    {"do": "look"}: only say whether the driver can suspend anything
    {"do": "suspend" or "resume", "folder": the attempt's, "parent": pid of the engine,
     "may_have_several": its owner said that its CUDA processes share no memory,
     "only_stop": stop and continue its processes, and leave the driver alone,
     "cards": [key of a card that it was given, ...],
     "room": {key of a card: bytes that must be free there before anything is restored},
     "leases": [[major, minor, inode], ...] of its lease files, to find its processes where its shim was killed}

Of these, all but the first three may be left out. It may be killed at any point and started again: each round
looks at how the processes stand and decides the next steps from that alone (suspension_steps.py).
"""

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from dibs.fault_points import Reach, fault_point
from dibs.files import replace_file
from dibs.gpus.cuda_checkpoint import (
    NOT_PERMITTED,
    NOT_SUPPORTED,
    WRONG_HANDLE,
    WRONG_STEP,
    CheckpointFailed,
    CudaCheckpoint,
    ProcessState,
    find_cuda_checkpoint,
    why_not_suspend,
)
from dibs.gpus.detect import find_probe
from dibs.gpus.probe import ProbeFailed, answer_within
from dibs.model.gpus import GpuReading
from dibs.model.suspensions import Obstacle, too_much_to_move
from dibs.model.units import show_size
from dibs.supervise.command import descendants
from dibs.supervise.folder import facts, marked_processes, open_own_file, read_spec, tell
from dibs.supervise.host_memory import memory_available
from dibs.supervise.orphans import LeftProcess, find_left_processes, process_at, signal_process
from dibs.supervise.suspension_steps import (
    MoveAct,
    Seen,
    Step,
    cuda_processes,
    is_begun,
    refusal_of,
    steps_to_resume,
    steps_to_suspend,
)
from dibs.worker_thread import wait_in_thread

_PR_SET_PDEATHSIG = 1
_LOCK_MS = 10_000  # for the work that is queued on the card
_STOPPED_SECONDS = 1.0  # a process that is stopped and has not answered by then is one of CUDA
_NO_PROGRESS_SECONDS = 10.0  # with the same steps again and again
_PAUSE = 0.01  # seconds
_LONGEST_STOCK = 65536  # bytes
_SHARED_BY = ("/dev/shm/cuda.shm.", "/dev/shm/nccl-")
_HELD = "held"  # a file in the attempt's folder: bytes by card, as they were before the first was moved
_CODES = {NOT_PERMITTED: "not-permitted", NOT_SUPPORTED: Obstacle.MANAGED_MEMORY}


def main() -> None:
    question = json.loads(sys.stdin.buffer.read())
    _die_with(question["parent"])
    begun = time.monotonic()
    reach = fault_point(os.environ) or _pass
    try:
        answer = _answer(question, os.environ, reach)
    except Exception as error:  # whatever it is, it is known here alone: our stderr is read by no process
        answer = {"state": "unclear", "code": "failed", "why": f"its helper failed: {error!r}"}
    if question["do"] != "look":
        reach("helper-done")
    seconds = round(time.monotonic() - begun, 3)
    nothing = {"state": "", "rung": "", "processes": 0, "held": {}, "code": "", "why": ""}
    sys.stdout.write(f"{json.dumps({**nothing, 'seconds': seconds, **answer})}\n")
    sys.stdout.flush()
    os._exit(0)  # a thread may hang in the driver


def _pass(point: str) -> None:
    """A named point where nothing is injected."""


class _Failed(Exception):
    """It cannot go on."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


class _Lost(_Failed):
    """The driver does not know one of its processes any more, which stands still for ever."""

    def __init__(self, pid: int) -> None:
        super().__init__("lost", f"the driver cannot reach its process {pid} any more")


class _NotYet(Exception):
    """No command has been started."""


def _answer(question: Mapping[str, Any], environ: Mapping[str, str], reach: Reach) -> dict[str, Any]:
    is_to_suspend = question["do"] == "suspend"
    driver = None if question.get("only_stop") else find_cuda_checkpoint(environ)
    if question["do"] == "look":
        why = _why_no_driver(driver, environ)
        return {"state": "looked", "code": "no-driver" if why else "", "why": why}
    find = partial(_processes_of, question["folder"], question.get("leases", ()))
    tree = _Tree(find, driver, reach)
    try:
        if not question.get("only_stop") and (why := _why_no_driver(driver, environ)):
            if not (found := find()):
                return {"state": "ended"}
            if is_to_suspend or any(_may_be_of_cuda(pid) for pid in found):
                return {"state": "running" if is_to_suspend else "suspended", "code": "no-driver", "why": why}
            tree = _Tree(find, None, reach)
        if is_to_suspend:
            several = question.get("may_have_several", False)
            take_stock = partial(_take_stock, question["folder"], question.get("cards", ()), environ)
            return _suspend(tree, question["folder"], take_stock, may_have_several=several)
        return _resume(tree, question["folder"], partial(_check_room, question.get("room", {}), environ))
    except _NotYet:
        return {"state": "unclear", "code": "starting", "why": "it is just starting"}


def _suspend(tree: "_Tree", folder: str, take_stock: "TakeStock", *, may_have_several: bool) -> dict[str, Any]:
    tell(folder, "suspended")  # its time limit stands still from now on, whatever becomes of us and of the engine
    tree.reach("helper-begun")
    try:
        seen = _take_off(tree, may_have_several, take_stock)
    except _Failed as failure:
        answer = _go_back(tree)
        if answer["state"] == "running":
            tell(folder, "resumed")
        return answer | {"code": failure.code, "why": failure.why}
    if not seen:
        return {"state": "ended"}
    return _done("suspended", seen) | {"held": _read_stock(folder) if cuda_processes(seen) else {}}


def _take_off(tree: "_Tree", may_have_several: bool, take_stock: "TakeStock") -> Mapping[int, Seen]:
    """Suspend them, or raise _Failed; return how they stand then."""
    known: set[int] | None = None  # those of CUDA, at the first look
    rounds = _Rounds()
    while seen := tree.look():
        of_cuda = {pid for pid, one in seen.items() if one.is_cuda}
        # What was refused at first is refused later too: a process may have come.
        if refusal := refusal_of(seen, may_have_several=may_have_several or known is not None):
            raise _Failed(*refusal)
        if known is not None and of_cuda != known:
            raise _Failed("failed", "its CUDA processes changed meanwhile")
        known = of_cuda
        if not rounds.go_on(steps := steps_to_suspend(seen)):
            return seen
        # All are locked, and none is moved: nothing changes any more of what they hold.
        if steps[0][0] == MoveAct.CHECKPOINT and not any(one.is_off for one in seen.values()):
            take_stock(seen)
        tree.do(steps)
    return {}


def _go_back(tree: "_Tree") -> dict[str, Any]:
    """Let what was taken go on again, if anything was; where it stands then."""
    seen: Mapping[int, Seen] = tree.look()
    if tree.is_touched or is_begun(seen):
        try:
            seen = _put_back(tree, lambda _: None)
        except _Failed as failure:
            state = "lost" if isinstance(failure, _Lost) else "unclear"
            return {"state": state, "processes": cuda_processes(tree.look())}
    return {"state": "running" if seen else "ended", "processes": cuda_processes(seen)}


def _resume(tree: "_Tree", folder: str, check_room: "RoomCheck") -> dict[str, Any]:
    try:
        seen = _put_back(tree, check_room)
    except _NoRoom as failure:
        try:  # one of several processes may be back on its card already
            seen = _take_off(tree, may_have_several=True, take_stock=lambda _: None)
        except _Failed as stuck:
            return {"state": "unclear", "code": stuck.code, "why": stuck.why}
        found = _done("suspended", seen) if seen else {"state": "ended"}
        return found | {"code": failure.code, "why": failure.why}
    except _Failed as failure:
        state = "lost" if isinstance(failure, _Lost) else "unclear"
        return {"state": state, "code": failure.code, "why": failure.why}
    tell(folder, "resumed")
    return _done("running", seen) if seen else {"state": "ended"}


def _put_back(tree: "_Tree", check_room: "RoomCheck") -> Mapping[int, Seen]:
    """Let them go on, or raise _Failed; return how they stand then."""
    rounds = _Rounds()
    while seen := tree.look():
        lost = [pid for pid, one in seen.items() if one.state in (ProcessState.FAILED, ProcessState.GONE)]
        if not rounds.go_on(steps := steps_to_resume(seen)):
            if lost:
                raise _Lost(lost[0])
            return seen
        if steps[0][0] == MoveAct.RESTORE:
            check_room(seen)
        tree.do(steps)
    return {}


def _done(state: str, seen: Mapping[int, Seen]) -> dict[str, Any]:
    number = cuda_processes(seen)
    return {"state": state, "rung": "cuda" if number else "stop", "processes": number}


class _Rounds:
    """Rounds of looking and doing: the same steps may be due again for a moment, and not for ever."""

    def __init__(self) -> None:
        self._last: list[Step] = []
        self._since = time.monotonic()

    def go_on(self, steps: list[Step]) -> bool:
        if steps != self._last:
            self._last, self._since = steps, time.monotonic()
        elif steps:
            time.sleep(_PAUSE)
            if time.monotonic() > self._since + _NO_PROGRESS_SECONDS:
                act, pid = steps[0]
                raise _Failed("failed", f"the step `{act}` has no effect on its process {pid}")
        return bool(steps)


class _Tree:
    """The processes of the attempt: how they stand, and what is done to them. Without a driver: stopped."""

    def __init__(
        self, find: Callable[[], dict[int, LeftProcess]], driver: CudaCheckpoint | None, reach: Reach
    ) -> None:
        self.is_touched = False
        self.reach = reach
        self._find = find
        self._driver = driver
        self._processes: dict[int, LeftProcess] = {}
        self._stopped: set[tuple[int, int]] = set()  # by us: pid and start

    def look(self) -> dict[int, Seen]:
        self._processes = self._find()
        found = {pid: self._seen(process) for pid, process in self._processes.items()}
        return {pid: seen for pid, seen in found.items() if seen is not None}

    def do(self, steps: list[Step]) -> None:
        """What is not as it was seen is looked at again; any other failure is _Failed."""
        self.is_touched = True
        for act, pid in steps:
            process = self._processes[pid]
            if act in (MoveAct.STOP, MoveAct.CONTINUE):
                signal_process(process, signal.SIGSTOP if act == MoveAct.STOP else signal.SIGCONT)
                if act == MoveAct.STOP:
                    self._stopped.add((pid, process.started))
                self.reach(f"helper-{act}")
                continue
            try:
                self._call(act, pid)
                self.reach(f"helper-{act}")
            except CheckpointFailed as failure:
                has_ended = failure.code == WRONG_HANDLE and not _is_same(process)
                if failure.code == WRONG_HANDLE and not has_ended and act == MoveAct.RESTORE:
                    raise _Lost(pid) from failure
                if failure.code != WRONG_STEP and not has_ended:
                    code = _CODES.get(failure.code, "failed")
                    raise _Failed(code, f"the driver could not {act} its process {pid}: {failure}") from failure

    def _call(self, act: MoveAct, pid: int) -> None:
        assert self._driver is not None
        if act == MoveAct.LOCK:
            self._driver.lock(pid, _LOCK_MS)
        elif act == MoveAct.CHECKPOINT:
            self._driver.checkpoint(pid)
        elif act == MoveAct.RESTORE:
            self._driver.restore(pid)
        else:
            self._driver.unlock(pid)

    def _seen(self, process: LeftProcess) -> Seen | None:
        """None where it has ended."""
        is_ours = process.is_ours or os.geteuid() == 0
        if self._driver is None or not is_ours:
            return Seen(is_stopped=process.is_stopped, is_ours=is_ours)
        state = self._state(process, self._driver)
        if state == ProcessState.GONE and not _is_same(process):
            return None
        seen = Seen(state, process.is_stopped, is_ours)
        return seen._replace(shares_memory=_shares_memory(process.pid)) if seen.is_cuda else seen

    def _state(self, process: LeftProcess, driver: CudaCheckpoint) -> ProcessState | None:
        pid = process.pid
        if not process.is_stopped:
            return driver.state(pid)
        if (pid, process.started) in self._stopped or not _may_be_of_cuda(pid):
            return ProcessState.NOT_CUDA
        try:
            return wait_in_thread(partial(driver.state, pid), _STOPPED_SECONDS, "stopped-process")
        except TimeoutError:
            return None


def _processes_of(folder: str, leases: list[list[int]]) -> dict[int, LeftProcess]:
    """The processes of an attempt, never its shim: those below it, or, if it was killed, those with its marks."""
    found = facts(folder)
    if not found.is_locked:
        keys = [(major, minor, inode) for major, minor, inode in leases]
        return find_left_processes({folder: keys})[folder]
    shim = (found.record or {}).get("shim")
    if shim is None:
        raise _NotYet
    pids = set(descendants(shim))
    if "container" in (read_spec(folder) or {}):  # its processes may be below the engine's daemon
        pids |= {pid for marked in marked_processes(folder) for pid in (marked, *descendants(marked))} - {shim}
    if not pids and found.record is not None and found.record.get("state") == "starting":
        raise _NotYet
    if not pids and not facts(folder).is_locked:  # its shim has died meanwhile
        return _processes_of(folder, leases)
    processes = {pid: process_at(pid) for pid in pids}
    return {pid: process for pid, process in processes.items() if process is not None}


def _why_no_driver(driver: CudaCheckpoint | None, environ: Mapping[str, str]) -> str:
    if driver is None:
        return why_not_suspend(environ)
    try:
        driver.start()
    except CheckpointFailed as failure:
        return f"the driver does not start: {failure}"
    return ""


# Raises _Failed where these processes must not be moved: they are locked, and about to be.
TakeStock = Callable[[Mapping[int, Seen]], None]


def _take_stock(folder: str, own: Collection[str], environ: Mapping[str, str], seen: Mapping[int, Seen]) -> None:
    """Write down what they hold of each card, for the helper that resumes them; and have it fit into the machine.

    What the engine has measured is some seconds old. A card that names no processes, as in a container, may
    hold nothing but theirs: with less room than that, a process might be lost.
    """
    held: Counter[str] = Counter()
    with contextlib.suppress(ProbeFailed):
        for key, card in _cards(environ).items():
            if not card.processes and key in own:
                held[key] = card.memory_used or 0
            for process in card.processes:
                if process.pid in seen and process.memory is not None:
                    held[key] += process.memory
    if problem := too_much_to_move(held.total(), memory_available()):
        raise _Failed("no-memory", problem)
    try:
        replace_file(f"{folder}/{_HELD}", json.dumps(held), sync=False)
    except OSError as error:
        raise _Failed("no-memory", f"what it holds cannot be written down: {error}") from error


def _read_stock(folder: str) -> dict[str, int]:
    """What they held of each card."""
    try:
        with open(open_own_file(f"{folder}/{_HELD}"), "rb") as file:
            return {str(gpu): int(size) for gpu, size in json.loads(file.read(_LONGEST_STOCK)).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


# Raises _NoRoom where these processes must not be restored now.
RoomCheck = Callable[[Mapping[int, Seen]], None]


class _NoRoom(_Failed):
    """Nothing was restored."""

    def __init__(self, why: str) -> None:
        super().__init__("no-room", why)


def _check_room(room: Mapping[str, int], environ: Mapping[str, str], seen: Mapping[int, Seen]) -> None:
    """A process whose restore fails for want of memory is lost: so in doubt there is no room."""
    if not room:
        return
    try:
        cards = _cards(environ)
    except ProbeFailed as failure:
        raise _NoRoom(f"its cards cannot be read: {failure.message}") from failure
    for key, needed in room.items():
        free = _free_for(cards.get(key), seen)
        if free is None:
            raise _NoRoom(f"how much memory is free on {key} cannot be read")
        if free < needed:
            raise _NoRoom(f"only {show_size(free)} of {show_size(needed)} are free on {key}")


def _cards(environ: Mapping[str, str]) -> dict[str, GpuReading]:
    probe = find_probe(environ)
    return {} if probe is None else {one.gpu.key: one for one in answer_within(probe.read).gpus}


def _free_for(card: GpuReading | None, seen: Mapping[int, Seen]) -> int | None:
    """What is free on a card, and what an earlier helper has put back there already."""
    if card is None or card.gpu.memory_total is None or card.memory_used is None:
        return None
    already = sum(process.memory or 0 for process in card.processes if process.pid in seen)
    return card.gpu.memory_total - card.memory_used + already


def _is_same(process: LeftProcess) -> bool:
    now = process_at(process.pid)
    return now is not None and now.started == process.started


def _may_be_of_cuda(pid: int) -> bool:
    """Whether it has the driver's library: without it, it is no CUDA program."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            return b"/libcuda.so" in file.read()
    except OSError:
        return True


def _shares_memory(pid: int) -> bool:
    """Whether it has files by which torch and NCCL share memory of the card. CUDA IPC itself leaves no trace."""
    try:
        with open(f"/proc/{pid}/maps", errors="surrogateescape") as file:
            if any(name in file_line for file_line in file for name in _SHARED_BY):
                return True
        for number in os.listdir(f"/proc/{pid}/fd"):
            try:
                if os.readlink(f"/proc/{pid}/fd/{number}").startswith(_SHARED_BY):
                    return True
            except FileNotFoundError:
                continue  # it was closed meanwhile
    except OSError:
        return _is_there(pid)  # it cannot be looked at: in doubt
    return False


def _is_there(pid: int) -> bool:
    return process_at(pid) is not None


def _die_with(parent: int) -> None:
    """End with the thread that started us: the next engine starts another helper, and two would meet."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
