"""The command line in front of a daemon that only remembers."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.fake_daemon import FakeDaemon, a_place_for_a_socket, listening
from dibs.cli.main import dibs as command
from dibs.cli.main import exit_with
from stories.outside import Finished

Typed = Callable[..., Finished]


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[str]:
    """Where a daemon would listen; none does, and none is started."""
    with a_place_for_a_socket() as path, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("DIBS_")]:
            patch.delenv(name)
        patch.setenv("DIBS_SOCKET", path)
        patch.setenv("DIBS_STATE", f"{tmp_path}/state")
        patch.setenv("DIBS_LEASES", f"{tmp_path}/leases")
        patch.setenv("DIBS_PROBE", "none")
        patch.setenv("DIBS_NO_START", "1")
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield path
    time.tzset()


@pytest.fixture
def daemon(socket: str) -> Iterator[FakeDaemon]:
    one = FakeDaemon()
    with listening(one, socket):
        yield one


@pytest.fixture
def typed(capfd: pytest.CaptureFixture[str]) -> Typed:
    """Types a command in this process: `typed("ls", "--json")`."""

    def run(*words: str) -> Finished:
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            exit_with(command, list(words))
        out, err = capfd.readouterr()
        return Finished(int(end.value.code or 0), out, err)

    return run
