"""Signing in, a connection that is lost, and a daemon that comes back."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from daemon.daemon_process import DaemonProcess
from stories.outside import wait_until
from web.browsing import PLACE, Site, Watch, go

pytestmark = pytest.mark.usefixtures("one_listener_at_a_time")


@pytest.fixture(autouse=True)
def running(daemon: DaemonProcess) -> DaemonProcess:
    """Each test finds a daemon that answers."""
    if daemon.running is None or daemon.running.process.poll() is not None:
        daemon.start()
    return daemon


def test_dibs_web_prints_an_address_that_lets_a_browser_in_once(browser: Browser, daemon: DaemonProcess):
    printed = daemon.world.dibs("web", "--no-open").stdout.strip()
    watch = Watch()
    with browser.new_context(viewport=PLACE) as context:
        page = context.new_page()
        watch.follow(page)

        page.goto(printed)
        expect(page.locator(".connection")).to_have_text("live")
        assert "code" not in page.url
        page.reload()
        expect(page.locator(".connection")).to_have_text("live")
    with browser.new_context(viewport=PLACE) as context:
        page = context.new_page()
        page.goto(printed)
        expect(page.get_by_role("alert")).to_contain_text("dibs web")
        expect(page.get_by_label("Code")).to_be_visible()

        page.get_by_label("Code").fill(daemon.post("/v1/web", {})["code"])
        page.get_by_role("button", name="Open").click()
        expect(page.locator(".connection")).to_have_text("live")
    watch.assert_quiet()


def test_a_wrong_code_is_refused_in_words(browser: Browser, site: Site):
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(site.address)
        page.get_by_label("Code").fill("wrong-code-here")
        page.get_by_role("button", name="Open").click()

        expect(page.get_by_role("alert")).to_contain_text("code")


def test_a_lost_connection_is_said_and_comes_back_by_itself(
    page: Page, site: Site, daemon: DaemonProcess, watch: Watch
):
    _expect_refusals(watch)
    go(page, site, "now")

    daemon.end()
    expect(page.get_by_role("alert")).to_contain_text("The connection to dibs is lost")
    expect(page.locator(".connection")).to_have_text("not connected")
    daemon.start()
    expect(page.locator(".connection")).to_have_text("live")
    expect(page.get_by_role("alert")).to_have_count(0)

    number = daemon.add({"command": "true", "name": "after the break"})
    page.goto(site.at(f"job/{number}"))
    expect(page.locator("h1 + .badge")).to_have_text("succeeded")


def test_what_happened_meanwhile_is_shown(
    page: Page, site: Site, daemon: DaemonProcess, watch: Watch, tmp_path: Path
):
    _expect_refusals(watch)
    number = daemon.add({"command": f"until test -e {tmp_path}/go; do sleep 0.05; done", "name": "meanwhile"})
    go(page, site, "jobs?text=meanwhile")
    expect(page.locator(".job-rows")).to_contain_text("meanwhile")

    daemon.kill()
    expect(page.locator(".connection")).to_have_text("not connected")
    (tmp_path / "go").touch()
    daemon.start()

    wait_until(lambda: daemon.state(number) == "succeeded")
    expect(page.locator(".job-rows .job-row")).to_contain_text("succeeded")
    assert page.url == site.at("jobs?text=meanwhile")


def test_what_got_no_answer_before_the_connection_was_lost_is_asked_again(
    page: Page, site: Site, daemon: DaemonProcess, watch: Watch, tmp_path: Path
):
    """The page hears of an end, and the daemon dies before it can tell more; nothing happens after that."""
    _expect_refusals(watch)
    number = daemon.add({"command": f"until test -e {tmp_path}/go; do sleep 0.05; done", "name": "unanswered"})
    wait_until(lambda: daemon.state(number) == "running")
    go(page, site, "jobs?text=unanswered")
    expect(page.locator(".job-rows .job-row")).to_contain_text("running")

    page.route("**/v1/jobs?*", lambda route: route.abort())
    (tmp_path / "go").touch()
    expect(page.locator("main .error")).to_be_visible()
    daemon.wait(number)
    daemon.kill()
    expect(page.locator(".connection")).to_have_text("not connected")
    page.unroute("**/v1/jobs?*")
    daemon.start()

    expect(page.locator(".job-rows .job-row")).to_contain_text("succeeded")
    expect(page.locator("main .error")).to_have_count(0)


def test_a_page_whose_token_was_taken_away_says_how_to_come_back(
    page: Page, site: Site, daemon: DaemonProcess, watch: Watch
):
    watch.forgive("401|net::ERR_")  # its stream is cut off, and whatever it is asking just then
    go(page, site, "now")

    code = re.search(r"code=(\S+)", daemon.world.dibs("web", "--no-open", "--new-token").stdout)
    assert code is not None
    expect(page.get_by_label("Code")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("This browser was signed out")
    page.get_by_label("Code").fill(code.group(1))
    page.get_by_role("button", name="Open").click()

    expect(page.locator(".connection")).to_have_text("live")


def _expect_refusals(watch: Watch) -> None:
    """The browser itself notes every connection that fails."""
    watch.forgive(r"net::ERR_|Failed to load resource: the server responded with a status of 503")
