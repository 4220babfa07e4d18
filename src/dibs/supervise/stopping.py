"""When and how a command is asked to end. Standard library only."""

import os
import select
import signal
import time

from dibs.supervise import tree


def boottime() -> float:
    """Seconds since the machine started, those it slept included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Stopping:
    """When and how the command is asked to end: ask, wait the grace, insist.

    A checkpoint is a signal before the time limit, on which the command saves its work. However it ends after
    that, it is to be queued again, unless somebody stops it.
    """

    def __init__(self, grace: float, attempt: str, pid: int) -> None:
        self.grace = grace
        self._attempt = attempt
        self._pid = pid
        self.by = ""  # who wanted the end: "", "stop", "time", or "outside" for a batch system around us
        self.sent: set[int] = set()  # signals that somebody had us send, without asking for its end
        self.limit: float | None = None  # on CLOCK_BOOTTIME, so that a sleeping laptop counts
        self.is_checkpointed = False
        self._checkpoint_at: float | None = None
        self._checkpoint_signal = 0
        self._insist_at: float | None = None

    def save_before_limit(self, number: int, seconds: float) -> None:
        """Send a signal so many seconds before the limit."""
        assert self.limit is not None
        self._checkpoint_at, self._checkpoint_signal = self.limit - seconds, number

    def obey(self, commands: bytes) -> None:
        for line in commands.decode("ascii", "replace").splitlines():
            word, _, attempt = line.rpartition(" ")
            if attempt != self._attempt:
                continue  # meant for one that is over
            if word == "stop":
                self.is_checkpointed = False
                self._ask("stop")
            elif word == "kill":
                self.is_checkpointed = False
                self.by = self.by or "stop"
                self._insist_at = boottime()
            elif word.startswith("outside "):
                # Whoever asks will insist with us too: its end must be written down by then.
                self.grace = min(self.grace, float(word[8:]))
                self._ask("outside")
            elif word.startswith("signal ") and word[7:].isdigit() and 0 < int(word[7:]) < signal.NSIG:
                self.sent.add(int(word[7:]))
                tree.signal_tree(os.getpid(), int(word[7:]))

    def act(self) -> None:
        now = boottime()
        if self._checkpoint_at is not None and now >= self._checkpoint_at:
            self._checkpoint_at = None
            self.is_checkpointed = not self.by and tree.signal_listeners(self._pid, self._checkpoint_signal)
        if self.limit is not None and now >= self.limit:
            self.limit = None
            self._ask("time")
        if self._insist_at is not None and now >= self._insist_at:
            tree.signal_tree(os.getpid(), signal.SIGKILL)
            self._insist_at = now + 0.1  # again: a child may have been forked in between

    def give_grace_to_the_rest(self, control: int) -> None:
        """Whoever was asked to end together with the command has the rest of the grace for it."""
        poll = select.poll()
        poll.register(control, select.POLLIN)
        while self._insist_at is not None and boottime() < self._insist_at and tree.reap():
            if poll.poll(self.timeout(0.02) * 1000):
                self.obey(os.read(control, 4096))

    def timeout(self, longest: float) -> float:
        soon = [at for at in (self._checkpoint_at, self.limit, self._insist_at) if at is not None]
        return max(0.0, min([longest, *(at - boottime() for at in soon)]))

    def _ask(self, by: str) -> None:
        self.by = self.by or by
        if self._insist_at is None:
            tree.signal_tree(os.getpid(), signal.SIGTERM)
            tree.signal_tree(os.getpid(), signal.SIGCONT)  # a stopped process would not hear it
            self._insist_at = boottime() + self.grace
