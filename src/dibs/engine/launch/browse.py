"""Results as people look for them: `project/name/number`, a link into the last attempt's folder."""

import contextlib
import os
from collections import OrderedDict
from urllib.parse import quote_from_bytes

from dibs.model.jobs import Attempt, Job, Outcome
from dibs.model.usage import Usage

_LONGEST = 100  # bytes of one part of a path; file systems take 255
_MOST_REMEMBERED = 1_000  # folders that are known to be there


class BrowsableFolders:
    """Output stays in the attempt's folder, or in the file that the job named; links lead there.

    An empty root makes no links.
    """

    writes_more = True

    def __init__(self, root: str) -> None:
        self.root = root
        self._made: OrderedDict[str, None] = OrderedDict()

    def streams(self, job: Job, folder: str) -> tuple[str, str]:
        """The attempt's own files, or for both the file of `-o`, with `%j`, `%a`, `%A` and `%x` filled in."""
        if job.request.output:
            path = fill_in(job.request.output, job)
            return path, path
        return f"{folder}/stdout", f"{folder}/stderr"

    def shows_attempts(self, job: Job) -> bool:
        """What has no name and said nothing is nothing to look for."""
        return bool(self.root) and bool(job.request.name or job.request.project)

    def begin(self, job: Job, attempt: Attempt) -> None:
        """Link to the attempt that begins, in the place of an earlier one; make the folder of `-o`.

        What cannot be made keeps no job from running: a missing link is a pity, and of a missing folder its own
        start will tell. What another system runs has the folder made when it is handed over (`away/round.py`).
        """
        with contextlib.suppress(OSError):
            if job.request.output and not attempt.backend:
                os.makedirs(os.path.dirname(fill_in(job.request.output, job)), exist_ok=True)
        with contextlib.suppress(OSError):
            self._begin(job, attempt)

    def _begin(self, job: Job, attempt: Attempt) -> None:
        if not self.root:
            return
        link = self.link(job)
        self._make(os.path.dirname(link))
        try:
            _link(attempt.folder, link)
        except FileNotFoundError:  # it was removed since
            self._made.clear()
            self._make(os.path.dirname(link))
            _link(attempt.folder, link)

    def end(self, job: Job, attempt: Attempt, outcome: Outcome, usage: Usage | None = None) -> None:
        pass

    def refuse(self, job: Job, outcome: Outcome) -> None:
        pass

    def confirm(self, job: Job) -> None:
        pass

    def forget(self, job: Job) -> None:
        """Its folder is gone: so are its link and the folders that are empty without it."""
        if not self.root:
            return
        path = self.link(job)
        with contextlib.suppress(OSError):
            if os.path.islink(path):  # whatever else stands there is not ours
                os.unlink(path)
            for _ in ("name", "project"):
                path = os.path.dirname(path)
                self._made.pop(path, None)
                os.rmdir(path)

    def link(self, job: Job) -> str:
        """Where people find this job. Its number makes the path its own, whatever its name is."""
        project, name = job.request.project or "default", job.request.name or "job"
        return f"{self.root}/{harmless(project)}/{harmless(name)}/{job.id}"

    def _make(self, folder: str) -> None:
        if folder in self._made:
            self._made.move_to_end(folder)
            return
        os.makedirs(folder, exist_ok=True)
        self._made[folder] = None
        if len(self._made) > _MOST_REMEMBERED:
            self._made.popitem(last=False)


def harmless(name: str) -> str:
    """A name as one part of a path: it leads nowhere, hides nothing and looks like nothing else.

    Letters and digits of ASCII and `._+=@,-` stay; everything else is percent-encoded, so that no two names
    share a part. What begins with a dot or a dash has that encoded. One that is too long is cut, and a hash
    of the whole takes the place of its end.
    """
    encoded = quote_from_bytes(name.encode("utf-8", "surrogatepass"), safe="._+=@,-").replace("~", "%7E")
    if not encoded:
        return "%~"  # no name becomes this
    if encoded[0] in ".-":
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    if len(encoded) <= _LONGEST:
        return encoded
    import hashlib  # 2 ms that few names pay

    end = hashlib.blake2b(encoded.encode(), digest_size=8).hexdigest()
    head = encoded[: _LONGEST - len(end) - 2]
    if "%" in head[-2:]:  # not half of an encoded byte
        head = head[: head.rindex("%")]
    return f"{head}%~{end}"


def fill_in(pattern: str, job: Job) -> str:
    """`%j` the job's number, `%a` its task, `%A` its array, `%x` its name made harmless, `%%` a percent sign."""
    array = job.request.array
    parts = {
        "j": str(job.id),
        "a": "" if array is None else str(array.task),
        "A": str(job.id) if array is None else str(array.array),
        "x": harmless(job.request.name or "job"),
        "%": "%",
    }
    filled, rest = [], iter(pattern)
    for letter in rest:
        if letter == "%":
            following = next(rest, "")
            letter = parts.get(following, f"%{following}")
        filled.append(letter)
    return "".join(filled)


def _link(target: str, link: str) -> None:
    try:
        os.symlink(target, link)
    except FileExistsError:
        if os.path.lexists(link) and not os.path.islink(link):
            raise  # the user's own file or folder
        # Renamed, not removed and made: a reader finds the old attempt or the new one.
        new = f"{link}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        os.symlink(target, new)
        os.replace(new, link)
