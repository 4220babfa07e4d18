"""The token that browsers send, in a file that only its owner can read, and the one-time codes to sign in."""

import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Callable
from enum import StrEnum

from dibs.dataclass import dataclass
from dibs.errors import NotAllowed
from dibs.files import replace_file

CODE_LIFE = 600.0  # seconds
_MOST_WRONG = 10  # guesses, until the valid codes are revoked
_MOST_CODES = 16  # that are valid at one time; a new one replaces the oldest
_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"  # without letters that look alike
_TOKEN = re.compile(r"[0-9a-f]{64}")


class Permission(StrEnum):
    """What the holder of a token may do."""

    ALL = "all"
    READ = "read"


@dataclass(frozen=True, slots=True)
class OneTimeCode:
    """Valid once, for some minutes. It is typed or clicked, so others may see it; the token is never shown."""

    text: str
    permission: Permission
    until: float  # by the clock of TokenStore


class TokenStore:
    """The token of a queue, and a read-only one that is derived from it with a hash."""

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._codes: list[OneTimeCode] = []
        self._wrong = {False: 0, True: 0}  # wrong guesses of the owner, and of other users
        self._tokens = _tokens(_read(path) or _write(path))

    def new_code(self, permission: Permission) -> OneTimeCode:
        """A code to print. The count of wrong guesses starts again."""
        groups = ("".join(secrets.choice(_LETTERS) for _ in range(4)) for _ in range(3))
        code = OneTimeCode("-".join(groups), permission, self._clock() + CODE_LIFE)
        self._codes = [*self._codes[1 - _MOST_CODES :], code]
        self._wrong = {False: 0, True: 0}
        return code

    def redeem(self, text: str, *, is_other_user: bool = False) -> Permission | None:
        """The permission of a code, which is used up; None for a wrong one. Ten wrong ones revoke the valid codes.

        Another user of this machine may have seen a code in the process list, where a browser was started with it.
        So only programs of the owner can redeem a code that allows changes, and wrong guesses of other users do
        not revoke such codes.
        """
        now = self._clock()
        self._codes = [code for code in self._codes if code.until > now]
        given = _normalized(text)
        found = None
        for code in self._codes:  # all of them, so that the time taken reveals nothing
            if hmac.compare_digest(_normalized(code.text), given):
                found = code
        if found is None:
            self._wrong[is_other_user] += 1
            if self._wrong[is_other_user] >= _MOST_WRONG:
                self._codes = [code for code in self._codes if is_other_user and code.permission is Permission.ALL]
            return None
        if is_other_user and found.permission is Permission.ALL:
            raise NotAllowed(
                "this code is for programs of its owner, and another user of this machine has sent it",
                remedy="a code of `dibs web --read-only` works for every user",
            )
        self._codes.remove(found)
        return found.permission

    def token(self, permission: Permission) -> str:
        return self._tokens[permission]

    def permission_of(self, token: str) -> Permission | None:
        """The permission of a token, None for an unknown one. It is always compared with both."""
        given = token.encode("utf-8", "replace")
        fits = {name: hmac.compare_digest(ours.encode(), given) for name, ours in self._tokens.items()}
        return next((permission for permission in Permission if fits[permission]), None)

    def renew(self) -> None:
        """Replace the token: browsers that have the old one must sign in again."""
        self._codes = []
        self._tokens = _tokens(_write(self._path))


def _tokens(token: str) -> dict[Permission, str]:
    reading = hmac.new(bytes.fromhex(token), b"read only", hashlib.sha256).hexdigest()
    return {Permission.ALL: token, Permission.READ: reading}


def _normalized(code: str) -> bytes:
    """The code without case, blanks and dashes, which make no difference."""
    return re.sub(r"[\s-]", "", code).lower().encode("utf-8", "replace")


def _read(path: str) -> str:
    """The token in the file; empty if it is missing, malformed, or readable by other users."""
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
    replace_file(path, f"{token}\n")
    return token
