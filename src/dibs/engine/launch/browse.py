"""Results as people look for them: `project/name/number`, a link into the last attempt's folder."""

import contextlib
import os
import re
from collections import OrderedDict
from urllib.parse import quote_from_bytes

from dibs.leases.lockers import user_name
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

    def streams(self, job: Job, folder: str, node: str = "") -> tuple[str, str]:
        """The attempt's own files, or for both the file of `-o`, and for stderr that of `--error`."""
        out, err = f"{folder}/stdout", f"{folder}/stderr"
        if job.request.output:
            out = err = fill_in(job.request.output, job, node)
        if job.request.error:
            err = fill_in(job.request.error, job, node)
        return out, err

    def shows_attempts(self, job: Job) -> bool:
        """What has no name and said nothing is nothing to look for."""
        return bool(self.root) and bool(job.request.name or job.request.project)

    def begin(self, job: Job, attempt: Attempt) -> None:
        """Link to the attempt that begins, in the place of an earlier one; make the folder of `-o`.

        What cannot be made keeps no job from running: a missing link is a pity, and of a missing folder its own
        start will tell. What another system runs has the folder made when it is handed over (`remote/round.py`).
        """
        with contextlib.suppress(OSError):
            if (job.request.output or job.request.error) and not attempt.backend:
                for path in self.streams(job, attempt.folder):
                    os.makedirs(os.path.dirname(path), exist_ok=True)
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


def fill_in(pattern: str, job: Job, node: str = "") -> str:
    """Slurm's patterns: `%j` the job's number, `%a` its task, `%A` its array, `%x` its name made harmless.

    `%u` is the user, `%N` the node's short name, `%%` a percent sign, and `%4j` is filled with zeros. While it is
    not known on which node of another system it runs, `%N` stays: the shim there knows it.
    """
    if "%" not in pattern:
        return pattern
    array = job.request.array
    task = "" if array is None else str(array.task)
    if not node:
        node = "%N" if job.request.on else os.uname().nodename
    parts = {
        "j": str(job.id),
        "J": str(job.id),
        "a": task,
        "b": task[-1:],
        "A": str(job.id) if array is None else str(array.array),
        "x": harmless(job.request.name or "job"),
        "u": harmless(user_name(os.getuid())) if "u" in pattern else "",
        "N": node.partition(".")[0],
        "n": "0",
        "t": "0",
        "s": "batch",
        "%": "%",
    }

    def filled(found: re.Match[str]) -> str:
        width, letter = found.groups()
        value = parts.get(letter, found[0])
        return value.zfill(int(width)) if width and value.isdecimal() else value

    return re.sub(r"%([0-9]?)(.)", filled, pattern, flags=re.DOTALL)


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
