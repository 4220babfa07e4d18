"""The socket, and the server on it."""

import asyncio
import contextlib
import errno
import os
import resource
import socket
import stat
from collections.abc import Iterator
from typing import Any

import uvicorn

from dibs import paths
from dibs.daemon.http.protocol import HEADERS, Protocol

SHORT_OF = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)  # no bugs of ours
_KEEP_ALIVE = 5  # seconds
_MOST_CONNECTIONS = 256
_LINE = 1024  # callers that may wait to be taken in
_TAKEN_AT_ONCE = 16  # of them; four times as many may be on their way before the first is looked at
_KEPT_FOR_OTHERS = 64  # descriptors for the store, the jobs and whatever else


class Address:
    """A socket's place, bound through its folder: its path may be longer than the kernel takes."""

    def __init__(self, path: str) -> None:
        self.path = path
        folder, self._name = os.path.split(path)
        self._folder = _private_folder(folder)
        self._made: tuple[int, int] | None = None

    def bind(self) -> socket.socket:
        """Listen here. The caller holds the daemon's lock, so a socket that is left over is nobody's."""
        self._remove_stale()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(self._short)
            os.chmod(self._short, 0o600)
            listener.listen(_LINE)
        except OSError as error:
            listener.close()
            raise self._refused(error.strerror or str(error)) from error
        listener.setblocking(False)
        self._made = self._inode()
        return listener

    def remove(self) -> None:
        """Take our socket away, unless another one stands there by now."""
        with contextlib.suppress(OSError):
            if self._made is not None and self._inode() == self._made:
                os.unlink(self._short)
        os.close(self._folder)

    @property
    def _short(self) -> str:
        return f"/proc/self/fd/{self._folder}/{self._name}"

    def _inode(self) -> tuple[int, int]:
        seen = os.lstat(self._short)
        return seen.st_dev, seen.st_ino

    def _remove_stale(self) -> None:
        try:
            seen = os.lstat(self._short)
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(seen.st_mode) or seen.st_uid != os.geteuid():
            raise self._refused("something else is in the way")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(self._short)
            except (ConnectionRefusedError, FileNotFoundError):
                pass
            except OSError as error:
                raise self._refused(error.strerror or str(error)) from error
            else:
                raise self._refused("a daemon with another state folder listens there")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._short)

    def _refused(self, why: str) -> paths.FolderRefused:
        return paths.FolderRefused(
            f"cannot listen at {self.path}: {why}", remedy="set DIBS_SOCKET to a path in a folder of your own"
        )


class Server(uvicorn.Server):
    """uvicorn on our loop: it neither takes signals nor wakes ten times a second to see whether it should end."""

    def __init__(self, app: Any, protocol: type[Protocol] = Protocol) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                h11_max_incomplete_event_size=HEADERS,
                timeout_keep_alive=_KEEP_ALIVE,
                timeout_graceful_shutdown=2,
                backlog=_TAKEN_AT_ONCE,
                loop="none",
            )
        )
        Protocol.most_connections = most_connections()
        self._is_over = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_LINE)  # asyncio has one number for both, and set the smaller one

    async def main_loop(self) -> None:
        await self._is_over.wait()

    def end(self) -> None:
        """Answer what is being asked, and come back."""
        self.should_exit = True
        self._is_over.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def most_connections() -> int:
    """Jobs and the store need descriptors too: a flood of callers must leave them some."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return max(8, min(_MOST_CONNECTIONS, (soft - _KEPT_FOR_OTHERS) // 2))


def _private_folder(folder: str) -> int:
    """A handle on a folder that is ours alone. One that is there already is never changed: it may be /tmp."""
    if not os.path.lexists(folder):
        paths.make_private(folder)
    if not paths.is_private(folder):
        raise paths.FolderRefused(
            f"cannot listen in {folder}: others may look into it, or it is not yours",
            remedy="set DIBS_SOCKET to a path in a folder of your own with mode 0700",
        )
    return os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
