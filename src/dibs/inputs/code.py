"""The state of the code in a folder, by git: the commit, and how the tree differs from it.

A failure of git never prevents a job from being added.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Mapping, Sequence

LONGEST_DIFF = 256 * 1024  # bytes
_LONGEST_LIST = 64 * 1024**2  # bytes of names
_MOST_UNTRACKED = 100  # names that are kept
_CUT = "\n[... cut by dibs: the difference is longer than 256 KiB]\n"
_PATIENCE = 1.0  # seconds; a huge repository must not delay an add
# No locks that would make a concurrent `git commit` fail, and no daemon that git leaves behind.
_QUIET = ("--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")


def find_repository(folder: str) -> str:
    """The root of the git repository that has this folder; empty where there is none."""
    folder = os.path.abspath(folder)
    while not os.path.exists(f"{folder}/.git"):
        parent = os.path.dirname(folder)
        if parent == folder:
            return ""
        folder = parent
    return folder


def describe_code(
    folder: str, environ: Mapping[str, str], *, seconds: float = _PATIENCE
) -> dict[str, object] | None:
    """The commit, the branch and the difference of the tree; None where git fails or is too slow."""
    root = find_repository(folder)
    if not root:
        return None
    until = time.monotonic() + seconds
    status = git(
        root, ["status", "--porcelain=v2", "--branch", "-z", "--ignore-submodules=dirty"], environ, until=until
    )
    if status is None:
        return None
    lines = status.decode("utf-8", "surrogateescape").split("\0")
    head = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# ") and " " in line[2:])
    commit = head.get("branch.oid", "")
    found: dict[str, object] = {
        "root": root,
        "commit": "" if commit == "(initial)" else commit,
        "branch": head.get("branch.head", ""),
        "is_dirty": any(line and not line.startswith("# ") for line in lines),
    }
    if found["is_dirty"]:
        found["untracked"] = [line[2:] for line in lines if line.startswith("? ")][:_MOST_UNTRACKED]
        found["diff"] = _difference(root, str(found["commit"]), environ, until)
    return found


def git(
    root: str,
    words: Sequence[str],
    environ: Mapping[str, str],
    *,
    until: float,
    most: int = _LONGEST_LIST,
    ends_early: bool = False,
) -> bytes | None:
    """The output of git; None where it is not installed, fails or takes too long.

    More than `most` bytes count as a failure, or are cut off with `ends_early`.
    """
    import shutil  # 2 ms of `dibs add`, which only a repository needs

    program = shutil.which("git", path=environ.get("PATH"))
    if program is None:
        return None
    reader, writer = os.pipe()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        # Not subprocess: it takes longer to import than git takes to answer.
        pid = os.posix_spawn(
            program,
            ["git", "-C", root, *_QUIET, *words],
            # In a hook of git, GIT_DIR and the like name another repository.
            {**{name: value for name, value in environ.items() if not name.startswith("GIT_")}, "LC_ALL": "C"},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, null, 0),
                (os.POSIX_SPAWN_DUP2, writer, 1),
                (os.POSIX_SPAWN_DUP2, null, 2),
            ],
            setsigdef=[signal.SIGPIPE],
        )
    except OSError:
        os.close(reader)
        return None
    finally:
        os.close(writer)
        os.close(null)
    try:
        said = _read(reader, until, most)
    finally:
        os.close(reader)
        is_whole = said is not None and len(said) <= most
        if not is_whole:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
    if said is not None and ends_early and not is_whole:
        return said
    return said if is_whole and status == 0 else None


def _read(reader: int, until: float, most: int) -> bytes | None:
    said = bytearray()
    poll = select.poll()
    poll.register(reader, select.POLLIN | select.POLLHUP)
    while len(said) <= most:
        left = until - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return None
        piece = os.read(reader, 65_536)
        if not piece:
            break
        said += piece
    return bytes(said)


def _difference(root: str, commit: str, environ: Mapping[str, str], until: float) -> str | None:
    """The difference to the commit; None where there is no commit yet, or no time."""
    if not commit:
        return None
    words = ["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty", "HEAD"]
    said = git(root, words, environ, until=until, most=LONGEST_DIFF, ends_early=True)
    if said is None:
        return None
    text = said[:LONGEST_DIFF].decode("utf-8", "surrogateescape")
    return text + _CUT if len(said) > LONGEST_DIFF else text
