"""Fixtures for tests that run the installed command."""

import fcntl
import os
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from backends import private_sshd
from backends.private_slurm import PrivateSlurm, missing_programs
from backends.private_sshd import PrivateSshd
from containers import private_engines
from containers.private_engines import PrivateEngines
from examples import IS_LONG, examples
from garbage import no_garbage_collected
from stories.fork_server import ADVISERS
from stories.outside import MUST_EXECUTE, Finished, Ledger, World, advisers_fork_server, make_world

# The same examples each time, so that a red run is red everywhere; how long one takes says nothing on a busy
# machine. DIBS_EXPLORE=1 looks for new ones, and for more of them.
settings.register_profile("the same each time", derandomize=True, deadline=None, max_examples=examples(150))
settings.register_profile("explore", deadline=None, max_examples=examples(150))
settings.load_profile("explore" if IS_LONG else "the same each time")

# dibs syncs what it records, and a disk takes longer for that than dibs for the rest. So folders of tests are in
# memory, where there is plenty of it and programs may be executed there.
_MEMORY = "/dev/shm"
if os.access(_MEMORY, os.W_OK):
    _found = os.statvfs(_MEMORY)
    if _found.f_bavail * _found.f_frsize > 4 << 30 and not _found.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)

# A shell ignores these in a background job, and every process that a test starts would inherit that.
for _number, _default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _default)

# The folders whose files take longest come first: a long file that is begun last keeps one process busy alone.
_LONGEST = ("cluster", "test_docs.py", "test_examples.py", "faults", "backends", "stories", "web", "engine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(_LONGEST)}
    tests = Path(__file__).parent
    items.sort(key=lambda item: places.get(item.path.relative_to(tests).parts[0], len(places)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Function, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Folders of tests have bytes in their names that are no text: a report with them would end a test process."""
    with no_garbage_collected():
        report = yield
    if report.failed:
        if (text := str(report.longrepr)) != sendable(text):
            report.longrepr = sendable(text)
        report.sections = [(sendable(title), sendable(content)) for title, content in report.sections]
    return report


def sendable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _only_listener(factory: pytest.TempPathFactory) -> Iterator[None]:
    """Only one test process at a time uses the default port of the page."""
    with open(factory.getbasetemp().parent / "page.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="module")
def one_listener_at_a_time(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For all tests of a file."""
    yield from _only_listener(tmp_path_factory)


@pytest.fixture
def one_listener_for_a_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For a single test of a file that is about other things."""
    yield from _only_listener(tmp_path_factory)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A state folder, a lease folder and an ugly working folder of one's own, and no driver."""
    one = make_world(tmp_path)
    yield one
    one.clean_up()


@pytest.fixture
def dibs(world: World) -> Callable[..., Finished]:
    """Runs the installed command: `dibs("run", "-", input="...")`."""
    return world.dibs


@pytest.fixture
def ledger(world: World) -> Ledger:
    """What the jobs themselves wrote down."""
    return world.ledger


@pytest.fixture(scope="module")
def forked_advisers() -> Iterator[None]:
    """For all tests of a file: the daemons of its worlds fork their advisers."""
    with pytest.MonkeyPatch.context() as patch:
        if not MUST_EXECUTE:
            patch.setenv(ADVISERS, advisers_fork_server().name)
        yield


@pytest.fixture(scope="module")
def slurm(request: pytest.FixtureRequest) -> Iterator[PrivateSlurm]:
    """A Slurm of our own, three nodes with two fake GPUs each; its parameters may say otherwise."""
    wanted: dict[str, Any] = getattr(request, "param", {})
    if missing := missing_programs(accounting=wanted.get("accounting", False)):
        pytest.skip(f"a test with Slurm needs {', '.join(missing)}: `make system` installs them")
    # Not in pytest's folder: the path of a socket may not be long.
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # munged wants its socket to be reachable for all users
        one = PrivateSlurm(Path(folder) / "private", **wanted)
        try:
            one.start()
            yield one
        finally:
            one.stop()


@pytest.fixture(scope="module")
def sshd() -> Iterator[PrivateSshd]:
    """An sshd of our own; every name leads to it."""
    if missing := private_sshd.missing_programs():
        pytest.skip(f"a test over ssh needs {', '.join(missing)}: install openssh-server")
    with tempfile.TemporaryDirectory(prefix="sshd-") as folder:
        one = PrivateSshd(Path(folder) / "private")
        try:
            one.start()
            yield one
        finally:
            one.stop()


@pytest.fixture(scope="session")
def engines() -> Iterator[PrivateEngines]:
    """Container engines of our own, with an image of busybox."""
    if os.geteuid() != 0:
        pytest.skip("the container engines of the tests need root")
    if missing := private_engines.missing_programs():
        pytest.skip(f"a test with containers needs {', '.join(missing)}: install podman, docker.io and runc")
    # Not in pytest's folder: the path of a socket may not be long.
    with tempfile.TemporaryDirectory(prefix="dibs-engines-", ignore_cleanup_errors=True) as folder:
        one = PrivateEngines(Path(folder) / "private")
        try:
            yield one
        finally:
            one.stop()
