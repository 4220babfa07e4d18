"""The description of the API is true: whatever is made from it is answered as it says."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from requests.adapters import HTTPAdapter
from schemathesis import checks
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from daemon.daemon_process import DaemonProcess
from daemon.listening import connect
from dibs.daemon.app import description
from examples import IS_LONG

# Made-up commands must not run, nor the daemon end or listen elsewhere; a stream has no end to be looked at.
NOT_CALLED = "^/v1/(unpause|stop|events|web.*)$"
CHECKED = (
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
)


class _OverSocket(HTTPAdapter):
    """Every address leads to one UNIX socket."""

    def __init__(self, path: str) -> None:
        self._path = path
        super().__init__()

    def get_connection_with_tls_context(self, *args: Any, **more: Any) -> HTTPConnectionPool:
        path = self._path

        class Connection(HTTPConnection):
            def connect(self) -> None:
                self.sock: socket.socket = connect(path)

        class Pool(HTTPConnectionPool):
            ConnectionCls = Connection

        return Pool("localhost")


@pytest.fixture(scope="module")
def session(shared: DaemonProcess) -> Iterator[requests.Session]:
    shared.post("/v1/pause", {})
    shared.add("true", "true", {"command": "true", "hold": True})
    with requests.Session() as one:
        one.trust_env = False
        one.mount("http://", _OverSocket(shared.socket))
        yield one


# As it is committed: every process collects all tests, and to make it anew takes a tenth of that time.
DESCRIPTION = json.loads((Path(__file__).parents[2] / "web" / "openapi.json").read_text())
schema = schemathesis.openapi.from_dict(DESCRIPTION).exclude(path_regex=NOT_CALLED)
schema.config.update(base_url="http://localhost")
# A list that is too long may be too large before it is counted.
schema.config.checks.negative_data_rejection.expected_statuses = ["400", "404", "405", "409", "413", "431"]
schema.config.phases.coverage.enabled = False  # it makes each limit into a request of megabytes


# A body with all fields of a job: to make one that is wrong takes a third of a second.
OF_JOBS = {"path_regex": "^/v1/(jobs|jobs/check|jobs/{[a-z]+}|sweeps|sweeps/check)$", "method": ["POST", "PATCH"]}


def so_many(examples: int) -> settings:
    return settings(
        max_examples=10 * examples if IS_LONG else examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )


@schema.exclude(**OF_JOBS).parametrize()
@so_many(20)
def test_whatever_is_asked_is_answered_as_described(case: Any, session: requests.Session):
    if case.path == "/v1/jobs/wait" and isinstance(case.query, dict):
        case.query["timeout_seconds"] = "0.01"

    case.call_and_validate(session=session, checks=CHECKED)


@schema.include(**OF_JOBS).parametrize()
@so_many(6)
def test_whatever_is_said_of_a_job_is_answered_as_described(case: Any, session: requests.Session):
    case.call_and_validate(session=session, checks=CHECKED)


def test_every_route_is_described_with_its_errors(shared: DaemonProcess):
    made = json.loads(json.dumps(description(MagicMock())))
    assert shared.get("/openapi.json") == made
    assert made | {"info": DESCRIPTION["info"]} == DESCRIPTION, "run `python web/openapi.py`"
    assert len(DESCRIPTION["paths"]) >= 20
    for path, operations in DESCRIPTION["paths"].items():
        for method, operation in operations.items():
            told = operation["responses"].keys()
            assert {"400", "403", "421", "500"} <= told, (path, method)
            assert "422" not in told, (path, method)
            assert operation["description"], (path, method)
