"""Fencing: a file that can be created only once keeps an attempt from starting twice where locks do not work.

It is created by the shim that is about to run the command, or by a cancel, after which no shim will run it. By a
link, not O_EXCL: the file exists with its content or not at all, also on a network file system. Standard library
only.
"""

import contextlib
import os

from dibs.supervise.folder import NotOurFile, open_own_file

STARTED = "started"
CANCELLED = "cancelled"  # the content of a fence that was taken so that nothing runs
_LONGEST = 2000  # bytes; parts of cards have long names


def take(folder: str, word: str, name: str = STARTED) -> bool:
    """Take the fence; False if it was taken before."""
    new = f"{folder}/{name}.{os.urandom(6).hex()}"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, word.encode()[:_LONGEST])
        os.link(new, f"{folder}/{name}")
    except FileExistsError:
        return False
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(new)
    return True


def holder(folder: str, name: str = STARTED) -> str | None:
    """The content of the fence; None while it is not taken.

    What a job put in its place has no content, and is still no fence that nobody took.
    """
    try:
        with open(open_own_file(f"{folder}/{name}"), "rb") as file:
            return file.read(_LONGEST).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except NotOurFile:
        return ""


def word_of(node: str, cards: str) -> str:
    """The content for a shim that starts a command: its node and its cards."""
    return f"{node} {cards}".rstrip()


def place_in(word: str) -> tuple[str, str]:
    """The node and the cards in the content of a fence."""
    node, _, cards = word.partition(" ")
    return ("", "") if word == CANCELLED else (node, cards)
