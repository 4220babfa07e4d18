"""Who stands behind a pid. Asked for every process on a card at every pass, so it is remembered."""

import functools
import os
import pwd
from dataclasses import dataclass

_MOST = 4096  # processes to remember


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose process it is, and what it is called."""

    user: str
    name: str


class Owners:
    """Looks in /proc, once for each process: a pid that comes again with another start is another process."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._known: dict[int, tuple[bytes, Owner]] = {}

    def of(self, pid: int) -> Owner | None:
        """None where it cannot be looked up, as in another container."""
        try:
            with open(f"{self._proc}/{pid}/stat", "rb") as file:
                stat = file.read()
            # The command stands in brackets, and may hold brackets and blanks itself.
            head, _, tail = stat.rpartition(b") ")
            started = tail.split(b" ", 20)[19]
            known = self._known.get(pid)
            if known is None or known[0] != started:
                name = head.partition(b"(")[2].decode("utf-8", "replace")
                known = started, Owner(_user_name(os.stat(f"{self._proc}/{pid}").st_uid), name)
                if len(self._known) >= _MOST:
                    self._known.clear()
                self._known[pid] = known
            return known[1]
        except (OSError, IndexError):
            return None


@functools.cache  # a directory server may stand behind it
def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
