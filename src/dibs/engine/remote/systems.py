"""Attempts that other systems run.

An answer of another system may take seconds, so each has a thread: one round every few seconds, with all orders
and questions. The result of a round is recorded in the next turn; if a crash loses it, the next round repeats it.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from dibs.backends.protocol import AttemptRef, Identity, Node, Observed, Phase, Resources
from dibs.engine.launch.launcher import Place
from dibs.engine.launch.results import Results
from dibs.engine.remote.round import RoundResult, remove, run_round
from dibs.engine.remote.state import (
    RemoteFolders,
    RemoteStanding,
    RemoteState,
    RemoteSystem,
    is_stray_over,
    strays_sentence,
    wanted_by,
)
from dibs.engine.turn.facts import EndFound, Finding, NeverRan, ReleaseFound, RemoteRunFound
from dibs.engine.turn.state import Key, OpenAttempt
from dibs.errors import BackendSilent, StoreUnusable
from dibs.model.events import Event, Trouble
from dibs.model.jobs import BEING_RELEASED, Attempt, Cause, Job, JobId, Outcome, Reason, Request, State
from dibs.model.units import show_duration
from dibs.policy.outcomes import outcome_of
from dibs.store.store import Store
from dibs.worker_thread import WorkerThread, future_of

_GATHER = 0.2  # seconds until the next round after something new: an array comes in many pieces
_HURRY = 0.05  # seconds until the next round where the last one left attempts without an answer
_FAR = 60 * 86400.0  # seconds
_AVOIDED = (Cause.LOST, Cause.GPU_FAULT, Cause.START_ERROR)  # after these the next attempt goes elsewhere


class RemoteSystems:
    """Everything that runs on other systems. The engine's state has the attempts; here is what the systems say."""

    def __init__(
        self,
        *,
        store: Store,
        results: Results,
        place: Place,
        systems: Mapping[str, RemoteSystem],
        mark: str,
        start_thread: Callable[[str], WorkerThread],
        ask_for_turn: Callable[[], None],
        reach: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._results = results
        self._place = place
        self._mark = mark
        self._states = {name: RemoteState(system, mark) for name, system in systems.items()}
        self._threads = SystemThreads(start_thread)
        self.queries = RemoteQueries(systems, self._threads, clock)
        self._reach = reach
        self._clock = clock
        self._ask_for_turn = ask_for_turn
        self._news: list[Event] = []
        self._is_waited_for: Callable[[str], bool] = lambda _: False
        self.is_idle = True  # no round is due or under way, and there is nothing to record or to announce
        self.most = {name: system.most for name, system in systems.items()}  # attempts that each may have at once

    # -- for the engine ------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """Those that are set up or used."""
        return tuple(name for name, one in self._states.items() if one.system.is_wanted or one.was_used)

    @property
    def silent(self) -> dict[str, str]:
        """Those that did not answer the last time, and why, as a sentence with what helps."""
        return {name: one.whole_trouble for name, one in self._states.items() if one.is_silent}

    def knows(self, name: str) -> bool:
        return name in self._states

    def why_no_image(self, name: str) -> str:
        """Why a system can run no command in a container, as far as that is known without asking it."""
        return self._states[name].system.why_no_image

    @property
    def next_round(self) -> float | None:
        """When the next of them is to be asked."""
        ready = [one for one in self._states.values() if not one.is_asking]
        return min((one.next_round for one in ready if one.next_round is not None), default=None)

    def shift(self, seconds: float) -> None:
        """The clock was set by so many seconds."""
        for state in self._states.values():
            if state.next_round is not None:
                state.next_round += seconds

    def take_news(self) -> list[Event]:
        """What there is to announce since the last time. The last act of a turn."""
        news, self._news = self._news, []
        self.is_idle = all(
            one.next_round is None and not one.is_asking and not one.results for one in self._states.values()
        )
        return news

    def attempt_folder(self, on: str, job: JobId, number: int) -> str:
        return self._states[on].system.place.attempt_folder(job, number)

    @property
    def folders(self) -> RemoteFolders:
        """Where their folders are, beside the engine's own."""
        all_of_them = [one.system for one in self._states.values()]
        return RemoteFolders(
            here=self._place,
            now=tuple(one.place for one in all_of_them if one.place.root != self._place.root),
            earlier=tuple(place for one in all_of_them for place in one.earlier),
            mark=self._mark,
        )

    def forget_environments(self, keys: Sequence[str]) -> None:
        """No job needs these any more: remove the copies on other systems.

        In the systems' threads: after rounds that have begun, before any that copies one of them again.
        """
        for name, state in self._states.items():
            place = state.system.place
            if keys and place.root != self._place.root:
                paths = [place.environment_path(key) for key in keys]
                self._threads.submit(name, partial(remove, paths), lambda _: None)

    def resume(self, attempts: Iterable[OpenAttempt]) -> None:
        """Take over the attempts of an earlier engine. The first round finds out whether they were submitted.

        That engine may also have ended attempts that their system has brought back since.
        """
        for one in attempts:
            self._take(one)
        for name, state in self._states.items():
            if self._store.listing.was_used(name):
                state.strays.search_again()
                self._ask_within(state, _GATHER)

    def submit(self, begun: Sequence[OpenAttempt]) -> None:
        """These are recorded: submit them with the next round."""
        for one in begun:
            try:
                self._results.begin(one.job, one.attempt)
            except OSError as error:
                self._announce(f"cannot show the folder of job {one.job.label}: {error}")
            self._take(one)
            if (state := self._states.get(one.attempt.backend)) is not None:
                state.untouched.add(one.attempt.key)

    def send(self, keys: Iterable[Key], word: str, remote: Mapping[Key, OpenAttempt]) -> None:
        """`stop` or `kill`; repeated with each round until they have ended."""
        for key in keys:
            one = remote.get(key)
            state = None if one is None else self._states.get(one.attempt.backend)
            if state is not None and key in state.refs:
                state.end(key, self._clock(), insists=word == "kill")
                self._ask_within(state, _GATHER)

    def hurry(self, name: str) -> None:
        """There is something to tell it: begin the next round soon."""
        if (state := self._states.get(name)) is not None:
            self._ask_within(state, _GATHER)

    def run_due_rounds(
        self, remote: Mapping[Key, OpenAttempt], is_waited_for: Callable[[str], bool], now: float
    ) -> None:
        """Begin the rounds that are due. `is_waited_for` tells whether jobs of the queue are to run there."""
        self._is_waited_for = is_waited_for
        for name, state in self._states.items():
            if state.is_due(now):
                self._begin_round(name, state, remote, now)

    def findings(self, remote: Mapping[Key, OpenAttempt], now: float) -> list[Finding]:
        """What the last rounds found out about these attempts. It is kept until it is recorded."""
        reader = _Reader(self._results, remote, now)
        for state in self._states.values():
            for found in state.results:
                reader.read(state, found)
        return reader.findings

    def recorded(self, findings: Sequence[Finding], now: float) -> None:
        """What the last rounds found is in the store."""
        for name, state in self._states.items():
            for finding in findings:
                if isinstance(finding, (EndFound, NeverRan)) and finding.key in state.refs:
                    state.drop(finding.key)
            rounds, state.results = state.results, []
            for found in rounds:
                if found.strays is not None:
                    self._remove_strays(name, state, found.strays, now)

    def waiting(self, job: Job) -> tuple[Reason, float | None]:
        """Why a job that was handed over does not run yet, and when it may."""
        state = self._states.get(job.request.on)
        key = (job.id, job.attempts)
        if state is None or key not in state.refs:
            return Reason("backend", f"waits at {job.request.on}, which this daemon does not know"), None
        title = state.system.title
        seen = state.seen.get(key)
        if key in state.stopping:
            asked = f", as was asked for {self._since(state.asked_at[key])} ago: " if state.trouble else ""
            return Reason("backend", f"is being taken back from {title}{asked}{state.whole_trouble}"), None
        if job.why_held:
            return Reason("held", _why_held(job, title, seen, state.whole_trouble)), None
        if state.trouble:
            return Reason("backend", f"waits: {state.whole_trouble}"), None
        if key in state.put_off:
            return Reason("backend", f"waits: {state.put_off[key]}"), None
        if seen is None or not seen.reason:
            return Reason("backend", f"is being handed to {title}"), None
        # Without time limits the jobs before it may run for ever, as far as the system knows: that is no answer.
        start = seen.expected_start
        if start is not None and start - self._clock() > _FAR:
            start = None
        return Reason("backend", f"waits at {title}: {seen.reason}", until=start), start

    def remark(self, job: Job) -> Reason | None:
        """Why an attempt that runs there makes no progress, or that its system does not answer."""
        state = self._states.get(job.request.on)
        if state is None:
            return None
        key = (job.id, job.attempts)
        seen = state.seen.get(key)
        if state.trouble and key in state.stopping:
            asked = f"its end was asked for {self._since(state.asked_at[key])} ago"
            return Reason("backend", f"{asked}: {state.whole_trouble}")
        said = state.trouble or ("" if seen is None else seen.reason)
        return Reason("backend", said) if said else None

    def is_held(self, job: Job) -> bool:
        """Whether a user holds it there, as far as the last look tells."""
        state = self._states.get(job.request.on)
        seen = None if state is None else state.seen.get((job.id, job.attempts))
        return seen is not None and seen.is_held is True

    def seen_reason(self, job: Job) -> str:
        """What its system said of it at the last look; empty where that is nothing."""
        state = self._states.get(job.request.on)
        seen = None if state is None else state.seen.get((job.id, job.attempts))
        return "" if seen is None else seen.reason

    def trouble(self, name: str) -> str:
        """Why it cannot be asked now; empty where it can."""
        state = self._states.get(name)
        return "" if state is None else state.trouble

    def standings(self) -> list[RemoteStanding]:
        """How those answer that have attempts of ours or do not answer; the others are not asked."""
        return [
            RemoteStanding(
                name=name,
                attempts=len(one.refs),
                trouble=one.trouble,
                remedy=one.remedy,
                silent_since=one.silent_since,
            )
            for name, one in self._states.items()
            if one.refs or one.is_awaited
        ]

    def number_there(self, attempt: Attempt) -> str:
        """The other system's number of an attempt that is not over; empty where it has not been seen there."""
        state = self._states.get(attempt.backend)
        seen = None if state is None else state.seen.get(attempt.key)
        return "" if seen is None else seen.number

    def close(self) -> None:
        """Leave. What was handed over goes on."""
        self._threads.stop()

    # -- rounds ----------------------------------------------------------------------------------------

    def _take(self, one: OpenAttempt) -> None:
        state = self._states.get(one.attempt.backend)
        if state is None:
            sentence = f"job {one.job.label} was handed to {one.attempt.backend}, which this daemon does not know"
            self._announce(sentence)
            return
        state.take(one)
        self._ask_within(state, _GATHER)

    def _announce(self, sentence: str) -> None:
        self._news.append(Trouble(sentence))
        self.is_idle = False

    def _ask_within(self, state: RemoteState, seconds: float) -> None:
        self.is_idle = False
        due = self._clock() + seconds
        state.next_round = due if state.next_round is None else min(state.next_round, due)

    def _begin_round(self, name: str, state: RemoteState, remote: Mapping[Key, OpenAttempt], now: float) -> None:
        state.next_round = None
        self._look_who_waits(name, state)
        if not state.is_needed:
            return
        state.next_round = now + state.pause  # if this one cannot be begun
        try:
            plan = state.plan_round(
                remote,
                lambda one: self._results.streams(one.job, one.attempt.folder),
                self._avoided,
                self._place.environment_path,
            )
        except StoreUnusable as error:
            self._announce(error.message)
            return
        backend = state.system.backend
        if plan.submit:
            self._reach("before-submit")
        state.is_asking = self._threads.submit(
            name, lambda: run_round(backend, plan), lambda found: self._finish_round(name, state, found)
        )
        if state.is_asking:  # otherwise no thread can be started now
            state.next_round = None
            state.strays.due = []

    def _look_who_waits(self, name: str, state: RemoteState) -> None:
        """A system that does not answer is asked again as long as any job waits for that."""
        state.is_awaited = state.is_silent and self._is_waited_for(name)
        if not state.is_needed:
            state.is_silent = False  # not asked any more, so not known

    def _finish_round(self, name: str, state: RemoteState, found: RoundResult) -> None:
        state.is_asking = False
        had_trouble = state.trouble
        state.take_in(found, self._clock())
        is_news = state.trouble != had_trouble
        if state.trouble and is_news:
            self._announce(state.trouble)
        if found.submitted.accepted:
            self._reach("after-submit")
        if found.bug is not None and not state.refs:
            state.strays.stop_looking()
            is_news = True
        self._look_who_waits(name, state)
        if state.is_needed:
            self._ask_within(state, _HURRY if state.must_hurry else state.pause)
        self._ask_for_turn()
        if found.bug is not None and is_news:  # once: a daemon that meets bug after bug ends
            raise found.bug

    def _since(self, moment: float) -> str:
        return show_duration(self._clock() - moment)

    def _avoided(self, one: OpenAttempt) -> tuple[str, ...]:
        """The node on which the attempt before failed, where the node may be the reason."""
        if one.attempt.number == 1:
            return ()
        for row in self._store.listing.attempts(one.job.id):
            if row.attempt.number == one.attempt.number - 1 and row.attempt.node and row.outcome is not None:
                return (row.attempt.node,) if row.outcome.cause in _AVOIDED else ()
        return ()

    # -- recording -------------------------------------------------------------------------------------

    def _remove_strays(self, name: str, state: RemoteState, seen: Sequence[Identity], now: float) -> None:
        """Have those of them removed that are over here."""
        chosen = state.strays.consider(seen, partial(is_stray_over, self._store.listing, name, self._mark), now)
        if chosen:
            self._announce(strays_sentence(state.system.title, self._mark, chosen))
            self._ask_within(state, _GATHER)


class _Reader:
    """Turns what rounds found into findings, each built on those before it."""

    def __init__(self, results: Results, remote: Mapping[Key, OpenAttempt], now: float) -> None:
        self.findings: list[Finding] = []
        self._results = results
        self._remote = dict(remote)  # without those of which the end is found
        self._now = now

    def read(self, state: RemoteState, found: RoundResult) -> None:
        keys = {ref: key for key, ref in state.refs.items()}
        for ref, error in found.submitted.refused.items():
            if (one := self._one(keys, ref)) is not None:
                message = f"{error.message}; {error.remedy}" if error.remedy else error.message
                self._end(state, one, Outcome(cause=Cause.REFUSED, message=message))
        for key in found.never_ran:
            if self._remote.pop(key, None) is not None:
                self.findings.append(NeverRan(key, was_tried=False))
        for ref, seen in found.observed.items():
            if (one := self._one(keys, ref)) is not None:
                state.seen[one.attempt.key] = seen
                self._see(state, one, seen)

    def _one(self, keys: Mapping[AttemptRef, Key], ref: AttemptRef) -> OpenAttempt | None:
        return self._remote.get(keys[ref]) if ref in keys else None

    def _see(self, state: RemoteState, one: OpenAttempt, seen: Observed) -> None:
        if one.job.why_held == BEING_RELEASED and seen.is_held is False:
            self.findings.append(ReleaseFound(one.attempt.key))
        if seen.phase is Phase.RUNNING:
            self._runs(one, seen, seen.began or self._now)
        elif seen.phase is Phase.ENDED:
            record = dict(seen.record or {})
            outcome = outcome_of(record)
            if seen.cause is not None:
                outcome = replace(outcome, cause=seen.cause, message=seen.reason or outcome.message)
            if record.get("code") is not None or record.get("signal") is not None:
                self._runs(one, seen, seen.began or self._now - (outcome.seconds or 0.0))
            self._end(state, one, outcome, seen.ended)
        elif seen.phase is Phase.LOST and seen.never_started:
            del self._remote[one.attempt.key]
            self.findings.append(NeverRan(one.attempt.key))
        elif seen.phase is Phase.LOST:
            if seen.node:
                self._runs(one, seen, seen.began or self._now)
            outcome = Outcome(cause=seen.cause or Cause.LOST, message=seen.reason)
            self._end(state, one, outcome, seen.ended)

    def _runs(self, one: OpenAttempt, seen: Observed, began: float) -> None:
        """It was started over there: recorded once, and again where more is known."""
        attempt = one.attempt
        is_new = one.job.state is not State.RUNNING
        node, gpus = seen.node or attempt.node, seen.gpus or attempt.node_gpus
        # Until then `opened_at` is when it was handed over, before which it cannot have started.
        began = min(max(began, attempt.opened_at), self._now) if is_new else attempt.opened_at
        if seen.record is not None and seen.began is not None and abs(seen.began - began) > _EXACT:
            began = min(
                max(seen.began, attempt.opened_at) if is_new else seen.began, self._now
            )  # its shim knows better than the round that saw it first
        if not is_new and (node, gpus, began) == (attempt.node, attempt.node_gpus, attempt.opened_at):
            return
        attempt = replace(attempt, node=node, node_gpus=gpus, opened_at=began)
        self._remote[attempt.key] = replace(one, job=replace(one.job, state=State.RUNNING), attempt=attempt)
        self.findings.append(RemoteRunFound(attempt, *self._results.streams(one.job, attempt.folder, node)))

    def _end(self, state: RemoteState, one: OpenAttempt, outcome: Outcome, ended_at: float | None = None) -> None:
        if outcome.cause is Cause.KILLED and one.attempt.key in state.stopping:
            outcome = replace(outcome, cause=Cause.STOPPED, message="")  # dibs asked for it
        del self._remote[one.attempt.key]
        self.findings.append(EndFound(one.attempt.key, outcome, ended_at=ended_at))


def _why_held(job: Job, title: str, seen: Observed | None, trouble: str) -> str:
    """What a job says that its system is to hold or to let go, which takes until the system answers."""
    if job.why_held == BEING_RELEASED:
        return f"is released when {title} answers: {trouble}" if trouble else f"is being released at {title}"
    if seen is not None and seen.is_held:
        return f"is held at {title}: {job.why_held}; `dibs release` lets it go"
    return f"is held when {title} answers: {trouble}" if trouble else f"is being held at {title}"


_EXACT = 0.5  # seconds; Slurm tells whole ones
_NODES_COUNT = 5.0  # seconds for which a look at the nodes is good
_PATIENCE = 20.0  # seconds; longer than the deadline of a command over there, shorter than a client waits
_AGAIN = "try again in a moment"
_T = TypeVar("_T")


class SystemThreads:
    """One thread for each of the other systems, started with the first question."""

    def __init__(self, start: Callable[[str], WorkerThread]) -> None:
        self._start = start
        self._threads: dict[str, WorkerThread] = {}

    def submit(self, name: str, work: Callable[[], _T], done: Callable[[_T], Any]) -> bool:
        if name not in self._threads:
            self._threads[name] = self._start(name)
        return self._threads[name].submit(work, done)

    def stop(self) -> None:
        for thread in self._threads.values():
            thread.stop()


class RemoteQueries:
    """Asks in a thread, and waits for the answer without holding up the loop."""

    def __init__(
        self, systems: Mapping[str, RemoteSystem], threads: SystemThreads, clock: Callable[[], float]
    ) -> None:
        self._systems = systems
        self._threads = threads
        self._clock = clock
        self._nodes: dict[str, tuple[float, tuple[Node, ...]]] = {}
        self._looks: dict[str, asyncio.Future[Any]] = {}  # the last look at the nodes of each

    async def nodes(self, name: str, seconds: float) -> tuple[Node, ...]:
        """The machines of a system. A look counts for some seconds, and callers meanwhile share it."""
        known = self._nodes.get(name)
        if known is not None and 0 <= self._clock() - known[0] < _NODES_COUNT:
            return known[1]
        look = self._looks.get(name)
        if look is None or look.done():
            look = self._looks[name] = self._ask(name, self._systems[name].backend.nodes)
        found = tuple(await self._answer(name, look, seconds))
        self._nodes[name] = (self._clock(), found)
        return found

    async def check(self, requests: Iterable[Request], seconds: float = _PATIENCE) -> list[str]:
        """Raise for what a system would never accept; sentences for what it cannot be asked about now.

        A system that this daemon does not know is refused by the queue.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        seen: set[tuple[str, Resources]] = set()
        for request in requests:
            if (system := self._systems.get(request.on)) is None:
                continue
            wanted = wanted_by(request)
            if (request.on, wanted) in seen:
                continue
            seen.add((request.on, wanted))
            try:
                answer = self._ask(request.on, partial(system.backend.check, wanted))
                await self._answer(request.on, answer, until - loop.time())
            except BackendSilent as error:
                return [f"{error.message}; it waits here until there is an answer"]
        return []

    def _ask(self, name: str, question: Callable[[], _T]) -> "asyncio.Future[_T]":
        try:
            return future_of(question, partial(self._threads.submit, name))
        except MemoryError:
            raise BackendSilent("cannot ask: no thread can be started now", remedy=_AGAIN) from None

    async def _answer(self, name: str, answer: "asyncio.Future[_T]", seconds: float) -> _T:
        """The answer within these seconds. A caller that leaves does not cancel it for the others."""
        try:
            return await asyncio.wait_for(asyncio.shield(answer), seconds)
        except TimeoutError:
            raise BackendSilent(f"{self._systems[name].title} has not answered yet", remedy=_AGAIN) from None
