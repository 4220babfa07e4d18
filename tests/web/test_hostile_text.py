"""Names, tags, output and errors that try to be more than text stay text, everywhere."""

import pytest
from playwright.sync_api import Page, expect

from daemon.daemon_process import DaemonProcess
from stories.outside import wait_until
from web.browsing import Site, Watch, each_view, go

IMAGE = "<img src=x onerror=alert(1)>"
SCRIPT = "</script><script>alert(2)</script>"
PRINTED = r"\033]0;owned\007\033]8;;javascript:alert(3)\007link\033]8;;\007 " + SCRIPT + r" \033[31m" + IMAGE


@pytest.fixture(scope="module")
def hostile(daemon: DaemonProcess) -> int:
    """A job that has failed, and another like it that runs and waits."""
    wishes = {"name": IMAGE, "project": SCRIPT, "tags": [IMAGE], "env": {"EVIL": IMAGE}}
    print_it = f"printf '{PRINTED}\\n'; printf '{PRINTED}\\n' >&2"
    number = daemon.add({"command": f"{print_it}; echo 'RuntimeError: {IMAGE}' >&2; exit 1", **wishes})
    daemon.wait(number)
    running = daemon.add({"command": f"{print_it}; sleep 600 # {SCRIPT}", **wishes})
    daemon.add({"command": "true", "num_gpus": 4, "after": [{"job": running, "kind": "any"}], **wishes})
    wait_until(lambda: daemon.state(running) == "running")
    return number


def assert_inert(page: Page) -> None:
    """Nothing of it became an element; the watch notes dialogs, errors and foreign requests."""
    assert page.locator("img, script:not([src]), iframe, object, a[href^=javascript]").count() == 0
    assert page.locator("[onerror], [onclick], [onload]").count() == 0


def test_it_is_shown_as_text(page: Page, site: Site, hostile: int):
    printed = (".log-scroll", f"link {SCRIPT} {IMAGE}")
    shown = {
        "now": ("main", IMAGE),
        "job/{0}/log": printed,
        "jobs": ("main", IMAGE),
        "job/{0}": ("main", IMAGE),
        "timeline?by=job": None,
        "job/{0}/environment": ("main", IMAGE),
        "jobs?text=%3Cimg": ("main", IMAGE),
        "job/{0}/log?stream=stderr": printed,
        "timeline?by=project&colour=project": ("main", SCRIPT),
        "job/{0}/code": ("main", IMAGE),
        "submit": None,
    }

    views = each_view(page, site, (path.format(hostile) for path in shown))
    for _, text in zip(views, shown.values(), strict=True):
        if text:
            expect(page.locator(text[0])).to_contain_text(text[1])
        assert_inert(page)


def test_a_name_in_an_error_and_in_a_question_is_text(page: Page, site: Site, hostile: int, watch: Watch):
    watch.forgive("4[0-9][0-9]")
    go(page, site, f"job/{hostile}")
    page.get_by_role("button", name="Edit and resubmit").click()
    page.get_by_label("Folder").fill(f"/{IMAGE}")
    page.get_by_role("button", name="Add", exact=True).click()

    expect(page.get_by_role("alert").or_(page.locator(".submit-added")).first).not_to_be_empty()
    assert_inert(page)


def test_an_address_cannot_carry_markup(page: Page, site: Site, hostile: int, watch: Watch):
    watch.forgive("4[0-9][0-9]")
    for path in (f"jobs?text={SCRIPT}&project={IMAGE}&order={IMAGE}", f"job/{IMAGE}", IMAGE, "job/%"):
        page.goto("about:blank")
        page.goto(site.at(path))
        expect(page.locator("main")).not_to_be_empty()
        assert_inert(page)
