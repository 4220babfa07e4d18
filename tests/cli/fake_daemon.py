"""A daemon that only remembers: the API's routes on a real socket, without engine, store and GPUs."""

import json
import os
import re
import shutil
import socket
import socketserver
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote_to_bytes, urlsplit

from dibs.version import __version__

OVER = ("succeeded", "failed", "cancelled", "timed_out", "lost")
ALL = ("queued", "held", "submitted", "running", *OVER)


def a_job(number: int, state: str = "queued", **more: Any) -> dict[str, Any]:
    """A job as GET /v1/jobs tells of it."""
    return {
        "id": number,
        "name": "",
        "project": "",
        "user": "ann",
        "state": state,
        "command": f"python train.py --seed {number}",
        "words": ["python", "train.py", "--seed", str(number)],
        "workdir": "/data",
        "env": {},
        "num_gpus": 1,
        "share": None,
        "vram_bytes": None,
        "vram": None,
        "gpu_type": "",
        "cpus": None,
        "mem_bytes": None,
        "only": [],
        "prefer": [],
        "time_limit_seconds": None,
        "grace_seconds": 10.0,
        "priority": 0,
        "retries": 0,
        "retry_on": [],
        "warm": [],
        "on": "",
        "on_options": {},
        "node": "",
        "node_gpus": "",
        "restartable": False,
        "bind": False,
        "tags": [],
        "after": [],
        "begin_at": None,
        "array": None,
        "once": "",
        "notify": "",
        "checkpoint": None,
        "output": "",
        "attempts": 0 if state in ("queued", "held") else 1,
        "gpus": [] if state in ("queued", "held") else [0],
        "queued_at": "2026-11-15T12:00:00.000Z",
        "started_at": None if state in ("queued", "held") else "2026-11-15T12:00:10.000Z",
        "ended_at": "2026-11-15T12:03:15.000Z" if state in OVER else None,
        "seconds": 185.0 if state in OVER else None,
        "exit_code": {"succeeded": 0, "failed": 1}.get(state),
        "signal": None,
        "cause": {"failed": "exit code", "cancelled": "stopped", "timed_out": "time limit", "lost": "lost"}.get(
            state
        ),
        "message": "",
        "why_held": "",
        "is_ending": False,
        "suspension": None,
        "suspended_seconds": None if state in ("queued", "held", *OVER) else 0.0,
        "ran_seconds": None if state in ("queued", "held", *OVER) else 60.0,
        "folder": "" if state in ("queued", "held") else f"/state/attempts/{number}.1",
        "usage": None,
        "progress": None,
        "ends_at": None,
        **more,
    }


def a_trial(number: int, state: str = "complete", **more: Any) -> dict[str, Any]:
    """A trial as GET /v1/sweeps/N/trials tells of it."""
    return {
        "number": number,
        "job": 100 + number,
        "state": state,
        "point": {"lr": f"0.{number}", "opt": "adam"},
        "values": [float(number)] if state == "complete" else None,
        "reported": {},
        "continues": None,
        "repeat_of": None,
        "means": None,
        "spreads": None,
        "seconds": 12.0 if state != "open" else None,
        "why": f"job {100 + number} failed with exit code 1" if state == "failed" else "",
        "reused_from": None,
        "ended_at": "2026-11-15T12:03:15.000Z" if state != "open" else None,
        "command": f"python train.py --lr 0.{number} --opt adam",
        **more,
    }


