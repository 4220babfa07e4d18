"""The daemon's API as methods: one for each route, plain dicts in and out."""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from dibs.client.connection import AnswerHead, Connection, ConnectionBroken, NoAnswer, NotListening, error_of
from dibs.errors import NoDaemon
from dibs.paths import socket_path
from dibs.version import __version__

Answer = dict[str, Any]

PATIENCE = 30.0  # seconds for an answer, of a daemon that answers other questions meanwhile
_TRIES = 5  # of a call that may be repeated
_PAUSE = 0.1  # seconds before the second one
_AWAY_SECONDS = 60.0  # that a daemon may be away, as in a restart
_AWAY_PAUSE = 0.25  # seconds between two tries
_MOST_POINTS = 512  # of one series, in one answer
_MOST_ANSWERS = 1000  # until a file is read that grows as fast
_Found = TypeVar("_Found")


class LogPart(NamedTuple):
    """A piece of a job's output, and where it stands in the file."""

    data: bytes
    offset: int  # of its first byte
    size: int  # of the file
    state: str  # of the job
    attempt: int

    @property
    def end(self) -> int:
        """Where the next piece begins."""
        return self.offset + len(self.data)


class Client:
    """Talks to the daemon at a socket.

    `start` is called when no daemon listens, and starts one or raises; `notice` is called once when the daemon
    has another version. A call that changes nothing, or has a key, is repeated when the connection
    breaks.
    """

    def __init__(
        self,
        path: str,
        *,
        start: Callable[[], None] | None = None,
        notice: Callable[[str], None] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._path = path
        self._start = start
        self._notice = notice
        self._patience = patience
        self._kept: Connection | None = None

    def close(self) -> None:
        """Let go of the connection. The next call makes a new one."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    # -- the queue --------------------------------------------------------------------------------

    def status(self, *, patience: float | None = None) -> Answer:
        return self._json("GET", "/v1/status", patience=patience)

    def pause(self, project: str = "") -> bool:
        return bool(self._post("/v1/pause", {"project": project} if project else {}, repeat=True)["changed"])

    def unpause(self, project: str = "") -> bool:
        return bool(self._post("/v1/unpause", {"project": project} if project else {}, repeat=True)["changed"])

    def projects(self) -> list[Answer]:
        found: list[Answer] = self._get("/v1/projects")["projects"]
        return found

    def clean(self, *, older_seconds: float = 0, states: Sequence[str] = (), project: str = "") -> Answer:
        """Forget jobs that are over: how many were `removed`, and the folders in which something is `kept`."""
        wanted: Answer = {"older_seconds": older_seconds}
        if states:
            wanted["state"] = list(states)
        if project:
            wanted["project"] = project
        return self._post("/v1/clean", wanted, repeat=True)

    def would_clean(self, *, older_seconds: float = 0, states: Sequence[str] = (), project: str = "") -> int:
        """How many jobs `clean` would forget."""
        asked = {"older_seconds": older_seconds, "state": ",".join(states), "project": project}
        found: int = self._get("/v1/clean", **asked)["jobs"]
        return found

    def lessons(self) -> list[Answer]:
        """What is known of jobs by their shape, the latest first."""
        found: list[Answer] = self._get("/v1/lessons")["lessons"]
        return found

    def forget_lessons(self, shape: str | None = None) -> int:
        """Forget what is known of one shape, or of all; how many lessons that were."""
        return int(self._post("/v1/lessons/forget", {"shape": shape}, repeat=True)["removed"])

    def report(self, *, week: str = "", weeks: int | None = None) -> Answer:
        """GPU time and energy by week, project and user: of one week, or of so many up to this one."""
        return self._get("/v1/report", week=week or None, weeks=weeks)

    def stop(self, *, jobs: bool = False) -> None:
        """Ask the daemon to end. With `jobs` it ends what runs first."""
        self._post("/v1/stop", {"jobs": jobs}, repeat=False)

    def open_page(self, **wishes: object) -> Answer:
        """Open the page to browsers where it is not: `{"address", "code", "expires_at"}`."""
        said = {name: wish for name, wish in wishes.items() if wish is not None}
        return self._post("/v1/web", said, repeat=True)

    def close_page(self) -> bool:
        """Let no browser in any more; whether one could come in until now."""
        return bool(self._post("/v1/web/close", {}, repeat=True)["changed"])

    def renew_page_token(self) -> None:
        """Send every browser away."""
        self._post("/v1/web/renew", {}, repeat=True)

    def metrics(self) -> str:
        return self._call("GET", "/metrics")[1].decode()

    # -- adding -----------------------------------------------------------------------------------

    def add(
        self,
        jobs: Sequence[Mapping[str, Any]],
        *,
        key: str,
        defaults: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        code: Mapping[str, Any] | None = None,
        part: Mapping[str, int] | None = None,
        more_patience: float = 0.0,
    ) -> Answer:
        """Store jobs; the same key again gives the same numbers: `{"first", "last", "is_new", "missing"}`.

        A `part` is one of a list that is sent in several calls, and added by the last of them.
        """
        body = {
            "key": key,
            "environment": environment or {},
            "code": code,
            "defaults": defaults or {},
            **({"part": part} if part is not None else {}),
            "jobs": jobs,
        }
        return self._json("POST", "/v1/jobs", body, patience=self._patience + more_patience)

    def check(
        self, jobs: Sequence[Mapping[str, Any]], *, defaults: Mapping[str, Any] | None = None
    ) -> list[Answer]:
        """Where and when each job would start, and why not now. What can never run raises BadInput."""
        found: list[Answer] = self._post(
            "/v1/jobs/check", {"defaults": defaults or {}, "jobs": jobs}, repeat=True
        )["prospects"]
        return found

    # -- jobs -------------------------------------------------------------------------------------

    def page(self, **filters: object) -> Answer:
        """One page of jobs: `{"jobs", "cursor", "counts"}`. What is None or empty does not filter."""
        return self._get("/v1/jobs", **filters)

    def jobs(self, **filters: object) -> Iterator[Answer]:
        """All jobs that the filters leave, page by page."""
        filters = {"limit": 1000, **filters}
        while True:
            page = self.page(**filters)
            yield from page["jobs"]
            if not page["cursor"]:
                return
            filters["cursor"] = page["cursor"]

    def job(self, number: int) -> Answer:
        return self._get(f"/v1/jobs/{number}")

    def environment(self, number: int) -> dict[str, str]:
        found: dict[str, str] = self._get(f"/v1/jobs/{number}/environment")["environment"]
        return found

    def usage(self, number: int, attempt: int | None = None) -> Answer:
        """What an attempt used, the last if none is named: `{"attempt", "usage", "series", "advice"}`."""
        return self._get(f"/v1/jobs/{number}/usage", attempt=attempt)

    def job_metrics(
        self, number: int, *, attempt: int | None = None, names: Sequence[str] = (), points: int | None = None
    ) -> Answer:
        """What an attempt has reported, the last if none is named: `{"attempt", "series", "notes"}`, all of it.

        The daemon reads a long file in several answers.
        """
        pairs: list[tuple[str, object]] = [("name", name) for name in names]
        pairs += [(key, value) for key, value in (("attempt", attempt), ("points", points)) if value is not None]
        target = f"/v1/jobs/{number}/metrics"
        for _ in range(_MOST_ANSWERS):
            found = self._json("GET", _with_query(target, pairs) if pairs else target)
            if found["is_complete"]:
                break
        return found

    def metrics_of(self, numbers: Sequence[int]) -> list[Answer]:
        """What the last attempts of at most 100 jobs have reported, with all points that are kept."""
        if not numbers:
            return []
        for _ in range(_MOST_ANSWERS):
            found: list[Answer] = self._get("/v1/jobs/metrics", ids=list(numbers), points=_MOST_POINTS)["jobs"]
            if all(job["is_complete"] for job in found):
                break
        return found

    def why(self, number: int) -> Answer:
        return self._get(f"/v1/jobs/{number}/why")

    def why_many(self, *references: str) -> list[Answer]:
        """The same for many jobs, each answer once with its `jobs`."""
        found: list[Answer] = self._get(_with_query("/v1/why", [("ref", one) for one in references]))["answers"]
        return found

    def log(
        self,
        number: int,
        *,
        stream: str = "stdout",
        attempt: int | None = None,
        offset: int | None = None,
        limit: int | None = None,
        tail: int | None = None,
    ) -> LogPart:
        target = _target(
            f"/v1/jobs/{number}/log",
            {"stream": stream, "attempt": attempt, "offset": offset, "limit": limit, "tail": tail},
        )
        head, data = self._call("GET", target)
        return LogPart(
            data,
            int(head.headers.get("dibs-offset", 0)),
            int(head.headers.get("dibs-size", len(data))),
            head.headers.get("dibs-state", ""),
            int(head.headers.get("dibs-attempt", 0)),
        )

    def wait(self, ids: Iterable[int], *, seconds: float = 30.0, patience: float | None = None) -> Answer:
        """As soon as all are over, or the time has passed: `{"jobs", "waiting"}`.

        `patience`: seconds for the answer after that time.
        """
        from dibs.model.units import show_ranges  # not for `dibs add`

        target = _target("/v1/jobs/wait", {"ids": show_ranges(ids), "timeout_seconds": f"{seconds:g}"})
        return self._json("GET", target, patience=seconds + (patience or self._patience), quiet=seconds)

    def find(self, *references: str, patience: float | None = None) -> list[int]:
        """The numbers of the jobs that `17`, `@`, `@~2`, a name, `17_4` or `3-9` mean."""
        target = _with_query("/v1/find", [("ref", one) for one in references])
        found: list[int] = self._json("GET", target, patience=patience)["ids"]
        return found

    def act(
        self,
        action: str,
        ids: Sequence[int] | None = None,
        *,
        chosen: Mapping[str, Any] | None = None,
        signal: int | None = None,
    ) -> Answer:
        """Kill, hold, release or retry jobs by number, or those that a filter chooses."""
        body: Answer = {"action": action, "signal": signal}
        body |= {"ids": list(ids)} if ids is not None else {"filter": dict(chosen or {})}
        # To end or to hold twice is to do it once; to retry twice may run it twice, and a signal arrives twice.
        return self._post("/v1/jobs/act", body, repeat=action != "retry" and signal is None)

    def edit(self, number: int, changes: Mapping[str, Any]) -> Answer:
        return self._json("PATCH", f"/v1/jobs/{number}", dict(changes), repeat=True)

    def export(self, **filters: object) -> Iterator[Answer]:
        """Every job that the filters leave, as it could be added again."""
        rest = b""
        with self.opened(_target("/v1/export", filters)) as pieces:
            for piece in pieces:
                *lines, rest = (rest + piece).split(b"\n")
                yield from map(json.loads, filter(None, lines))
            if rest:
                yield json.loads(rest)

    # -- GPUs -------------------------------------------------------------------------------------

    def gpus(self) -> Answer:
        return self._get("/v1/gpus")

    def act_on_gpus(self, action: str, gpus: Sequence[str], why: str = "") -> list[str]:
        body = {"action": action, "gpus": list(gpus), **({"why": why} if why else {})}
        found: list[str] = self._post("/v1/gpus/act", body, repeat=True)["changed"]
        return found

    # -- how it travels ---------------------------------------------------------------------------

    def opened(
        self, target: str, *, silence: float = PATIENCE, headers: Mapping[str, str] | None = None
    ) -> "StreamedAnswer":
        """A long answer on a connection of its own; `silence` is the longest pause in it."""
        connection = self._connect()
        try:
            head = connection.ask("GET", target, seconds=self._patience, headers=headers)
            if head.status >= 400:
                raise error_of(head.status, _object(b"".join(connection.pieces(head))))
        except BaseException:
            connection.close()
            raise
        self._look_at_version(head)
        return StreamedAnswer(connection, connection.pieces(head, seconds=silence))

    def _get(self, path: str, **query: object) -> Answer:
        return self._json("GET", _target(path, query))

    def _post(self, path: str, body: Mapping[str, Any], *, repeat: bool) -> Answer:
        return self._json("POST", path, body, repeat=repeat)

    def _json(
        self,
        method: str,
        target: str,
        body: Mapping[str, Any] | None = None,
        *,
        repeat: bool = True,
        patience: float | None = None,
        quiet: float = 0.0,
    ) -> Answer:
        # Only ASCII: bytes that are no UTF-8 travel as escaped surrogates.
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode("ascii")
        found = _object(self._call(method, target, data, repeat=repeat, patience=patience, quiet=quiet)[1])
        if not isinstance(found, dict):
            raise error_of(500, None)
        return found

    def _call(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        *,
        repeat: bool = True,
        patience: float | None = None,
        quiet: float = 0.0,
    ) -> tuple[AnswerHead, bytes]:
        seconds = patience or self._patience
        for number in range(1, _TRIES + 1):
            try:
                return self._once(method, target, body, seconds, quiet, repeat)
            except ConnectionBroken:
                self.close()
                if not repeat or number == _TRIES:
                    raise
                time.sleep(_PAUSE * number)
        raise AssertionError("unreachable")

    def _once(
        self, method: str, target: str, body: bytes | None, seconds: float, quiet: float, repeat: bool
    ) -> tuple[AnswerHead, bytes]:
        # One that must not be repeated gets a fresh connection: an old one may have ended without our knowing.
        if not repeat:
            self.close()
        connection = self._kept or self._connect()
        self._kept = None
        try:
            head = connection.ask(method, target, body, seconds=seconds, quiet=quiet)
            data = b"".join(connection.pieces(head))
        except BaseException:
            connection.close()
            raise
        if head.headers.get("connection", "").lower() == "close":
            connection.close()
        else:
            self._kept = connection
        self._look_at_version(head)
        if head.status >= 400:
            raise error_of(head.status, _object(data))
        return head, data

    def _connect(self) -> Connection:
        try:
            return Connection(self._path, seconds=self._patience)
        except NotListening:
            if self._start is None:
                raise
        self._start()
        return Connection(self._path, seconds=self._patience)

    def _look_at_version(self, head: AnswerHead) -> None:
        version = head.headers.get("dibs-version", __version__)
        if version != __version__ and self._notice is not None:
            notice, self._notice = self._notice, None
            notice(
                f"the daemon is version {version[:40]}, this is {__version__}: "
                "`dibs daemon restart` brings it up to date and leaves the jobs alone"
            )


def connect(
    environ: Mapping[str, str],
    *,
    start: bool = True,
    notice: Callable[[str], None] | None = None,
    patience: float = PATIENCE,
) -> Client:
    """The client for this user's daemon. It connects, and with `start` starts a daemon, at the first call."""

    def bring_up() -> None:
        from dibs.client.starting import start_for_a_command  # only the first command of all pays for it

        start_for_a_command(environ)

    return Client(
        socket_path(environ), start=bring_up if start else None, notice=notice or _say, patience=patience
    )


def connect_if_running(environ: Mapping[str, str], *, patience: float) -> Client | None:
    """The client where a daemon may be running; it starts none. `patience`: seconds for an answer."""
    path = socket_path(environ)
    return Client(path, patience=patience) if os.path.exists(path) else None


class StreamedAnswer:
    """A long answer that is still coming in."""

    def __init__(self, connection: Connection, pieces: Iterator[bytes]) -> None:
        self._connection = connection
        self._pieces = pieces

    def __enter__(self) -> Iterator[bytes]:
        return self._pieces

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _object(data: bytes) -> object:
    try:
        found: object = json.loads(data)
    except ValueError:
        return None
    return found


def _target(path: str, query: Mapping[str, object]) -> str:
    """Several values of one name stand between commas; what is None or empty is left out."""
    pairs = [
        (name, ",".join(map(str, value)) if isinstance(value, list | tuple | set | frozenset) else value)
        for name, value in query.items()
        if value is not None and value != "" and value != [] and value != ()
    ]
    return _with_query(path, pairs) if pairs else path


def _with_query(path: str, pairs: Sequence[tuple[str, object]]) -> str:
    from urllib.parse import urlencode  # 3 ms that `dibs add` does not pay

    return f"{path}?{urlencode(pairs, errors='surrogateescape')}"


def _say(sentence: str) -> None:
    sys.stderr.write(f"dibs: {sentence}\n")


class RetryingClient:
    """Repeats a question while the daemon is away, as during an upgrade. For calls that change nothing.

    A daemon that died is started again; one that was stopped is not.
    """

    def __init__(
        self, client: Client, say: Callable[[str], None], environ: Mapping[str, str] = os.environ
    ) -> None:
        self._starting = client
        self._watching = connect(environ, start=False)
        self._socket = socket_path(environ)
        self._say = say

    def ask(
        self, question: Callable[[Client], _Found], *, until: float = math.inf, since: float | None = None
    ) -> _Found:
        """The answer. NoDaemon a minute after the last sign of life, or after `until` of the monotonic clock.

        `since` is when the question was asked for the first time, if that was before.
        """
        heard_at = time.monotonic() if since is None else since
        away_since: float | None = None
        has_said = False
        client = self._watching
        while True:
            try:
                return question(client)
            except NoDaemon as error:
                now = time.monotonic()
                away_since = away_since or now
                if now > min(until, away_since + _AWAY_SECONDS):
                    if isinstance(error, NoAnswer):  # it tells of the last try only
                        error.message = f"the daemon has not answered for {now - heard_at:.0f} seconds"
                    raise
                if not has_said:
                    self._say("dibs: the daemon is away; jobs go on, and this command goes on when it is back")
                    has_said = True
                client.close()
                time.sleep(_AWAY_PAUSE)
                # A daemon that was stopped has removed its socket.
                client = self._starting if os.path.exists(self._socket) else self._watching
                if _answers(client, until - time.monotonic()):
                    away_since = None  # it was killed again and again, and is back
                    heard_at = time.monotonic()

    def close(self) -> None:
        """Let go of the connections. The next question makes a new one."""
        self._starting.close()
        self._watching.close()


def _answers(client: Client, seconds: float) -> bool:
    """Whether there is a daemon, or one could be started, and it answers within this time."""
    try:
        client.status(patience=max(_AWAY_PAUSE, min(seconds, PATIENCE)))
    except NoDaemon:
        return False
    return True
