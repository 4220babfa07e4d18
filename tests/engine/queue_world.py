"""A world with a queue in it: the same machine without processes, a real store and a real journal."""

from dataclasses import dataclass, field, replace
from typing import Any

from dibs.engine.queue.explain import Explain
from dibs.engine.queue.queue import AddCall, Added, PartPlace, Queue
from dibs.engine.watch.health import FailureJudge, Health
from dibs.model.gpus import Pool
from dibs.model.jobs import After, Dependency, Job, JobId, Request
from dibs.policy.outcomes import Limits
from dibs.store.journal import NAME, Journal
from dibs.store.recorder import Recorder
from engine.world import FailingStore, World, a_request


def a_wish(text: str = "train", *, after: dict[int, str] | None = None, **more: Any) -> Request:
    """A request as `add` makes it. `after={12: "ok"}`."""
    plain = {
        name: more.pop(name) for name in ("gpus", "share", "retries", "restartable", "priority") if name in more
    }
    needed = tuple(Dependency(JobId(job), After(kind)) for job, kind in (after or {}).items())
    return replace(a_request(text, **plain), after=needed, **more)


@dataclass
class QueueWorld(World):
    """The world of a daemon."""

    limits: Limits | None = field(default_factory=lambda: Limits(quick_failures=0, gpu_failures=0))
    calls: int = 0

    def open(self) -> None:
        super().open()
        self.health = Health(self.engine, self.judge, first=600.0)
        self.queue = Queue(
            self.engine,
            self.place,
            Explain(self.engine, lambda: self.now),
            lambda text, probe: Pool(cards=()),
        )

    def open_store(self) -> FailingStore:
        return FailingStore(f"{self.root}/store.db")

    def parts(self) -> dict[str, Any]:
        self.journal = Journal(f"{self.root}/{NAME}")
        self.judge = FailureJudge(self.cards)
        return super().parts() | {"recorder": Recorder(self.store, self.journal), "judge": self.judge}

    def make_list(self) -> None:
        """Jobs come from people, who have one environment; a list would make its own of the store."""
        environment = {"HOME": "/"}
        with self.store.turn():
            key = self.store.keep_environment(environment)
        self.engine.place.keep_environment(key, environment)

    def resume(self, *, with_list: bool = False) -> None:
        self.open()
        self.engine.resume()
        self.settle_down()

    def crash(self) -> None:
        super().crash()
        self.journal.close()

    def add(self, *requests: Request, key: str = "", **more: Any) -> list[Job]:
        """Add and let the engine act."""
        self.calls += 1
        call = AddCall(key=key or f"call {self.calls}", requests=requests, environment={"HOME": "/"}, **more)
        added = self.queue.add(call)
        jobs = [self.store.job(JobId(number)) for number in range(added.first, added.last + 1)]
        for job in jobs:
            self.acknowledged[job.id] = job.request
        self.settle_down()
        return [self.store.job(job.id) for job in jobs]

    def send(self, key: str, *requests: Request, offset: int, jobs: int) -> Added:
        """A part of a list."""
        place = PartPlace(offset, jobs)
        return self.queue.add(AddCall(key=key, requests=requests, environment={"HOME": "/"}, part=place))

    def enter_all(self) -> None:
        while self.queue.enter_part():
            pass
        self.settle_down()

    def do(self, verb: str, *jobs: int, **more: Any) -> Any:
        """`do("hold", 1, 2)`"""
        verbs = self.queue.suspensions if verb in ("suspend", "resume") else self.queue
        changed = getattr(verbs, verb)([JobId(job) for job in jobs], **more)
        self.settle_down()
        return changed

    def state(self, job: int) -> str:
        return str(self.store.job(JobId(job)).state)

    def sentence(self, job: int) -> str:
        reason = self.queue.why(JobId(job)).reason
        return reason.sentence if reason else ""

    def kinds(self) -> list[str]:
        return [row.kind for row in self.store.events.since(0)]
