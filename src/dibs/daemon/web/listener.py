"""The TCP listener for browsers. It is opened on request, and again after a restart of the daemon."""

import asyncio
import contextlib
import errno
import ipaddress
import json
import logging
import os
import socket
import ssl
import time
from dataclasses import asdict
from typing import Any

from starlette.types import ASGIApp

from dibs.daemon.http.errors import VersionHeader
from dibs.daemon.http.server import SHORTAGES, HttpProtocol, RequestLimits, Server, most_connections
from dibs.daemon.web.guard import SecurityHeaders, TokenGuard, host_check, security_header_lines
from dibs.daemon.web.page_files import PageFiles
from dibs.daemon.web.tokens import CODE_LIFE, Permission, TokenStore
from dibs.dataclass import dataclass
from dibs.errors import BadInput, Conflict, DibsError, NotAllowed
from dibs.files import replace_file

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
PORT = 8265
_PORTS_TRIED = 100  # from that one
_BACKLOG = 1024  # connections that may wait to be accepted
_RESOLVE_WITHIN = 10.0  # seconds
_NOT_ADDRESSES = ("asked", "never")  # values of the setting that are not addresses
_MOST_CONNECTIONS = 128
_ACCEPTED_AT_ONCE = 16
_HANDSHAKE = 5.0  # seconds
_MOST_HANDSHAKES = 64  # at one time
_GRACE = 2.0  # seconds for current requests when the listener closes
_CHECK_EVERY = 0.02  # seconds
_PAUSE = 1.0  # seconds until connections are accepted again after a shortage of descriptors


