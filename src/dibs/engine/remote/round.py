"""One round with a backend: what is to end, what is to begin, where everything stands. On a thread of its own."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dibs.backends.disks import cannot_write, said
from dibs.backends.protocol import AttemptRef, Backend, Identity, Observed, Phase, Submission, Submitted
from dibs.errors import DibsError
from dibs.files import replace_file


@dataclass(frozen=True, kw_only=True, slots=True)
class Errand:
    """What a round is to do."""

    stop: Sequence[AttemptRef] = ()
    kill: Sequence[AttemptRef] = ()  # whoever asks again does not want to wait for the grace
    remove: Sequence[Identity] = ()  # strays: the other system brought them back though they are over
    submit: Sequence[Submission] = ()
    observe: Sequence[AttemptRef] = ()
    environments: Mapping[str, str] = field(default_factory=dict)  # files to be there, each a copy of another
    mark: str = ""  # of this queue
    root_setting: str = ""  # the setting that says where they are


@dataclass(slots=True)
class Findings:
    """What a round found."""

    submitted: Submitted = field(default_factory=Submitted)
    observed: Mapping[AttemptRef, Observed] = field(default_factory=dict)
    strays: Sequence[Identity] | None = None  # of our mark, beside what we asked about; None: nobody looked
    trouble: DibsError | None = None  # nobody answered: whatever is not named here stands as it stood
    bug: Exception | None = None  # to be told on the loop; the next round may go well


def run_errand(backend: Backend, errand: Errand) -> Findings:
    """Do all of it, as far as somebody answers."""
    found = Findings()
    try:
        for refs, insist in ((errand.stop, False), (errand.kill, True)):
            if refs:
                backend.cancel(refs, insist=insist)
        if errand.remove:
            backend.remove_strays(errand.remove)
        if errand.submit:
            found.submitted = _submit(backend, errand)
        asked = [*errand.observe, *found.submitted.accepted]
        if asked or not errand.submit:
            found.observed = _with_unborn(errand, backend.observe(asked))
            found.strays = backend.strays(errand.mark)
    except DibsError as error:
        found.trouble = error
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        sentence = f"cannot write for the other system: {said(error)}{where}"
        found.trouble = DibsError(sentence, remedy="`df -h` shows the disks")
    except Exception as error:
        found.bug = error
        found.trouble = DibsError(f"cannot go on over there: {error!r}", remedy="the daemon's log has more")
    return found


def _submit(backend: Backend, errand: Errand) -> Submitted:
    """All whose environment can be brought; the others keep nobody waiting."""
    try:
        backend.make_ready()
    except DibsError as error:
        # A file system that is not mounted: nothing is put in its place, and those that run are looked at as ever.
        why_not = f"{error.message}; {error.remedy}" if error.remedy else error.message
        return Submitted(put_off={one.ref: why_not for one in errand.submit})
    faults: dict[str, str] = {}
    for target, source in errand.environments.items():
        try:
            _bring(source, target)
        except OSError as error:
            is_ours = error.filename == source
            fault = f"{said(error)} ({source})" if is_ours else _cannot_write(error, target, errand)
            faults[target] = f"cannot bring its environment: {fault}"
    late = {one.ref: why for one in errand.submit if (why := faults.get(one.spec["environment"]))}
    ready = [one for one in errand.submit if one.ref not in late]
    for one in ready:
        _make_folder_for_output(one)
    submitted = backend.submit(ready)
    return replace(submitted, put_off={**submitted.put_off, **late})


def _cannot_write(error: OSError, target: str, errand: Errand) -> str:
    return cannot_write(error, os.path.dirname(target), errand.root_setting)


def _make_folder_for_output(one: Submission) -> None:
    """Of `-o`. Here and not on the loop: it may be on a network that does not answer. Its own start tells of a
    folder that is missing."""
    with contextlib.suppress(OSError):
        if (where := os.path.dirname(one.spec["stdout"])) != one.ref.folder:
            os.makedirs(where, exist_ok=True)


def _bring(source: str, target: str) -> None:
    """Captured environments lie in the queue's folder; the nodes may see another one only."""
    if os.path.exists(target):
        return
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    with open(source, "rb") as file:
        replace_file(target, file.read())


def remove(paths: Sequence[str]) -> None:
    """What is there of these files."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _with_unborn(errand: Errand, observed: Mapping[AttemptRef, Observed]) -> dict[AttemptRef, Observed]:
    """Who is to end and has not even a folder was never handed over: there is nothing to wait for."""
    unborn = Observed(phase=Phase.LOST, never_started=True)
    ending = {*errand.stop, *errand.kill}
    return {
        ref: unborn if ref in ending and seen.phase is Phase.QUEUED and _has_no_folder(ref) else seen
        for ref, seen in observed.items()
    }


def _has_no_folder(ref: AttemptRef) -> bool:
    """Not `lexists`: where a file system is away nobody can tell."""
    try:
        os.lstat(ref.folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False
