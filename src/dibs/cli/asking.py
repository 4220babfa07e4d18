"""How the commands reach the daemon, and how those that stay for hours stand its restart."""

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from dibs.errors import NoDaemon

if TYPE_CHECKING:
    from dibs.client.client import Client

_Found = TypeVar("_Found")

_GIVE_UP = 60.0  # seconds; a restart takes some, and a daemon that is gone for good must be told of
_PAUSE = 0.25  # seconds between two tries


def ask_daemon(*, start: bool = True) -> "Client":
    """The daemon of this user; it is started where there is none."""
    from dibs.cli.commands import open_closed_streams
    from dibs.client.client import connect

    open_closed_streams()  # or the daemon's socket would be stdout
    return connect(os.environ, start=start)


def ask_running_daemon(patience: float) -> "Client | None":
    """The daemon if one may be running. It is never started for this, and it has not long to answer."""
    from dibs.paths import socket_path

    path = socket_path(os.environ)
    if not os.path.exists(path):
        return None
    from dibs.client.client import Client

    return Client(path, patience=patience)


class Patient:
    """Asks again when the daemon goes away in the middle, as in an upgrade. Only for questions.

    One that has died is started again; one that was stopped is not, because somebody wanted that.
    """

    def __init__(self, client: "Client", say: Callable[[str], None]) -> None:
        self._starting = client
        self._watching = ask_daemon(start=False)
        self._say = say

    def ask(self, question: "Callable[[Client], _Found]") -> _Found:
        gives_up_at, has_said = time.monotonic() + _GIVE_UP, False
        client = self._watching
        while True:
            try:
                return question(client)
            except NoDaemon:
                if time.monotonic() > gives_up_at:
                    raise
                if not has_said:
                    self._say("dibs: the daemon is away; the jobs go on, and so does this when it is back")
                    has_said = True
                client.close()
                time.sleep(_PAUSE)
                client = self._starting if _has_died() else self._watching


def _has_died() -> bool:
    """A daemon that was stopped took its socket with it."""
    from dibs.paths import socket_path

    return os.path.exists(socket_path(os.environ))
