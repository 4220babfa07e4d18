"""Attempts that other systems run: handed over, looked after, settled.

What another system is asked may take seconds, so it is asked on a thread beside the loop: one round every few
seconds, with everything there is to say and to hear. Whatever a round finds is recorded in the next turn; what a
crash loses of it, the next round finds again.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from dibs.backends.protocol import AttemptRef, Identity, Observed, Phase
from dibs.engine.launch.place import Place
from dibs.engine.launch.results import Results
from dibs.engine.remote.asking import Aside, Asides, Asking
from dibs.engine.remote.contact import Contact, Elsewhere, RemoteStanding
from dibs.engine.remote.homes import Homes
from dibs.engine.remote.round import Findings, remove, run_errand
from dibs.engine.remote.strays import is_over, sentence
from dibs.engine.turn.facts import EndFound, Finding, NeverRan, RemoteRunFound
from dibs.engine.turn.state import Key, OpenAttempt
from dibs.errors import StoreUnusable
from dibs.model.events import Event, Trouble
from dibs.model.jobs import Attempt, Cause, Job, JobId, Outcome, State
from dibs.model.reasons import Reason
from dibs.model.units import show_duration
from dibs.policy.outcomes import outcome_of
from dibs.store.store import Store

_GATHER = 0.2  # seconds until the next round after something new: an array comes in many pieces
_HURRY = 0.05  # seconds until the next round where the last one did not get through
_FAR = 60 * 86400.0  # seconds
_AVOIDED = (Cause.LOST, Cause.GPU_FAULT, Cause.START_ERROR)  # after these the next attempt goes elsewhere


class RemoteSystems:
    """Everything that runs elsewhere. The engine's state has the attempts; here is how they are doing."""

    def __init__(
        self,
        *,
        store: Store,
        results: Results,
        place: Place,
        places: Mapping[str, Elsewhere],
        mark: str,
        make_aside: Callable[[], Aside],
        ask_for_turn: Callable[[], None],
        reach: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._results = results
        self._place = place
        self._mark = mark
        self._contacts = {name: Contact(elsewhere, mark) for name, elsewhere in places.items()}
        self._asides = Asides(make_aside)
        self.asking = Asking(places, self._asides, clock)
        self._reach = reach
        self._clock = clock
        self._ask_for_turn = ask_for_turn
        self._news: list[Event] = []

    # -- what the engine asks --------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """Those that somebody has set up or uses."""
        return tuple(name for name, one in self._contacts.items() if one.elsewhere.is_wanted or one.was_used)

    def knows(self, name: str) -> bool:
        return name in self._contacts

    @property
    def most(self) -> dict[str, int]:
        """How many attempts each of them may have at once."""
        return {name: one.elsewhere.most for name, one in self._contacts.items()}

    @property
    def next_round(self) -> float | None:
        """When the next of them is to be asked."""
        ready = [one for one in self._contacts.values() if not one.is_asking]
        return min((one.next_round for one in ready if one.next_round is not None), default=None)

    def shift(self, seconds: float) -> None:
        """The clock was set by so many seconds."""
        for contact in self._contacts.values():
            if contact.next_round is not None:
                contact.next_round += seconds

    def take_news(self) -> list[Event]:
        """What there is to announce since the last time."""
        news, self._news = self._news, []
        return news

    def attempt_folder(self, on: str, job: JobId, number: int) -> str:
        return self._contacts[on].elsewhere.place.attempt_folder(job, number)

    @property
    def homes(self) -> Homes:
        """Where their folders are, beside the engine's own."""
        all_of_them = [one.elsewhere for one in self._contacts.values()]
        return Homes(
            here=self._place,
            now=tuple(one.place for one in all_of_them if one.place.root != self._place.root),
            earlier=tuple(place for one in all_of_them for place in one.earlier),
            mark=self._mark,
        )

    def forget_environments(self, keys: Sequence[str]) -> None:
        """No job needs these any more: remove the copies that others see.

        After the rounds that have begun, and before any that needs one of them anew and finds that it is gone.
        """
        for name, contact in self._contacts.items():
            place = contact.elsewhere.place
            if keys and place.root != self._place.root:
                paths = [place.environment_path(key) for key in keys]
                self._asides.of(name)(partial(remove, paths), lambda _: None)

    def come_back(self, attempts: Iterable[OpenAttempt]) -> None:
        """Take up the attempts of an earlier engine. Whether they were handed over, the first round finds out.

        That engine may also have ended something over there that is back by now.
        """
        for one in attempts:
            self._take(one)
        for name, contact in self._contacts.items():
            if self._store.listing.was_used(name):
                contact.strays.look_out()
                self._ask_within(contact, _GATHER)

    def hand_over(self, begun: Sequence[OpenAttempt]) -> None:
        """The intent is recorded: have these run."""
        for one in begun:
            try:
                self._results.begin(one.job, one.attempt)
            except OSError as error:
                self._news.append(Trouble(f"cannot show the folder of job {one.job.label}: {error}"))
            self._take(one)

    def tell(self, keys: Iterable[Key], word: str, remote: Mapping[Key, OpenAttempt]) -> None:
        """`stop` or `kill`; repeated with each round until they have ended."""
        for key in keys:
            one = remote.get(key)
            contact = None if one is None else self._contacts.get(one.attempt.backend)
            if contact is not None and key in contact.refs:
                contact.end(key, self._clock(), insists=word == "kill")
                self._ask_within(contact, _GATHER)

    def ring(self, remote: Mapping[Key, OpenAttempt], now: float) -> None:
        """Begin the rounds that are due."""
        for name, contact in self._contacts.items():
            if contact.is_due(now):
                self._begin_round(name, contact, remote, now)

    def findings(self, remote: Mapping[Key, OpenAttempt], now: float) -> list[Finding]:
        """What the last rounds found out about these attempts. It is kept until it is recorded."""
        reader = _Reader(self._results, remote, now)
        for contact in self._contacts.values():
            for found in contact.findings:
                reader.read(contact, found)
        return reader.findings

    def recorded(self, findings: Sequence[Finding], now: float) -> None:
        """What the last rounds found is in the store."""
        for name, contact in self._contacts.items():
            for finding in findings:
                if isinstance(finding, (EndFound, NeverRan)) and finding.key in contact.refs:
                    contact.drop(finding.key)
            rounds, contact.findings = contact.findings, []
            for found in rounds:
                if found.strays is not None:
                    self._take_out(name, contact, found.strays, now)

    def waiting(self, job: Job) -> tuple[Reason, float | None]:
        """Why a job that was handed over does not run yet, and when it may."""
        contact = self._contacts.get(job.request.on)
        key = (job.id, job.attempts)
        if contact is None or key not in contact.refs:
            return Reason("backend", f"waits at {job.request.on}, which this daemon does not know"), None
        title = contact.elsewhere.title
        seen = contact.seen.get(key)
        if key in contact.stopping:
            asked = f", as was asked for {self._since(contact.asked_at[key])} ago: " if contact.trouble else ""
            return Reason("backend", f"is being taken back from {title}{asked}{contact.whole_trouble}"), None
        if contact.trouble:
            return Reason("backend", f"waits: {contact.whole_trouble}"), None
        if key in contact.put_off:
            return Reason("backend", f"waits: {contact.put_off[key]}"), None
        if seen is None or not seen.reason:
            return Reason("backend", f"is being handed to {title}"), None
        # Without time limits others may run for ever, as far as anybody over there knows: that is no answer.
        start = seen.expected_start
        if start is not None and start - self._clock() > _FAR:
            start = None
        return Reason("backend", f"waits at {title}: {seen.reason}", until=start), start

    def remark(self, job: Job) -> Reason | None:
        """What there is to say of one that runs there: that it does not come on, or that nobody can be asked."""
        contact = self._contacts.get(job.request.on)
        if contact is None:
            return None
        key = (job.id, job.attempts)
        seen = contact.seen.get(key)
        if contact.trouble and key in contact.stopping:
            asked = f"its end was asked for {self._since(contact.asked_at[key])} ago"
            return Reason("backend", f"{asked}: {contact.whole_trouble}")
        said = contact.trouble or ("" if seen is None else seen.reason)
        return Reason("backend", said) if said else None

    def trouble(self, name: str) -> str:
        """Why nobody over there can be asked now; empty where somebody can."""
        contact = self._contacts.get(name)
        return "" if contact is None else contact.trouble

    def standings(self) -> list[RemoteStanding]:
        """How those answer that have attempts of ours; nobody asks the others."""
        return [
            RemoteStanding(
                name=name,
                attempts=len(one.refs),
                trouble=one.trouble,
                remedy=one.remedy,
                silent_since=one.silent_since,
            )
            for name, one in self._contacts.items()
            if one.refs
        ]

    def number_there(self, attempt: Attempt) -> str:
        """What people over there call one that is not over; empty where it has not been seen there."""
        contact = self._contacts.get(attempt.backend)
        seen = None if contact is None else contact.seen.get(attempt.key)
        return "" if seen is None else seen.number

    def close(self) -> None:
        """Leave. What was handed over goes on."""
        self._asides.stop()

    # -- rounds ----------------------------------------------------------------------------------------

    def _take(self, one: OpenAttempt) -> None:
        contact = self._contacts.get(one.attempt.backend)
        if contact is None:
            sentence = f"job {one.job.label} was handed to {one.attempt.backend}, which this daemon does not know"
            self._news.append(Trouble(sentence))
            return
        contact.take(one)
        self._ask_within(contact, _GATHER)

    def _ask_within(self, contact: Contact, seconds: float) -> None:
        due = self._clock() + seconds
        contact.next_round = due if contact.next_round is None else min(contact.next_round, due)

    def _begin_round(self, name: str, contact: Contact, remote: Mapping[Key, OpenAttempt], now: float) -> None:
        contact.next_round = None
        if not contact.is_needed:
            return
        contact.next_round = now + contact.pause  # whatever is in the way of this one
        try:
            errand = contact.errand(
                remote,
                lambda one: self._results.streams(one.job, one.attempt.folder),
                self._avoided,
                self._place.environment_path,
            )
        except StoreUnusable as error:
            self._news.append(Trouble(error.message))
            return
        backend = contact.elsewhere.backend
        if errand.submit:
            self._reach("before-submit")
        contact.is_asking = self._asides.of(name)(
            lambda: run_errand(backend, errand), lambda found: self._came(contact, found)
        )
        if contact.is_asking:  # otherwise there can be no thread now
            contact.next_round = None
            contact.strays.due = []

    def _came(self, contact: Contact, found: Findings) -> None:
        contact.is_asking = False
        had_trouble = contact.trouble
        contact.heard(found, self._clock())
        is_news = contact.trouble != had_trouble
        if contact.trouble and is_news:
            self._news.append(Trouble(contact.trouble))
        if found.submitted.accepted:
            self._reach("after-submit")
        if found.bug is not None and not contact.refs:
            contact.strays.stop_looking()
            is_news = True
        if contact.is_needed:
            self._ask_within(contact, _HURRY if contact.must_hurry else contact.pause)
        self._ask_for_turn()
        if found.bug is not None and is_news:  # a daemon in which bugs fall again and again would end
            raise found.bug

    def _since(self, moment: float) -> str:
        return show_duration(self._clock() - moment)

    def _avoided(self, one: OpenAttempt) -> tuple[str, ...]:
        """The node on which the attempt before failed, where that was the node's fault perhaps."""
        if one.attempt.number == 1:
            return ()
        for row in self._store.listing.attempts(one.job.id):
            if row.attempt.number == one.attempt.number - 1 and row.attempt.node and row.outcome is not None:
                return (row.attempt.node,) if row.outcome.cause in _AVOIDED else ()
        return ()

    # -- recording -------------------------------------------------------------------------------------

    def _take_out(self, name: str, contact: Contact, seen: Sequence[Identity], now: float) -> None:
        """Have those of them ended that are over here."""
        chosen = contact.strays.consider(seen, partial(is_over, self._store.listing, name, self._mark), now)
        if chosen:
            self._news.append(Trouble(sentence(contact.elsewhere.title, self._mark, chosen)))
            self._ask_within(contact, _GATHER)


class _Reader:
    """Turns what rounds found into findings, each built on those before it."""

    def __init__(self, results: Results, remote: Mapping[Key, OpenAttempt], now: float) -> None:
        self.findings: list[Finding] = []
        self._results = results
        self._remote = dict(remote)  # without those of which the end is found
        self._now = now

    def read(self, contact: Contact, found: Findings) -> None:
        keys = {ref: key for key, ref in contact.refs.items()}
        for ref, error in found.submitted.refused.items():
            if (one := self._one(keys, ref)) is not None:
                message = f"{error.message}; {error.remedy}" if error.remedy else error.message
                self._end(contact, one, Outcome(cause=Cause.REFUSED, message=message))
        for ref, seen in found.observed.items():
            if (one := self._one(keys, ref)) is not None:
                contact.seen[one.attempt.key] = seen
                self._see(contact, one, seen)

    def _one(self, keys: Mapping[AttemptRef, Key], ref: AttemptRef) -> OpenAttempt | None:
        return self._remote.get(keys[ref]) if ref in keys else None

    def _see(self, contact: Contact, one: OpenAttempt, seen: Observed) -> None:
        if seen.phase is Phase.RUNNING:
            self._runs(one, seen, self._now)
        elif seen.phase is Phase.ENDED:
            record = dict(seen.record or {})
            outcome = outcome_of(record)
            if seen.cause is not None:
                outcome = replace(outcome, cause=seen.cause, message=seen.reason or outcome.message)
            if record.get("code") is not None or record.get("signal") is not None:
                self._runs(one, seen, self._now - (outcome.seconds or 0.0))
            self._end(contact, one, outcome)
        elif seen.phase is Phase.LOST and seen.never_started:
            del self._remote[one.attempt.key]
            self.findings.append(NeverRan(one.attempt.key))
        elif seen.phase is Phase.LOST:
            if seen.node:
                self._runs(one, seen, self._now)
            self._end(contact, one, Outcome(cause=seen.cause or Cause.LOST, message=seen.reason))

    def _runs(self, one: OpenAttempt, seen: Observed, began: float) -> None:
        """It was started over there; said once, and again where more is known of it."""
        attempt = one.attempt
        is_new = one.job.state is not State.RUNNING
        node, gpus = seen.node or attempt.node, seen.gpus or attempt.node_gpus
        if not is_new and (node, gpus) == (attempt.node, attempt.node_gpus):
            return
        attempt = replace(attempt, node=node, node_gpus=gpus)
        if is_new:
            attempt = replace(attempt, opened_at=began)
        self._remote[attempt.key] = replace(one, job=replace(one.job, state=State.RUNNING), attempt=attempt)
        self.findings.append(RemoteRunFound(attempt, *self._results.streams(one.job, attempt.folder)))

    def _end(self, contact: Contact, one: OpenAttempt, outcome: Outcome) -> None:
        if outcome.cause is Cause.KILLED and one.attempt.key in contact.stopping:
            outcome = replace(outcome, cause=Cause.STOPPED, message="")  # we asked for it, by whatever way
        del self._remote[one.attempt.key]
        self.findings.append(EndFound(one.attempt.key, outcome))
