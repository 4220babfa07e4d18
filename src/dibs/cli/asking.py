"""How the commands reach the daemon."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dibs.client.client import Client


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