class PortTaken(BadInput):
    """Another program listens there."""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen. The paths are empty without TLS."""

    host: str
    port: int | None  # None: any that is free
    certificate: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class SignInCode:
    """What one browser needs to sign in."""

    address: str
    code: str
    expires_at: float


class WebListener:
    """Has at most one listening socket. It is used on the event loop only."""

    def __init__(self, queue: str, user: str, setting: str) -> None:
        self._queue = queue
        self._user = user
        self._setting = setting
        self._tokens: TokenStore | None = None
        self._address: ListenAddress | None = None
        self._server: WebServer | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()
        self._is_over = False

    @property
    def requests(self) -> int:
        return self._server.server_state.total_requests if self._server else 0

    async def sign_in_code(self, app: ASGIApp, wanted: ListenAddress | None, *, read_only: bool) -> SignInCode:
        """A new code. The listener is opened for this app first, if it is not open at the wanted address."""
        if self._setting == "never":
            raise NotAllowed(
                "cannot open the page: the setting web is never",
                remedy="`dibs config set web asked`, then `dibs daemon restart`",
            )
        async with self._lock:
            if self._address is None or (wanted is not None and not _is_same(self._address, wanted)):
                await self._open(app, wanted or ListenAddress(HOST, None))
            assert self._tokens is not None and self._address is not None
            code = self._tokens.new_code(Permission.READ if read_only else Permission.ALL)
            return SignInCode(_url(self._address), code.text, time.time() + CODE_LIFE)

    def close(self) -> bool:
        """Stop listening, also after a restart; return whether it was open."""
        was_open = self._stop()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._state_file)
        return was_open

    def renew(self) -> None:
        """Replace the token, and close every connection: all browsers have to sign in again."""
        self._load_tokens().renew()
        if self._server is not None:
            self._server.drop_all()

    async def reopen(self, app: ASGIApp) -> None:
        """Open it as it was when the last daemon ended, or else as the setting says. A failure is only logged."""
        address = self._saved() or _address_in(self._setting)
        if address is None or self._setting == "never":
            return
        async with self._lock:
            try:
                await self._open(app, address)
            except DibsError as error:
                log.info("%s", error.message)
                if isinstance(error, PortTaken):
                    # Open pages now send their token to the other program: replace it.
                    self.renew()

    def end(self) -> None:
        """Stop listening because the daemon ends; the next one opens it again."""
        self._is_over = True
        self._stop()

    async def wait_closed(self) -> None:
        """Wait until all connections are closed."""
        await asyncio.gather(*self._serving, return_exceptions=True)

    # -- opening -----------------------------------------------------------------------------------------

    async def _open(self, app: ASGIApp, wanted: ListenAddress) -> None:
        if self._is_over:
            raise Conflict("the daemon is about to end", remedy="try again in a moment")
        tls = _tls(wanted)
        ip = await _resolved(wanted.host)
        if tls is None and not ipaddress.ip_address(ip.partition("%")[0]).is_loopback:
            raise BadInput(
                f"cannot open the page at {wanted.host} without TLS: others on the network could read it",
                remedy="give --tls-cert and --tls-key, or leave out --host and use `ssh -L`",
            )
        tokens = self._load_tokens()
        listener, port = _bind(wanted, ip)
        address = ListenAddress(wanted.host, port, wanted.certificate, wanted.key)
        guard = TokenGuard(app, PageFiles(), tokens, self._user)
        # The host name only with TLS: an attacker who rebinds the name has no certificate for it.
        names = {wanted.host, socket.gethostname()} if tls else {wanted.host}
        limits = RequestLimits(guard, is_host=host_check(frozenset(names)))
        server = WebServer(SecurityHeaders(VersionHeader(limits)), listener, tls)
        self._stop()
        self._server, self._address = server, address
        task = asyncio.ensure_future(server.serve())
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        self._save(address)
        log.info("the page is at %s", _url(address))

    def _load_tokens(self) -> TokenStore:
        if self._tokens is None:
            try:
                self._tokens = TokenStore(f"{self._queue}/web-token")
            except OSError as error:
                raise DibsError(
                    f"cannot write {self._queue}/web-token: {error.strerror}", remedy="`dibs doctor` tells more"
                ) from error
        return self._tokens

    def _stop(self) -> bool:
        server, self._server, self._address = self._server, None, None
        if server is not None:
            server.end()
        return server is not None

    # -- across restarts ---------------------------------------------------------------------------------

    @property
    def _state_file(self) -> str:
        return f"{self._queue}/web.json"

    def _save(self, address: ListenAddress) -> None:
        try:
            replace_file(self._state_file, json.dumps(asdict(address)) + "\n")
        except OSError as error:
            log.info("the page will not come back after a restart: %s", error.strerror)

    def _saved(self) -> ListenAddress | None:
        try:
            with open(self._state_file, encoding="utf-8") as file:
                return ListenAddress(**json.loads(file.read(10_000)))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError):
            log.info("cannot read %s; `dibs web` opens the page again", self._state_file)
            return None


def _is_same(address: ListenAddress, wanted: ListenAddress) -> bool:
    port = wanted.port or address.port
    return address == ListenAddress(wanted.host, port, wanted.certificate, wanted.key)


def _address_in(setting: str) -> ListenAddress | None:
    if setting in _NOT_ADDRESSES:
        return None
    host, _, port = setting.rpartition(":")
    return ListenAddress(host.strip("[]"), int(port))


def _tls(wanted: ListenAddress) -> ssl.SSLContext | None:
    if not wanted.certificate and not wanted.key:
        return None
    if not wanted.certificate or not wanted.key:
        raise BadInput("TLS needs a certificate and its key", remedy="give both --tls-cert and --tls-key")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # OpenSSL would ask for the password of a key at a terminal, and there is none.
        context.load_cert_chain(wanted.certificate, wanted.key, password=lambda: b"")
    except OSError as error:  # ssl's own errors too
        why = getattr(error, "reason", None) or error.strerror or str(error)
        raise BadInput(
            f"cannot use the certificate {wanted.certificate} with the key {wanted.key}: {why}",
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
        why = getattr(error, "strerror", None) or "the name is unknown"
        raise BadInput(f"cannot listen at {host}: {why}", remedy=f"leave out --host to use {HOST}") from error
    return str(found[0][4][0])


def _bind(wanted: ListenAddress, ip: str) -> tuple[socket.socket, int]:
    """A listening socket. If no port is given, the first free one is used."""
    ports = [wanted.port] if wanted.port is not None else range(PORT, PORT + _PORTS_TRIED)
    for port in ports:
        listener = socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(
                socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
            )  # so that a restarted daemon can bind at once
            listener.bind((ip, port))
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                continue
            raise BadInput(
                f"cannot listen at {wanted.host}:{port}: {error.strerror}", remedy="--port chooses another port"
            ) from error
        listener.setblocking(False)
        return listener, port
    where = f"{wanted.host}:{ports[0]}" + (f" nor at the next {_PORTS_TRIED - 1} ports" if len(ports) > 1 else "")
    raise PortTaken(
        f"cannot listen at {where}: another program does",
        remedy="--port chooses another port; without it a free one is taken",
    )


def _url(address: ListenAddress) -> str:
    scheme = "https" if address.certificate else "http"
    host = socket.gethostname() if address.host in ("0.0.0.0", "::", "") else address.host
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{address.port}/"


class WebProtocol(HttpProtocol):
    """A connection from a browser. One without a token is dropped first when there are too many."""

    more_headers = security_header_lines()

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.has_token = False  # set by the guard, which finds this object in the state of the request
        self.app_state = {**self.app_state, "connection": self}

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.app_state = {}  # breaks a reference cycle

    def most_connections(self) -> int:
        return min(_MOST_CONNECTIONS, most_connections() // 2)

    def is_from_other_user(self, connection: socket.socket) -> bool:
        return False  # any user can connect: the token decides

    @property
    def is_waiting_for_request(self) -> bool:
        return not self.has_token or super().is_waiting_for_request


class WebServer(Server):
    """Accepts connections itself, so that one with an endless TLS handshake is counted too."""

    def __init__(self, app: Any, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        super().__init__(app, WebProtocol)
        self._listener = listener
        self._tls = tls
        self._handshakes: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._is_listening = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = []
        self.started = True
        self._is_listening = True
        self._listen()

    def end(self) -> None:
        """Accept no more connections, and finish the current requests."""
        if self._is_listening:
            self._is_listening = False
            asyncio.get_running_loop().remove_reader(self._listener)
            if self._pause is not None:
                self._pause.cancel()
            self._listener.close()
        super().end()

    def drop_all(self) -> None:
        """Close every connection at once, for instance because its token was replaced."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._handshakes:
            task.cancel()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self._until_closed(_GRACE)
        self.drop_all()  # event streams never end by themselves; their tasks end as when a client disconnects
        await self._until_closed(_GRACE)

    async def _until_closed(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (self.server_state.connections or self.server_state.tasks) and loop.time() < until:
            await asyncio.sleep(_CHECK_EVERY)

    def _listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in SHORTAGES:
                    raise
                loop.remove_reader(self._listener)  # it would be ready again at once
                self._pause = loop.call_later(_PAUSE, self._listen)
                return
            if len(self._handshakes) >= _MOST_HANDSHAKES:
                connection.close()
                continue
            connection.setblocking(False)
            task = loop.create_task(self._handshake(connection))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _handshake(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=_HANDSHAKE if self._tls else None,
            )
        except OSError:
            connection.close()  # no TLS, too slow, or disconnected

    def _protocol(self) -> WebProtocol:
        return WebProtocol(config=self.config, server_state=self.server_state, app_state={})
