"""One round with another system, in its thread: end attempts, submit attempts, observe all."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from dibs.backends.protocol import AttemptRef, Backend, Identity, Observed, Phase, Submission, Submitted
from dibs.dataclass import dataclass
from dibs.errors import BackendSilent, DibsError
from dibs.files import cannot_write, error_text, replace_file
from dibs.model.jobs import AttemptKey


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundPlan:
    """What a round is to do."""

    stop: Sequence[AttemptRef] = ()
    kill: Sequence[AttemptRef] = ()  # at once, without grace
    hold: Sequence[AttemptRef] = ()
    release: Sequence[AttemptRef] = ()
    keep: Sequence[AttemptRef] = ()  # held before they were accepted, as far as we know
    remove: Sequence[Identity] = ()  # strays: the other system brought them back though they are over
    submit: Sequence[Submission] = ()
    observe: Sequence[AttemptRef] = ()
    environments: Mapping[str, str] = field(default_factory=dict)  # files to make, each a copy of another
    mark: str = ""  # of this queue
    root_setting: str = ""  # the setting that says where these files are


_NOTHING = Submitted()


@dataclass(slots=True)
class RoundResult:
    """What a round found."""

    submitted: Submitted = _NOTHING
    observed: Mapping[AttemptRef, Observed] = field(default_factory=dict)
    strays: Sequence[Identity] | None = None  # None: not observed
    never_ran: frozenset[AttemptKey] = frozenset()  # they are not over there, and never were
    has_submitted: bool = False  # some of what was to be submitted may have been
    trouble: DibsError | None = None  # no answer: what is not named here is as before
    bug: Exception | None = None  # to be raised on the loop


def run_round(backend: Backend, plan: RoundPlan) -> RoundResult:
    """Do all of it, as far as the system answers."""
    found = RoundResult(has_submitted=bool(plan.submit))
    try:
        for refs, insist in ((plan.stop, False), (plan.kill, True)):
            if refs:
                backend.cancel(refs, insist=insist)
        for refs, release in ((plan.hold, False), (plan.release, True)):
            if refs:
                backend.hold(refs, release=release)
        if plan.remove:
            backend.remove_strays(plan.remove)
        if plan.submit:
            found.submitted = _submit(backend, plan)
        asked = [*plan.observe, *found.submitted.accepted]
        if asked or not plan.submit:
            found.observed = _with_unsubmitted(plan, backend.observe(asked))
            found.strays = backend.strays(plan.mark)
    except BackendSilent as error:
        found.trouble = error
        # A backend that did not answer to `submit` raises before it has handed over anything.
        found.has_submitted = found.submitted is not _NOTHING
    except DibsError as error:
        found.trouble = error
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        sentence = f"cannot write for the other system: {error_text(error)}{where}"
        found.trouble = DibsError(sentence, remedy="`df -h` shows the disks")
    except Exception as error:
        found.bug = error
        found.trouble = DibsError(f"cannot go on over there: {error!r}", remedy="the daemon's log has more")
    return found


def _submit(backend: Backend, plan: RoundPlan) -> Submitted:
    """Submit all whose environment can be copied; the others do not delay them."""
    try:
        backend.make_ready()
    except DibsError as error:
        # A file system that is not mounted: nothing is written in its place; running attempts are still observed.
        why_not = f"{error.message}; {error.remedy}" if error.remedy else error.message
        return Submitted(put_off={one.ref: why_not for one in plan.submit})
    faults: dict[str, str] = {}
    for target, source in plan.environments.items():
        try:
            _copy(source, target)
        except OSError as error:
            is_ours = error.filename == source
            fault = f"{error_text(error)} ({source})" if is_ours else _cannot_write(error, target, plan)
            faults[target] = f"cannot bring its environment: {fault}"
    late = {one.ref: why for one in plan.submit if (why := faults.get(one.spec["environment"]))}
    ready = [one for one in plan.submit if one.ref not in late]
    for one in ready:
        _make_folder_for_output(one)
    submitted = backend.submit(ready)
    return replace(submitted, put_off={**submitted.put_off, **late})


def _cannot_write(error: OSError, target: str, plan: RoundPlan) -> str:
    return cannot_write(error, os.path.dirname(target), plan.root_setting)


def _make_folder_for_output(one: Submission) -> None:
    """Of `-o` and `--error`. Not on the loop: its file system may not answer. Without it the start says so.

    What has the name of the node is left to its owner: which node it is, is not known yet.
    """
    with contextlib.suppress(OSError):
        for stream in ("stdout", "stderr"):
            if (where := os.path.dirname(one.spec[stream].partition("%N")[0])) != one.ref.folder:
                os.makedirs(where, exist_ok=True)


def _copy(source: str, target: str) -> None:
    """Copy a captured environment from the queue's folder to one that the nodes see."""
    if os.path.exists(target):
        return
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    with open(source, "rb") as file:
        replace_file(target, file.read())


def remove(paths: Sequence[str]) -> None:
    """Remove these files where they exist."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _with_unsubmitted(plan: RoundPlan, observed: Mapping[AttemptRef, Observed]) -> dict[AttemptRef, Observed]:
    """An attempt without a folder was never submitted: where it is to end or is held, nothing is waited for."""
    unsubmitted = Observed(phase=Phase.LOST, never_started=True)
    ending = {*plan.stop, *plan.kill}
    # One that is seen in the other system's queue was submitted.
    ending |= {ref for ref in plan.keep if ref in observed and observed[ref].is_held is None}
    return {
        ref: unsubmitted if ref in ending and seen.phase is Phase.QUEUED and _has_no_folder(ref) else seen
        for ref, seen in observed.items()
    }


def _has_no_folder(ref: AttemptRef) -> bool:
    """Not `lexists`, which is False where a file system does not answer."""
    try:
        os.lstat(ref.folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False