def a_sweep(number: int, state: str = "running", trials: tuple[Any, ...] = (), **more: Any) -> dict[str, Any]:
    """A sweep as GET /v1/sweeps/N tells of it; `trials` are the fake's own."""
    states = ("open", "complete", "pruned", "failed", "reused")
    told = [trial for trial in trials if trial["values"] and trial["state"] in ("complete", "reused")]
    return {
        "id": number,
        "name": "",
        "project": "",
        "user": "ann",
        "state": state,
        "why": "",
        "spec": {
            "command": "python train.py --lr {lr} --opt {opt}",
            "parameters": [{"name": "lr", "low": 0.0, "high": 1.0}, {"name": "opt", "values": ["adam", "sgd"]}],
            "method": "adaptive",
            "sampler": "tpe",
            "seed": 7,
            "samples": 10,
            "where": [],
            "metrics": [{"name": "loss", "goal": "min"}],
            "pruner": "",
        },
        "metrics": [{"name": "loss", "goal": "min"}],
        "size": 10,
        "parallel": 4,
        "counts": {one: sum(trial["state"] == one for trial in trials) for one in states},
        "best": [min(told, key=lambda trial: trial["values"][0])] if told else [],
        "queued_at": "2026-11-15T12:00:00.000Z",
        "ended_at": "2026-11-15T12:03:15.000Z" if state in ("finished", "stopped") else None,
        "journal": "",
        "trials": list(trials),
        **more,
    }


