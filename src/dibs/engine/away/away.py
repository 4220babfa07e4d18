"""Attempts that other systems run: handed over, looked after, settled.

What another system is asked may take seconds, so it is asked on a thread beside the loop: one round every few
seconds, with everything there is to say and to hear. Whatever a round finds is recorded in the next turn; what a
crash loses of it, the next round finds again.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from dibs.backends.protocol import AttemptRef, Identity, Observed, Phase
from dibs.engine.away.asking import Aside, Asides, Asking
from dibs.engine.away.contact import Contact, Elsewhere, Standing
from dibs.engine.away.homes import Homes
from dibs.engine.away.round import Findings, remove, run_errand
from dibs.engine.away.strays import is_over, sentence
from dibs.engine.hand import Hand, Key, Observer, Open
from dibs.engine.place import Place
from dibs.engine.results import Results
from dibs.engine.settling import Settling
from dibs.errors import StoreUnusable
from dibs.model.events import Started, Trouble
from dibs.model.jobs import Attempt, Cause, Job, JobId, Outcome, State
from dibs.model.reasons import Reason
from dibs.model.units import show_duration
from dibs.policy.settle import outcome_of
from dibs.store.store import Store

_GATHER = 0.2  # seconds until the next round after something new: an array comes in many pieces
_HURRY = 0.05  # seconds until the next round where the last one did not get through
_FAR = 60 * 86400.0  # seconds
_AVOIDED = (Cause.LOST, Cause.GPU_FAULT, Cause.START_ERROR)  # after these the next attempt goes elsewhere


class Away:
    """Everything that runs elsewhere. `hand.away` has the attempts; here is how they are doing."""

    def __init__(
        self,
        *,
        hand: Hand,
        store: Store,
        settling: Settling,
        results: Results,
        place: Place,
        places: Mapping[str, Elsewhere],
        mark: str,
        make_aside: Callable[[], Aside],
        reach: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.observer: Observer
        self._hand = hand
        self._store = store
        self._settling = settling
        self._results = results
        self._place = place
        self._mark = mark
        self._contacts = {name: Contact(elsewhere, mark) for name, elsewhere in places.items()}
        self._asides = Asides(make_aside)
        self.asking = Asking(places, self._asides, clock)
        self._reach = reach
        self._clock = clock

    # -- what the engine asks --------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """Those that somebody has set up or uses."""
        return tuple(name for name, one in self._contacts.items() if one.elsewhere.is_wanted or one.was_used)

    def knows(self, name: str) -> bool:
        return name in self._contacts

    def room(self) -> dict[str, int]:
        """How many more each of them may be given."""
        given = Counter(one.attempt.backend for one in self._hand.away.values())
        return {name: max(0, one.elsewhere.most - given[name]) for name, one in self._contacts.items()}

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

    def come_back(self, one: Open) -> None:
        """An attempt of an earlier life. Whether it was handed over then, the first round finds out."""
        self._hand.away[one.attempt.key] = one
        self._take(one)

    def look_out(self) -> None:
        """An earlier life may have ended something over there that is back by now."""
        for name, contact in self._contacts.items():
            if self._store.listing.was_used(name):
                contact.strays.look_out()
                self._ask_within(contact, _GATHER)

    def hand_over(self, begun: Sequence[Open]) -> None:
        """The intent is recorded: have these run."""
        for one in begun:
            try:
                self._results.begin(one.job, one.attempt)
            except OSError as error:
                self._hand.events.append(Trouble(f"cannot show the folder of job {one.job.label}: {error}"))
            self._take(one)

    def tell(self, keys: Iterable[Key], word: str) -> None:
        """`stop` or `kill`; repeated with each round until they have ended."""
        for key in keys:
            one = self._hand.away.get(key)
            contact = None if one is None else self._contacts.get(one.attempt.backend)
            if contact is not None and key in contact.refs:
                contact.end(key, self._clock(), insists=word == "kill")
                self._ask_within(contact, _GATHER)

    def go_back(self) -> None:
        """A turn failed: what it had settled is open again, and the next round tells what became of it."""
        for name, contact in self._contacts.items():
            contact.agree_with([one for one in self._hand.away.values() if one.attempt.backend == name])
            for key in contact.refs:
                if key[0] in self._hand.stopping:  # one that is taken again must not be handed over
                    contact.end(key, self._clock())
            if contact.refs:  # in its own time: a disk may stay full for hours
                self._ask_within(contact, contact.elsewhere.every)

    def ring(self, now: float) -> None:
        """Begin the rounds that are due."""
        try:
            for name, contact in self._contacts.items():
                if contact.is_due(now):
                    self._begin_round(name, contact, now)
        finally:
            self._set_timer()

    def settle(self, now: float) -> None:
        """Record what the last rounds found. Inside a turn of the store."""
        for name, contact in self._contacts.items():
            findings, contact.findings = contact.findings, []
            for found in findings:
                self._record(contact, found, now)
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

    def standings(self) -> list[Standing]:
        """How those answer that have attempts of ours; nobody asks the others."""
        return [
            Standing(
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

    def _take(self, one: Open) -> None:
        contact = self._contacts.get(one.attempt.backend)
        if contact is None:
            sentence = f"job {one.job.label} was handed to {one.attempt.backend}, which this daemon does not know"
            self._hand.events.append(Trouble(sentence))
            return
        contact.take(one)
        self._ask_within(contact, _GATHER)

    def _ask_within(self, contact: Contact, seconds: float) -> None:
        due = self._clock() + seconds
        contact.next_round = due if contact.next_round is None else min(contact.next_round, due)
        self._set_timer()

    def _set_timer(self) -> None:
        due = [
            one.next_round for one in self._contacts.values() if one.next_round is not None and not one.is_asking
        ]
        if due:
            self._hand.timers["away"] = min(due)
        else:
            self._hand.timers.pop("away", None)

    def _begin_round(self, name: str, contact: Contact, now: float) -> None:
        contact.next_round = None
        if not contact.is_needed:
            return
        contact.next_round = now + contact.pause  # whatever is in the way of this one
        try:
            errand = contact.errand(
                self._hand.away,
                lambda one: self._results.streams(one.job, one.attempt.folder),
                self._avoided,
                self._place.environment_path,
            )
        except StoreUnusable as error:
            self._hand.trouble(error.message, now)
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
            self._hand.events.append(Trouble(contact.trouble))
        if found.submitted.accepted:
            self._reach("after-submit")
        if found.bug is not None and not contact.refs:
            contact.strays.stop_looking()
            is_news = True
        if contact.is_needed:
            self._ask_within(contact, _HURRY if contact.must_hurry else contact.pause)
        self._set_timer()
        self._hand.ask_for_turn()
        if found.bug is not None and is_news:  # a daemon in which bugs fall again and again would end
            raise found.bug

    def _since(self, moment: float) -> str:
        return show_duration(self._clock() - moment)

    def _avoided(self, one: Open) -> tuple[str, ...]:
        """The node on which the attempt before failed, where that was the node's fault perhaps."""
        if one.attempt.number == 1:
            return ()
        for row in self._store.listing.attempts(one.job.id):
            if row.attempt.number == one.attempt.number - 1 and row.attempt.node and row.outcome is not None:
                return (row.attempt.node,) if row.outcome.cause in _AVOIDED else ()
        return ()

    # -- recording -------------------------------------------------------------------------------------

    def _record(self, contact: Contact, found: Findings, now: float) -> None:
        keys = {ref: key for key, ref in contact.refs.items()}
        for ref, error in found.submitted.refused.items():
            if (one := self._one(keys, ref)) is not None:
                message = f"{error.message}; {error.remedy}" if error.remedy else error.message
                self._end(contact, one, Outcome(cause=Cause.REFUSED, message=message), now)
        for ref, seen in found.observed.items():
            if (one := self._one(keys, ref)) is not None and one.attempt.key in contact.refs:
                contact.seen[one.attempt.key] = seen
                self._see(contact, one, seen, now)

    def _take_out(self, name: str, contact: Contact, seen: Sequence[Identity], now: float) -> None:
        """Have those of them ended that are over here."""
        chosen = contact.strays.consider(seen, partial(is_over, self._store.listing, name, self._mark), now)
        if chosen:
            self._hand.events.append(Trouble(sentence(contact.elsewhere.title, self._mark, chosen)))
            self._ask_within(contact, _GATHER)

    def _one(self, keys: Mapping[AttemptRef, Key], ref: AttemptRef) -> Open | None:
        return self._hand.away.get(keys[ref]) if ref in keys else None

    def _see(self, contact: Contact, one: Open, seen: Observed, now: float) -> None:
        if seen.phase is Phase.RUNNING:
            self._runs(one, seen, now)
        elif seen.phase is Phase.ENDED:
            record = dict(seen.record or {})
            outcome = outcome_of(record)
            if seen.cause is not None:
                outcome = replace(outcome, cause=seen.cause, message=seen.reason or outcome.message)
            if record.get("code") is not None or record.get("signal") is not None:
                one = self._runs(one, seen, now - (outcome.seconds or 0.0))
            self._end(contact, one, outcome, now)
        elif seen.phase is Phase.LOST and seen.never_started:
            contact.drop(one.attempt.key)
            self._settling.queue_again(one, now)
        elif seen.phase is Phase.LOST:
            if seen.node:
                one = self._runs(one, seen, now)
            self._end(contact, one, Outcome(cause=seen.cause or Cause.LOST, message=seen.reason), now)

    def _runs(self, one: Open, seen: Observed, began: float) -> Open:
        """It was started over there; said once, and again where more is known of it."""
        attempt = one.attempt
        is_new = one.job.state is not State.RUNNING
        node, gpus = seen.node or attempt.node, seen.gpus or attempt.node_gpus
        if not is_new and (node, gpus) == (attempt.node, attempt.node_gpus):
            return one
        attempt = replace(attempt, node=node, node_gpus=gpus)
        if is_new:
            attempt = replace(attempt, opened_at=began)
        now_running = replace(one, job=replace(one.job, state=State.RUNNING), attempt=attempt)
        self._hand.away[attempt.key] = now_running
        self._store.run_attempt(attempt)
        self.observer.runs(now_running.job, attempt, is_new=is_new)
        if is_new:
            stdout, stderr = self._results.streams(one.job, attempt.folder)
            self._hand.events.append(Started(now_running.job, attempt, stdout, stderr, adopted=not one.is_ours))
        return now_running

    def _end(self, contact: Contact, one: Open, outcome: Outcome, now: float) -> None:
        if outcome.cause is Cause.KILLED and one.attempt.key in contact.stopping:
            outcome = replace(outcome, cause=Cause.STOPPED, message="")  # we asked for it, by whatever way
        contact.drop(one.attempt.key)
        self._settling.end(one, outcome, now)
