"""Why a command failed, where that can be seen; only failures cost anything.

Standard library and `policy.causes`, which is made for it.
"""

import os
import pwd
import signal
from collections.abc import Collection, Sequence

from dibs.policy.causes import TAIL, cause_in, reports_kill
from dibs.supervise.logs import Log, last_words

_CGROUPS = "/sys/fs/cgroup"
# These come from somebody else; what the log says has nothing to do with them.
_FROM_OUTSIDE = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL})
_NO_MEMORY = "the machine's memory did not suffice, and the kernel killed it"


class KernelKills:
    """Counts the processes of our memory cgroup that the kernel killed because memory ran out.

    Other jobs may share the cgroup, so a count alone proves nothing. Where there is none, nothing is seen.
    """

    def __init__(self) -> None:
        self._fd = _open_counter()

    @property
    def are_seen(self) -> bool:
        return self._fd >= 0

    def look(self) -> bytes:
        """The counter as it stands, unread: a job that succeeds has no use for the number."""
        if self._fd < 0:
            return b""
        try:
            return os.pread(self._fd, 4096, 0)
        except OSError:
            return b""

    def happened_since(self, before: bytes) -> bool:
        return _count(self.look()) > _count(before)


def diagnose(
    code: int | None,
    number: int | None,
    logs: Sequence[Log],
    *,
    kernel_killed: bool | None,
    seconds: float = 0.0,
    sent: Collection[int] = (),
) -> tuple[str, str] | None:
    """The cause of a failure and a sentence about it; None where nothing is known but the exit code or signal.

    `kernel_killed` is None where nobody can tell. `seconds` is how long it ran, `sent` are the signals that
    somebody sent it through us.
    """
    if kernel_killed and (number == signal.SIGKILL or code == 128 + signal.SIGKILL):
        return "host-oom", _NO_MEMORY
    if number in _FROM_OUTSIDE or (number is not None and number in sent):
        return "killed", _by_whom(number, kernel_killed, sent)
    tails = [last_words(log, TAIL) for log in reversed(logs)]  # the reason stands in stderr, most often
    if kernel_killed and any(map(reports_kill, tails)):
        return "host-oom", "the machine's memory did not suffice, and the kernel killed a process of it"
    return next((found for tail in tails if tail and (found := cause_in(tail, seconds, code))), None)


def _by_whom(number: int, kernel_killed: bool | None, sent: Collection[int]) -> str:
    """The kernel tells nobody who sent a signal. But only the same user and root may."""
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if number in sent:
        return f"{name} was sent to it through dibs"
    users = [user for user in dict.fromkeys((_user(), "root")) if user]
    if number == signal.SIGKILL and kernel_killed is None:
        users.append("the kernel for want of memory")
    return f"{name} ended it, and dibs did not send it: {' or '.join(users)} did"


def _user() -> str:
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _open_counter() -> int:
    try:
        with open("/proc/self/cgroup", "rb") as file:
            lines = [line.split(b":", 2) for line in file.read().splitlines()]
    except OSError:
        return -1
    for _, controllers, path in lines:
        if controllers == b"":
            places, name = [_CGROUPS, f"{_CGROUPS}/unified"], "memory.events"
        elif b"memory" in controllers.split(b","):
            places, name = [f"{_CGROUPS}/memory"], "memory.oom_control"
        else:
            continue
        for place in places:
            if (fd := _open_nearest(place, os.fsdecode(path), name)) >= 0:
                return fd
    return -1


def _open_nearest(place: str, path: str, name: str) -> int:
    """Our own cgroup may not count, or have another name in this container: then one above it does."""
    while True:
        try:
            return os.open(f"{place}{path.rstrip('/')}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            if path in ("/", ""):
                return -1
            path = os.path.dirname(path)


def _count(counter: bytes) -> int:
    for line in counter.splitlines():
        word, _, number = line.partition(b" ")
        if word == b"oom_kill" and number.isdigit():
            return int(number)
    return 0