class FakeDaemon:
    """What it was told, what it was asked, and what it answers."""

    notes: tuple[str, ...] = ()  # about jobs that are added

    def __init__(self, *jobs: dict[str, Any]) -> None:
        self.jobs = {job["id"]: job for job in jobs}
        self.kept: list[str] = []  # copies of code
        self.calls: list[tuple[str, str, dict[str, str], Any]] = []  # method, path, query, body
        self.logs: dict[tuple[int, str], bytes] = {}  # (job, stream)
        self.reasons: dict[int, str] = {}
        self.suspensions: dict[int, list[Any]] = {}  # of its attempts
        self.reports: dict[int, dict[str, Any]] = {}  # series and advice
        self.series: dict[int, list[dict[str, Any]]] = {}  # what jobs have reported
        self.looks = 0
        self.names: dict[str, list[int]] = {}  # what references mean
        self.gpus: list[dict[str, Any]] = []
        self.weekly: dict[str, Any] = {"time_zone": "UTC", "weeks": [], "is_partial": False}
        self.sweeps: dict[int, dict[str, Any]] = {}
        commands = ["python train.py --lr 0.1", "python train.py --lr 0.2"]
        self.checked: dict[str, Any] = {"size": 12, "commands": commands, "left_out": 0, "reused": []}
        self.importance: dict[str, Any] = {"importance": [], "why": ""}
        self.page: dict[str, str] = {}  # address, code and expires_at
        self.unchanged: dict[int, str] = {}
        self.default_backend = "local"
        self.slow = 0.0  # seconds before each answer
        self.refusal: tuple[int, str, str] | None = None  # status, code, message
        self._lock = threading.Lock()

    def bodies(self, method: str = "POST") -> list[Any]:
        return [body for called, _, _, body in self.calls if called == method]

    def added(self) -> list[Any]:
        """The bodies of the requests that add jobs."""
        return [body for method, path, _, body in self.calls if (method, path) == ("POST", "/v1/jobs")]

    def queries(self, path: str) -> list[dict[str, str]]:
        return [query for _, called, query, _ in self.calls if called == path]

    def answer(self, method: str, path: str, query: dict[str, Any], body: Any) -> tuple[int, Any, dict[str, str]]:
        time.sleep(self.slow)
        with self._lock:
            self.calls.append((method, path, query, body))
            if self.refusal:
                status, code, message = self.refusal
                return status, {"error": {"code": code, "message": message, "remedy": "try something else"}}, {}
            for pattern, name in _ROUTES.items():
                if match := re.fullmatch(pattern, f"{method} {path}"):
                    numbers = [int(text) for text in match.groups()]
                    if path.startswith("/v1/sweeps"):
                        if numbers and numbers[0] not in self.sweeps:
                            return 404, _error("no-such-sweep", f"cannot find sweep {numbers[0]}"), {}
                    elif numbers and numbers[0] not in self.jobs:
                        return 404, _error("no-such-job", f"cannot find job {numbers[0]}"), {}
                    result = getattr(self, name)(*numbers, query, body)
                    return result if isinstance(result, tuple) else (200, result, {})
        return 404, _error("not-found", "there is no such route"), {}

    # -- routes --------------------------------------------------------------------------------------------

    def _status(self, *_: Any) -> Any:
        return {"version": __version__, "api": 1, "default_backend": self.default_backend}

    def _page(self, query: dict[str, Any], _: Any) -> Any:
        jobs = [job for job in self.jobs.values() if _is_meant(job, query)]
        order = query.get("order", "newest")
        if order == "turn":  # only those have one
            jobs = [job for job in jobs if job["state"] == "queued"][: int(query.get("limit", 100))]
        jobs.sort(key=lambda job: job["id"], reverse=order in ("newest", "ended"))
        start, limit = int(query.get("cursor", "0:0").split(":")[0]), int(query.get("limit", 100))
        counts = {state: sum(job["state"] == state for job in self.jobs.values()) for state in ALL}
        cursor = f"{start + limit}:0" if len(jobs) > start + limit else None
        return {"jobs": jobs[start : start + limit], "cursor": cursor, "counts": counts}

    def _job(self, number: int, *_: Any) -> Any:
        job = self.jobs[number]
        attempts = [
            {
                key: job[key]
                for key in ("gpus", "started_at", "ended_at", "seconds", "exit_code", "signal", "cause")
            }
            | {
                "number": one,
                "message": job["message"],
                "folder": job["folder"],
                "boot_id": "b",
                "backend": job["on"],
                "backend_job": "4711_3" if job["on"] and job["node"] else "",
                "node": job["node"],
                "node_gpus": job["node_gpus"],
                "pid": None if job["on"] else 4000 + one,
            }
            | {"cpu_seconds": 12.0, "max_rss_bytes": 1 << 30, "usage": job["usage"]}
            | {"suspensions": self.suspensions.get(number, [])}
            for one in range(1, job["attempts"] + 1)
        ]
        files = {name: f"{job['folder']}/{name}" if job["folder"] else "" for name in ("stdout", "stderr")}
        code = {"commit": "abc123", "is_dirty": True}
        return {**job, "attempts_list": attempts, "reason": self._reason(number), "code": code, **files}

    def _usage(self, number: int, *_: Any) -> Any:
        job = self.jobs[number]
        said = {"series": None, "advice": [], **self.reports.get(number, {})}
        return {"job": number, "attempt": job["attempts"] or None, "usage": job["usage"], **said}

    def _metrics(self, number: int, query: dict[str, Any], _: Any) -> Any:
        """The first answer has read half of it."""
        self.looks += 1
        series = self.series.get(number, []) if self.looks % 2 == 0 else []
        about = {"job": number, "attempt": 1, "state": self.jobs[number]["state"], "started_at": None}
        return {**about, "is_complete": self.looks % 2 == 0, "series": series, "notes": []}

    def _metrics_of_several(self, query: dict[str, Any], _: Any) -> Any:
        known = [number for number in _numbers(query["ids"]) if number in self.series]
        return {"jobs": [{"job": one, "is_complete": True, "series": self.series[one]} for one in known]}

    def _environment(self, *_: Any) -> Any:
        return {"environment": {"HOME": "/home/ann", "WANDB_MODE": "offline"}}

    def _why(self, number: int, *_: Any) -> Any:
        return {
            "job": number,
            "state": self.jobs[number]["state"],
            "reason": self._reason(number),
            "starts_at": None,
        }

    def _log(self, number: int, query: dict[str, Any], _: Any) -> Any:
        content = self.logs.get((number, query.get("stream", "stdout")), b"")
        offset = int(query.get("offset", 0))
        if "tail" in query:
            lines = content.splitlines(keepends=True)
            offset = len(content) - sum(map(len, lines[len(lines) - int(query["tail"]) :]))
        piece = content[offset : offset + int(query.get("limit", 1 << 20))]
        job = self.jobs[number]
        if int(query.get("attempt", 1)) > job["attempts"]:
            return 400, _error("bad-input", f"job {number} has no attempt {query['attempt']}"), {}
        headers = {"Dibs-Offset": offset, "Dibs-Size": len(content), "Dibs-State": job["state"]}
        return 200, piece, {**headers, "Dibs-Attempt": query.get("attempt", job["attempts"])}

    def _wait(self, query: dict[str, Any], _: Any) -> Any:
        known = [self.jobs[number] for number in _numbers(query["ids"]) if number in self.jobs]
        over = [job for job in known if job["state"] in OVER]
        if len(over) < len(known):
            self._lock.release()
            time.sleep(min(0.05, float(query["timeout_seconds"])))
            self._lock.acquire()
        return {"jobs": over, "waiting": [job["id"] for job in known if job["state"] not in OVER]}

    def _find(self, query: dict[str, Any], _: Any) -> Any:
        found: list[int] = []
        for ref in query["ref"] if isinstance(query["ref"], list) else [query["ref"]]:
            if re.fullmatch(r"\d+-\d+", ref):
                found += [number for number in _numbers(ref) if number in self.jobs]
            elif ref == "@":
                found.append(max(self.jobs))
            elif ref in self.names:
                found += self.names[ref]
            else:
                return 404, _error("no-such-job", f"cannot find job {ref}"), {}
        return {"ids": found}

    def _act(self, _: Any, body: Any) -> Any:
        ids = body.get("ids", [job["id"] for job in self.jobs.values() if _fits(job, body.get("filter", {}))])
        unchanged = [{"id": number, "why": self.unchanged[number]} for number in ids if number in self.unchanged]
        changed = [number for number in ids if number not in self.unchanged]
        is_kill = body["action"] == "kill" and body["signal"] is None
        waiting = [number for number in changed if is_kill and self.jobs[number]["state"] in ("queued", "held")]
        return {"changed": changed, "cancelled": waiting, "unchanged": unchanged}

    def _edit(self, number: int, _: Any, body: Any) -> Any:
        if self.jobs[number]["state"] == "running":
            return 409, _error("conflict", f"cannot change job {number}: it is running"), {}
        self.jobs[number] |= {key: value for key, value in body.items() if key not in ("top", "before")}
        return self.jobs[number]

    def _pause(self, *_: Any) -> Any:
        return {"changed": True}

    def _gpus(self, *_: Any) -> Any:
        return {"gpus": self.gpus, "pool": "auto"}

    def _report(self, *_: Any) -> Any:
        return self.weekly

    def _act_on_gpus(self, _: Any, body: Any) -> Any:
        return {"changed": body["gpus"]}

    def _enter(self, *_: Any) -> Any:
        return self.page

    def _change_page(self, *_: Any) -> Any:
        return {"changed": True}

    def _would_clean(self, query: dict[str, Any], _: Any) -> Any:
        states = (query.get("state") or ",".join(OVER)).split(",")
        return {"jobs": sum(job["state"] in states for job in self.jobs.values())}

    def _clean(self, _: Any, body: Any) -> Any:
        states = body.get("state") or OVER
        gone = [number for number, job in self.jobs.items() if job["state"] in states]
        for number in gone:
            del self.jobs[number]
        return {"removed": len(gone), "kept": self.kept}

    def _projects(self, _: Any, __: Any) -> Any:
        names = sorted({job["project"] for job in self.jobs.values()})
        return {"projects": [{"name": name, "counts": {"queued": 1}} for name in names]}

    def _export(self, query: dict[str, Any], _: Any) -> Any:
        lines = [_new_job(job) for job in self.jobs.values() if _is_meant(job, query)]
        return 200, b"".join(json.dumps(line).encode() + b"\n" for line in lines), {}

    def _add(self, _: Any, body: Any) -> Any:
        part = body.get("part", {"offset": 0, "jobs": len(body["jobs"])})
        begin = max(self.jobs, default=0) + 1
        array = begin if "array" in body["jobs"][0] else 0
        for number, job in enumerate(body["jobs"], begin):
            task = {**job["array"], "id": array} if job.get("array") else None
            self.jobs[number] = a_job(number, "held" if job.get("hold") else "queued") | job | {"array": task}
        first = begin - part["offset"]
        told = {"first": first, "last": first + part["jobs"] - 1, "is_new": True, "notes": self.notes}
        return 201, told, {}

    def _check(self, *_: Any) -> Any:
        return {"prospects": []}

    # -- sweeps --------------------------------------------------------------------------------------------

    def _sweeps(self, query: dict[str, Any], _: Any) -> Any:
        newest = sorted(self.sweeps.values(), key=lambda sweep: -sweep["id"])
        found = [_told(sweep) for sweep in newest if query.get("state", sweep["state"]) == sweep["state"]]
        return {"sweeps": found, "cursor": None}

    def _sweep(self, number: int, *_: Any) -> Any:
        return _told(self.sweeps[number])

    def _find_sweep(self, query: dict[str, Any], _: Any) -> Any:
        named = {sweep["name"]: number for number, sweep in self.sweeps.items() if sweep["name"]}
        if query["ref"] == "@" and self.sweeps:
            return {"id": max(self.sweeps)}
        if query["ref"].isdigit():
            return {"id": int(query["ref"])}
        if query["ref"] not in named:
            return 404, _error("no-such-sweep", f"cannot find sweep {query['ref']}"), {}
        return {"id": named[query["ref"]]}

    def _trials(self, number: int, query: dict[str, Any], _: Any) -> Any:
        trials = [one for one in self.sweeps[number]["trials"] if query.get("state", one["state"]) == one["state"]]
        if query.get("order") == "best":
            trials = sorted((one for one in trials if one["values"]), key=lambda one: one["values"][0])
        start, limit = int(query.get("cursor", 0)), int(query.get("limit", 100))
        cursor = str(start + limit) if len(trials) > start + limit else None
        return {"trials": trials[start : start + limit], "cursor": cursor}

    def _importance(self, *_: Any) -> Any:
        return self.importance

    def _act_on_sweep(self, number: int, _: Any, body: Any) -> Any:
        return {"changed": self.sweeps[number].get("changed", True), "trials": 2}

    def _remove_sweep(self, number: int, *_: Any) -> Any:
        return {"trials": len(self.sweeps.pop(number)["trials"])}

    def _add_sweep(self, _: Any, body: Any) -> Any:
        number = max(self.sweeps, default=0) + 1
        self.sweeps[number] = a_sweep(number, spec=body["spec"], name=body["spec"]["name"])
        return 201, {"id": number, "is_new": True, "size": 12}, {}

    def _check_sweep(self, _: Any, body: Any) -> Any:
        return self.checked

    def _reason(self, number: int) -> Any:
        if number not in self.reasons:
            return None
        return {"code": "no-gpu", "sentence": self.reasons[number]}


