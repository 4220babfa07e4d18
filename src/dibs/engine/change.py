"""What a person or a sweep changes, inside one transaction of the store."""

from dibs.engine.turn.state import EngineState, NextState
from dibs.model.events import Refused
from dibs.model.jobs import Job, JobId, State
from dibs.model.records import Record
from dibs.store.recorder import Consequences, Recorder


class Change:
    """Durable at the end of the transaction, or it never happened."""

    def __init__(self, state: EngineState, recorder: Recorder, now: float) -> None:
        self.now = now
        self.next = NextState(state)
        self.touched: list[JobId] = []
        self.retried: list[JobId] = []
        self._recorder = recorder

    def record(self, record: Record) -> None:
        """Record it now, with what follows from it."""
        followed = self._recorder.record(record, self.now)
        apply_followed(followed, self.next)
        self.touched += followed.touched
        self.retried += followed.retried

    def wait(self, job: Job) -> None:
        """The job is waiting now, unless it is held or blocked."""
        if job.state is State.QUEUED and not job.blockers:
            self.next.waiting.add(job)

    def leave(self, job: Job) -> None:
        """The job, as it was before the change, is not waiting any more."""
        if job.state is State.QUEUED and not job.blockers:
            self.next.waiting.remove(job)


def apply_followed(followed: Consequences, state: NextState) -> None:
    """Add the jobs that a record released, and the events of those it cancelled."""
    for job in followed.released:
        state.waiting.add(job)
    state.events += [Refused(job, outcome) for job, outcome in followed.cancelled]
