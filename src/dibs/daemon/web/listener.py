"""The door for browsers: a TCP listener, there when somebody asked for it and found again after a restart."""

import asyncio
import contextlib
import errno
import ipaddress
import json
import os
import socket
import ssl
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp

from dibs.daemon.daemon_log import log
from dibs.errors import BadInput, Conflict, DibsError, NotAllowed

if TYPE_CHECKING:
    from dibs.daemon.web.server import DoorServer
    from dibs.daemon.web.tokens import Keys

HOST = "127.0.0.1"
PORT = 8265
_PORTS_TRIED = 100  # from that one
_LINE = 1024  # callers that may wait to be taken in
_RESOLVE_WITHIN = 10.0  # seconds
_BY_ITSELF = ("asked", "never")  # what the setting may be instead of an address


class PortTaken(BadInput):
    """Somebody else listens there."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the door is. Paths are empty where there is no TLS."""

    host: str
    port: int | None  # None: any that is free
    certificate: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one browser needs to come in."""

    address: str
    code: str
    expires_at: float


class Door:
    """One listener at most. Everything happens on the loop."""

    def __init__(self, queue: str, user: str, setting: str) -> None:
        self._queue = queue
        self._user = user
        self._setting = setting
        self._app: ASGIApp | None = None
        self._keys: Keys | None = None
        self._place: Place | None = None
        self._server: DoorServer | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        self._is_over = False

    def lead_to(self, app: ASGIApp) -> None:
        """Say what is behind it. Before that it cannot be opened."""
        self._app = app

    @property
    def requests(self) -> int:
        return self._server.server_state.total_requests if self._server else 0

    async def enter(self, wish: Place | None, *, read_only: bool) -> Entry:
        """A code for the door, which is opened where it is not yet, or not where it is wished to be."""
        from dibs.daemon.web.tokens import CODE_LIFE, Right

        if self._setting == "never":
            raise NotAllowed(
                "cannot open the page: the setting web is never",
                remedy="`dibs config set web asked`, then `dibs daemon restart`",
            )
        async with self._turn:
            if self._place is None or (wish is not None and not _is_same(self._place, wish)):
                await self._open(wish or Place(HOST, None))
            assert self._keys is not None and self._place is not None
            code = self._keys.new_code(Right.READ if read_only else Right.ALL)
            return Entry(_address(self._place), code.text, time.time() + CODE_LIFE)

    def close(self) -> bool:
        """Nobody comes in any more, also after a restart; whether it was open."""
        was_open = self._shut()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._memory)
        return was_open

    def renew(self) -> None:
        """Another token: everybody has to come in anew, and those who are inside are put out."""
        self._load_keys().renew()
        if self._server is not None:
            self._server.drop_all()

    async def reopen(self) -> None:
        """As it was when the last daemon ended, or else as the setting says. What hinders it is only told."""
        place = self._remembered() or _set_place(self._setting)
        if place is None or self._setting == "never":
            return
        async with self._turn:
            try:
                await self._open(place)
            except DibsError as error:
                log.info("%s", error.message)
                if isinstance(error, PortTaken):
                    # Open pages ask whoever listens there, and show their token: it is good no more.
                    self.renew()

    def end(self) -> None:
        """The daemon ends; the next one opens it again."""
        self._is_over = True
        self._shut()

    async def ended(self) -> None:
        """Come back when everybody has left."""
        await asyncio.gather(*self._serving, return_exceptions=True)

    # -- opening -----------------------------------------------------------------------------------------

    async def _open(self, wish: Place) -> None:
        if self._is_over:
            raise Conflict("the daemon is about to end", remedy="try again in a moment")
        from dibs.daemon.http.errors import Stamp
        from dibs.daemon.http.limits import Gate
        from dibs.daemon.web.guard import Dressed, Guard, is_our_host
        from dibs.daemon.web.page_files import Page
        from dibs.daemon.web.server import DoorServer

        assert self._app is not None
        tls = _tls(wish)
        address = await _resolved(wish.host)
        if tls is None and not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
            raise BadInput(
                f"cannot open the page at {wish.host}: everybody on the network could read what is sent",
                remedy="give --tls-cert and --tls-key, or leave out --host and use `ssh -L`",
            )
        keys = self._load_keys()
        listener, port = _bind(wish, address)
        place = Place(wish.host, port, wish.certificate, wish.key)
        guard = Guard(self._app, Page(), keys, self._user)
        # Only behind TLS: whoever rebinds a name has no certificate for it.
        names = {wish.host, socket.gethostname()} if tls else {wish.host}
        gate = Gate(guard, is_host=is_our_host(frozenset(names)))
        server = DoorServer(Dressed(Stamp(gate)), listener, tls)
        self._shut()
        self._server, self._place = server, place
        task = asyncio.ensure_future(server.serve())
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        self._remember(place)
        log.info("the page is at %s", _address(place))

    def _load_keys(self) -> "Keys":
        from dibs.daemon.web.tokens import Keys

        if self._keys is None:
            try:
                self._keys = Keys(f"{self._queue}/web-token")
            except OSError as error:
                raise DibsError(
                    f"cannot write {self._queue}/web-token: {error.strerror}", remedy="`dibs doctor` tells more"
                ) from error
        return self._keys

    def _shut(self) -> bool:
        server, self._server, self._place = self._server, None, None
        if server is not None:
            server.end()
        return server is not None

    # -- remembering -------------------------------------------------------------------------------------

    @property
    def _memory(self) -> str:
        return f"{self._queue}/web.json"

    def _remember(self, place: Place) -> None:
        from dibs.daemon.web.tokens import write_private

        try:
            write_private(self._memory, json.dumps(asdict(place)) + "\n")
        except OSError as error:
            log.info("the page will not come back after a restart: %s", error.strerror)

    def _remembered(self) -> Place | None:
        try:
            with open(self._memory, encoding="utf-8") as file:
                return Place(**json.loads(file.read(10_000)))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError):
            log.info("cannot read %s; `dibs web` opens the page again", self._memory)
            return None


def _is_same(place: Place, wish: Place) -> bool:
    return place == Place(wish.host, wish.port or place.port, wish.certificate, wish.key)


def _set_place(setting: str) -> Place | None:
    if setting in _BY_ITSELF:
        return None
    host, _, port = setting.rpartition(":")
    return Place(host.strip("[]"), int(port))


def _tls(wish: Place) -> ssl.SSLContext | None:
    if not wish.certificate and not wish.key:
        return None
    if not wish.certificate or not wish.key:
        raise BadInput("TLS needs a certificate and its key", remedy="give both --tls-cert and --tls-key")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # A key with a password would make OpenSSL ask for it at a terminal that we have not.
        context.load_cert_chain(wish.certificate, wish.key, password=lambda: b"")
    except OSError as error:  # ssl's own errors too
        why = getattr(error, "reason", None) or error.strerror or str(error)
        raise BadInput(
            f"cannot use the certificate {wish.certificate} with the key {wish.key}: {why}",
            remedy="both are PEM files, and the key has no password",
        ) from error
    return context


async def _resolved(host: str) -> str:
    """The address of a name of this machine."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_RESOLVE_WITHIN):
            found: Any = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError) as error:
        why = getattr(error, "strerror", None) or "nobody knows this name"
        raise BadInput(f"cannot listen at {host}: {why}", remedy=f"leave out --host to use {HOST}") from error
    return str(found[0][4][0])


def _bind(wish: Place, address: str) -> tuple[socket.socket, int]:
    """A socket that listens. Where no port is asked for, the first that is free."""
    ports = [wish.port] if wish.port is not None else range(PORT, PORT + _PORTS_TRIED)
    for port in ports:
        listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # after a restart, at once
            listener.bind((address, port))
            listener.listen(_LINE)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                continue
            raise BadInput(
                f"cannot listen at {wish.host}:{port}: {error.strerror}", remedy="--port chooses another port"
            ) from error
        listener.setblocking(False)
        return listener, port
    where = f"{wish.host}:{ports[0]}" + (f" nor at the next {_PORTS_TRIED - 1} ports" if len(ports) > 1 else "")
    raise PortTaken(
        f"cannot listen at {where}: somebody else does",
        remedy="--port chooses another port; without it a free one is taken",
    )


def _address(place: Place) -> str:
    scheme = "https" if place.certificate else "http"
    host = socket.gethostname() if place.host in ("0.0.0.0", "::", "") else place.host
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{place.port}/"
