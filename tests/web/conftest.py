"""One browser for all files that a test process has, one daemon a file, one tab a test."""

import json
import shutil
import subprocess
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from daemon.daemon_process import DaemonProcess
from stories.outside import make_world
from web.browsing import REBOUND, Site, Watch
from web.building import MODULES, install_tools

# Debian's Chromium without its windows and menus: less than half the CPU time of the whole browser.
CHROMIUM = shutil.which("chromium-headless-shell") or "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",  # the tests may run as root
    "--disable-gpu",
    # One process draws all tabs, and the main one composes them: a fifth less CPU time.
    "--renderer-process-limit=1",
    "--in-process-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Another name that resolves to this machine.
    f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1",
]
READINGS = Path(__file__).parents[1] / "data" / "readings"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A page shows only that a job failed; the report also says why."""
    report = yield
    daemon = item.funcargs.get("daemon")
    if report.when == "call" and report.failed and isinstance(daemon, DaemonProcess):
        with suppress(Exception):  # the daemon itself may be what is missing
            report.sections += [("a job that failed", one) for one in daemon.failures()]
    return report


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Gone with this folder: its event loop would be in the way of what other tests do."""
    with sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield one
        one.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """A program that finds what people cannot use who do not see, or not well."""
    install_tools()
    return (MODULES / "axe-core" / "axe.min.js").read_text()


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Four cards in a file; on the first of them computes a process that is not a job."""
    file = tmp_path_factory.mktemp("cards") / "cards.json"
    world = json.loads((READINGS / "four_cards.json").read_text())
    stranger = subprocess.Popen(["sleep", "600"])
    world["gpus"][0]["processes"][0]["pid"] = stranger.pid
    file.write_text(json.dumps(world))
    yield file
    stranger.kill()
    stranger.wait()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, cards: Path) -> Iterator[DaemonProcess]:
    """A daemon with these cards, for all tests of a file."""
    world = make_world(tmp_path_factory.mktemp("daemon"))
    one = DaemonProcess(world)
    del world.environ["DIBS_POOL"]
    world.environ["DIBS_PROBE"] = f"fake:{cards}"
    one.start()
    yield one
    one.end()
    world.clean_up()


@pytest.fixture(scope="module")
def site(daemon: DaemonProcess) -> Site:
    return Site(daemon)


@pytest.fixture(scope="module")
def _context(site: Site, browser: Browser) -> Iterator[BrowserContext]:
    """One for all tests of a file: it keeps the page's program, compiled."""
    one = site.context(browser)
    one.new_page()  # while it is there, the process that draws pages goes on
    yield one
    one.close()


@pytest.fixture
def _tab(site: Site, _context: BrowserContext) -> Iterator[tuple[Page, Watch]]:
    watch = Watch()
    page = _context.new_page()
    watch.follow(page)
    yield page, watch
    watch.assert_quiet()
    # The next test finds none of this one's choices, and is signed in.
    forget = "session => { localStorage.clear(); localStorage.setItem('dibs-session', session) }"
    page.evaluate(forget, json.dumps(site.session))
    page.close()


@pytest.fixture
def page(_tab: tuple[Page, Watch]) -> Page:
    """A tab that is signed in. It fails the test if it complains or asks another host."""
    return _tab[0]


@pytest.fixture
def watch(_tab: tuple[Page, Watch]) -> Watch:
    return _tab[1]