_ROUTES = {
    r"GET /v1/status": "_status",
    r"GET /v1/jobs": "_page",
    r"POST /v1/jobs": "_add",
    r"POST /v1/jobs/check": "_check",
    r"GET /v1/jobs/wait": "_wait",
    r"GET /v1/jobs/metrics": "_metrics_of_several",
    r"POST /v1/jobs/act": "_act",
    r"GET /v1/jobs/(\d+)": "_job",
    r"PATCH /v1/jobs/(\d+)": "_edit",
    r"GET /v1/jobs/(\d+)/environment": "_environment",
    r"GET /v1/jobs/(\d+)/usage": "_usage",
    r"GET /v1/jobs/(\d+)/metrics": "_metrics",
    r"GET /v1/jobs/(\d+)/why": "_why",
    r"GET /v1/jobs/(\d+)/log": "_log",
    r"GET /v1/find": "_find",
    r"POST /v1/(?:un)?pause": "_pause",
    r"GET /v1/gpus": "_gpus",
    r"GET /v1/report": "_report",
    r"POST /v1/gpus/act": "_act_on_gpus",
    r"POST /v1/web": "_enter",
    r"POST /v1/web/(?:close|renew)": "_change_page",
    r"POST /v1/clean": "_clean",
    r"GET /v1/clean": "_would_clean",
    r"GET /v1/projects": "_projects",
    r"GET /v1/export": "_export",
    r"GET /v1/sweeps": "_sweeps",
    r"POST /v1/sweeps": "_add_sweep",
    r"POST /v1/sweeps/check": "_check_sweep",
    r"GET /v1/sweeps/find": "_find_sweep",
    r"GET /v1/sweeps/(\d+)": "_sweep",
    r"GET /v1/sweeps/(\d+)/trials": "_trials",
    r"GET /v1/sweeps/(\d+)/importance": "_importance",
    r"POST /v1/sweeps/(\d+)/act": "_act_on_sweep",
    r"POST /v1/sweeps/(\d+)/remove": "_remove_sweep",
}


