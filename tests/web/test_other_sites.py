"""Other pages in the same browser can neither read the queue nor change it."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext

from daemon.daemon_process import DaemonProcess
from stories.outside import wait_until
from web.browsing import REBOUND, Site

ELSEWHERE = "http://127.0.0.1:9/"  # another program's page on the same machine: as near as another site can be


@pytest.fixture
def evil(site: Site, browser: Browser) -> Iterator[BrowserContext]:
    """A browser that is signed in, and in which another site is open."""
    context = site.context(browser)
    context.route(ELSEWHERE, lambda route: route.fulfill(body="<p>evil", content_type="text/html"))
    yield context
    context.close()


@pytest.fixture(scope="module")
def running(daemon: DaemonProcess) -> Iterator[int]:
    number = daemon.add("sleep 600")
    wait_until(lambda: daemon.state(number) == "running")
    yield number
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [number]})


def test_it_cannot_read(evil: BrowserContext, site: Site):
    page = evil.new_page()
    page.goto(ELSEWHERE)

    for path in ("v1/status", "v1/jobs", "v1/events", ""):
        said = page.evaluate("url => fetch(url).then(r => r.text(), error => error.name)", site.address + path)
        assert said == "TypeError"  # all that a browser tells


@pytest.mark.parametrize("mode", ["no-cors", "cors"])
def test_it_cannot_act(mode: str, evil: BrowserContext, site: Site, daemon: DaemonProcess, running: int):
    page = evil.new_page()
    page.goto(ELSEWHERE)

    page.evaluate(
        """([url, mode, id]) => fetch(url, {method: "POST", mode, credentials: "include",
            body: JSON.stringify({action: "kill", ids: [id]})}).catch(() => 0)""",
        [f"{site.address}v1/jobs/act", mode, running],
    )

    assert daemon.state(running) == "running"


def test_it_cannot_frame_the_page(evil: BrowserContext, site: Site):
    page = evil.new_page()
    page.goto(ELSEWHERE)

    page.evaluate(
        """url => new Promise(done => { const frame = document.createElement("iframe");
            frame.onload = done; frame.src = url; document.body.append(frame); })""",
        site.address,
    )

    assert not any(frame.url.startswith(site.address) for frame in page.frames)


def test_a_name_that_was_pointed_at_this_machine_gets_nothing(evil: BrowserContext, site: Site):
    port = urlsplit(site.address).port
    page = evil.new_page()

    answer = page.goto(f"http://{REBOUND}:{port}/")

    assert answer is not None and answer.status == 421
    status = page.evaluate("() => fetch('/v1/status').then(r => r.status)")
    assert status == 421
