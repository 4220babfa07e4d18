"""The fence against a second start, for places where no lock reaches: a file that can be made once only.

Whoever makes `started` decides: a shim that is going to run the command, or somebody who makes sure that nobody
ever will. A link, not O_EXCL: the file is there with its word or not at all, on a network file system too.
Standard library only.
"""

import contextlib
import os

STARTED = "started"
CANCELLED = "cancelled"  # the word of whoever took the fence so that nothing runs
_LONGEST = 2000  # bytes; cards that are parts of others have long names


def take(folder: str, word: str, name: str = STARTED) -> bool:
    """Whether the fence is ours now; False where somebody was here before."""
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
    """The word of whoever took the fence; None while nobody has."""
    try:
        with open(f"{folder}/{name}", "rb") as file:
            return file.read(_LONGEST).decode("utf-8", "replace")
    except FileNotFoundError:
        return None


def word_of(node: str, cards: str) -> str:
    """What a shim says that starts a command: where, and on which cards."""
    return f"{node} {cards}".rstrip()


def place_in(word: str) -> tuple[str, str]:
    """The node and the cards of a shim's word."""
    node, _, cards = word.partition(" ")
    return ("", "") if word == CANCELLED else (node, cards)