@contextmanager
def listening(daemon: FakeDaemon, path: str) -> Iterator[None]:
    """Let it answer at a socket."""
    server = _Server(path, _handler(daemon))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        server.hang_up()
        thread.join()
        os.unlink(path)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def process_request(self, request: Any, client_address: Any) -> None:
        self.__dict__.setdefault("callers", []).append(request)
        super().process_request(request, client_address)

    def handle_error(self, *_: Any) -> None:
        """A caller that left before its answer is none of our business."""

    def hang_up(self) -> None:
        """End the connections that callers keep open, as the end of a process would."""
        for request in self.__dict__.get("callers", ()):
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)


@contextmanager
def a_place_for_a_socket() -> Iterator[str]:
    """A short path in a folder that no other user can read: the tests' own folders have long names."""
    folder = tempfile.mkdtemp(prefix="dibs-fake-")
    try:
        yield f"{folder}/socket"
    finally:
        shutil.rmtree(folder)


def _handler(daemon: FakeDaemon) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            parts = urlsplit(self.path)
            query = {
                name: _text(values[0]) if len(values) == 1 else [_text(one) for one in values]
                for name, values in parse_qs(parts.query, encoding="latin-1", keep_blank_values=True).items()
            }
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            path = unquote_to_bytes(parts.path).decode()
            status, content, headers = daemon.answer(self.command, path, query, body)
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": len(data), "Dibs-Version": __version__}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = _do

        def address_string(self) -> str:
            return "socket"

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _told(sweep: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in sweep.items() if key not in ("trials", "changed")}


