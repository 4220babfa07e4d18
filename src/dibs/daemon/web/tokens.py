"""Who may come in by the door: one token, on the disk for its owner alone, and codes that buy it once."""

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from dibs.errors import NotAllowed

CODE_LIFE = 600.0  # seconds
_MOST_WRONG = 10  # codes, until those that were meant are void
_MOST_CODES = 16  # that are good at one time; the oldest gives way
_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"  # none that looks like another
_TOKEN = re.compile(r"[0-9a-f]{64}")


class Right(StrEnum):
    """What somebody who came in may do."""

    ALL = "all"
    READ = "read"


@dataclass(frozen=True, slots=True)
class Code:
    """Works once, and not for long. It is typed or clicked, so it may be seen; the token never is."""

    text: str
    right: Right
    until: float  # by the clock of Keys


class Keys:
    """The token of a queue, and one for readers that is made from it and does not lead back."""

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._codes: list[Code] = []
        self._wrong = {False: 0, True: 0}  # guesses of ours, and of strangers
        self._tokens = _tokens(_read(path) or _write(path))

    def new_code(self, right: Right) -> Code:
        """A code to print. Guesses that were wrong until now are forgotten."""
        groups = ("".join(secrets.choice(_LETTERS) for _ in range(4)) for _ in range(3))
        code = Code("-".join(groups), right, self._clock() + CODE_LIFE)
        self._codes = [*self._codes[1 - _MOST_CODES :], code]
        self._wrong = {False: 0, True: 0}
        return code

    def take(self, text: str, *, is_stranger: bool = False) -> Right | None:
        """What a code is good for. It is used up; a wrong one is None, and ten of them void those that are left.

        Somebody else on this machine may have seen it in the list of processes, where a browser was started with
        it: what changes things is for our own programs only, and strangers can void nothing that is not for them.
        """
        now = self._clock()
        self._codes = [code for code in self._codes if code.until > now]
        given = _plain(text)
        found = None
        for code in self._codes:  # all of them: the time taken tells nothing
            if hmac.compare_digest(_plain(code.text), given):
                found = code
        if found is None:
            self._wrong[is_stranger] += 1
            if self._wrong[is_stranger] >= _MOST_WRONG:
                self._codes = [code for code in self._codes if is_stranger and code.right is Right.ALL]
            return None
        if is_stranger and found.right is Right.ALL:
            raise NotAllowed(
                "this code is for programs of its owner, and another user of the machine has sent it",
                remedy="a code of `dibs web --read-only` is for everybody",
            )
        self._codes.remove(found)
        return found.right

    def token(self, right: Right) -> str:
        return self._tokens[right]

    def right_of(self, token: str) -> Right | None:
        """What a token is good for, None for one that we never gave. Always compared with both."""
        given = token.encode("utf-8", "replace")
        fits = {right: hmac.compare_digest(ours.encode(), given) for right, ours in self._tokens.items()}
        return next((right for right in Right if fits[right]), None)

    def renew(self) -> None:
        """Another token: whoever had the old one has to come in anew."""
        self._codes = []
        self._tokens = _tokens(_write(self._path))


def write_private(path: str, text: str) -> None:
    """A file for nobody else, whole or not at all."""
    draft = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft)  # left over; one that was there before would keep its mode
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(fd)
    os.rename(draft, path)


def _tokens(token: str) -> dict[Right, str]:
    reading = hmac.new(bytes.fromhex(token), b"read only", hashlib.sha256).hexdigest()
    return {Right.ALL: token, Right.READ: reading}


def _plain(code: str) -> bytes:
    """As people type it: capitals, blanks and dashes make no difference."""
    return re.sub(r"[\s-]", "", code).lower().encode("utf-8", "replace")


def _read(path: str) -> str:
    """The token in a file of ours that nobody else could read; empty where there is none to be trusted."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    with open(fd, errors="replace") as file:
        seen = os.fstat(fd)
        text = file.read(200).strip()
    is_ours = seen.st_uid == os.geteuid() and not seen.st_mode & 0o077
    return text if is_ours and _TOKEN.fullmatch(text) else ""


def _write(path: str) -> str:
    token = secrets.token_hex(32)
    write_private(path, f"{token}\n")
    return token
