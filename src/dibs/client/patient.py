"""For those who stay for hours: the daemon may go away in the middle, as in an upgrade, and come back."""

import os
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from dibs.client.client import Client, connect
from dibs.errors import NoDaemon
from dibs.paths import socket_path

_Found = TypeVar("_Found")

_GIVE_UP = 60.0  # seconds; a restart takes some, and a daemon that is gone for good must be told of
_PAUSE = 0.25  # seconds between two tries


class Patient:
    """Asks again when the daemon goes away in the middle. Only for questions.

    One that has died is started again; one that was stopped is not, because somebody wanted that.
    """

    def __init__(
        self, client: Client, say: Callable[[str], None], environ: Mapping[str, str] = os.environ
    ) -> None:
        self._starting = client
        self._watching = connect(environ, start=False)
        self._socket = socket_path(environ)
        self._say = say

    def ask(self, question: Callable[[Client], _Found]) -> _Found:
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
                # One that was stopped took its socket with it.
                client = self._starting if os.path.exists(self._socket) else self._watching

    def close(self) -> None:
        """Let go of the connections. The next question makes a new one."""
        self._starting.close()
        self._watching.close()