def _text(latin: str) -> str:
    return latin.encode("latin-1").decode("utf-8", "surrogateescape")


def _is_meant(job: dict[str, Any], query: dict[str, Any]) -> bool:
    for key in ("project", "name", "user"):
        if key in query and job[key] != query[key]:
            return False
    if "tag" in query and query["tag"] not in job["tags"]:
        return False
    if "ids" in query and job["id"] not in _numbers(query["ids"]):
        return False
    return "state" not in query or job["state"] in query["state"].split(",")


def _fits(job: dict[str, Any], wanted: dict[str, Any]) -> bool:
    if wanted.get("failed") and job["state"] not in ("failed", "timed_out", "lost"):
        return False
    if wanted.get("state") and job["state"] not in wanted["state"]:
        return False
    return wanted.get("project") in (None, job["project"])


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _new_job(job: dict[str, Any]) -> dict[str, Any]:
    told = ("user", "attempts", "gpus", "queued_at", "started_at", "ended_at", "seconds", "exit_code", "signal")
    wanted = {
        key: value
        for key, value in job.items()
        if key not in (*told, "cause", "message", "why_held", "is_ending", "folder")
    }
    if job["array"]:
        wanted["array"] = {"task": job["array"]["task"], "most": job["array"]["most"]}
    else:
        del wanted["array"]
    return wanted


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "remedy": ""}}
