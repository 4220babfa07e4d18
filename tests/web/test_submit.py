"""Submit: a form with the wishes."""

import re

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from daemon.daemon_process import DaemonProcess
from stories.outside import wait_until
from web.browsing import Site, Watch, go


@pytest.fixture
def form(page: Page, site: Site, daemon: DaemonProcess) -> Locator:
    """The form, with a folder in it."""
    go(page, site, "submit")
    form = page.get_by_role("form", name="new jobs")
    form.get_by_label("Folder").fill(str(daemon.world.folder.parent))
    return form


def test_several_lines_are_several_jobs(page: Page, form: Locator, daemon: DaemonProcess):
    form.get_by_label("Name", exact=True).fill("sweep")
    form.get_by_label("Output file").fill("out-%j.txt")
    form.get_by_label("Commands").fill("echo one\n# not this\necho two\necho three")
    expect(form.locator("output")).to_have_text("3 jobs")
    form.get_by_label("Priority").fill("5")

    form.get_by_role("button", name="Add", exact=True).click()

    expect(form.locator(".submit-added")).to_contain_text("Added 3 jobs:")
    links = form.locator(".submit-added a")
    expect(links).to_have_count(3)
    numbers = [int(text.split()[1]) for text in links.all_inner_texts()]
    jobs = [daemon.job(number) for number in numbers]
    assert [job["command"] for job in jobs] == ["echo one", "echo two", "echo three"]
    assert {(job["name"], job["priority"]) for job in jobs} == {("sweep", 5)}
    daemon.wait(*numbers)
    written = daemon.world.folder.parent / f"out-{numbers[1]}.txt"
    wait_until(written.exists)
    assert written.read_text() == "two\n"


def test_a_dry_run_says_where_and_when_and_adds_nothing(page: Page, form: Locator, daemon: DaemonProcess):
    before = daemon.get("/v1/jobs")["total"]
    form.get_by_label("Commands").fill("true\ntrue")

    form.get_by_role("button", name="Dry run").click()
    prospects = page.get_by_role("region", name="dry run")
    expect(prospects).to_contain_text("If you added them now")
    expect(prospects).to_contain_text("now on GPU")
    form.get_by_label("GPUs", exact=True).fill("4")
    expect(prospects).to_have_count(0)
    form.get_by_role("button", name="Dry run").click()
    expect(prospects).to_contain_text("4 GPUs")

    assert daemon.get("/v1/jobs")["total"] == before


def test_what_cannot_be_read_is_said_at_its_field(page: Page, form: Locator):
    form.get_by_label("Commands").fill("true")
    form.get_by_label("Time limit").fill("soon")

    form.get_by_role("button", name="Add", exact=True).click()

    expect(form.get_by_label("Time limit")).to_be_focused()
    expect(form.get_by_label("Time limit")).to_have_attribute("aria-invalid", "true")
    expect(form.get_by_role("alert")).to_contain_text("One field cannot be read")
    form.get_by_label("Time limit").fill("2h")
    expect(form.get_by_label("Time limit")).to_have_attribute("aria-invalid", "false")


def test_an_image_is_asked_for_in_the_form(page: Page, form: Locator, daemon: DaemonProcess, watch: Watch):
    """Podman is there, the image is not, and it may not be pulled: the daemon was asked for a container."""
    watch.forgive("4[0-9][0-9]")
    before = daemon.get("/v1/jobs")["total"]
    form.get_by_label("Commands").fill("python train.py")
    form.get_by_label("GPUs", exact=True).fill("0")  # the cards of these tests are no real ones
    form.get_by_text("More wishes").click()
    form.get_by_label("Container image").fill("no/such")
    form.get_by_label("Container engine").select_option("podman")
    form.get_by_label("Pull the image").select_option("never")

    form.get_by_role("button", name="Add", exact=True).click()

    expect(form.get_by_role("alert")).to_contain_text("no/such is not here, and may not be pulled")
    assert daemon.get("/v1/jobs")["total"] == before


@pytest.mark.parametrize(
    ("label", "text", "sentence"),
    [
        ("GPUs", "9", "9 GPUs"),
        ("Only these GPUs", "77", "GPU 77"),
        ("GPU model", "a100", "a100"),
        ("After", "9999", "cannot find"),
        ("Metrics in the output", "(", "cannot use the expression"),
    ],
)
def test_what_the_daemon_refuses_is_said_in_its_words_beside_the_field(
    page: Page, form: Locator, watch: Watch, label: str, text: str, sentence: str
):
    watch.forgive("4[0-9][0-9]")
    form.get_by_label("Commands").fill("true")
    form.get_by_label("Priority").fill("3")
    form.get_by_text("More wishes").click()
    field = form.get_by_label(label, exact=True)
    field.fill(text)

    form.get_by_role("button", name="Add", exact=True).click()

    expect(form.get_by_role("alert")).to_contain_text(sentence)
    expect(field).to_be_focused()
    expect(field).to_have_accessible_description(re.compile(sentence))
    expect(field).to_have_value(text)
    expect(form.get_by_label("Commands")).to_have_value("true")
    expect(form.get_by_label("Priority")).to_have_value("3")
    field.fill("")
    expect(field).to_have_attribute("aria-invalid", "false")


def test_nothing_to_add_is_said(form: Locator):
    form.get_by_label("Folder").fill("")
    form.get_by_role("button", name="Add", exact=True).click()

    expect(form.get_by_label("Commands")).to_be_focused()
    expect(form.get_by_role("alert")).to_contain_text("Missing: ")
    expect(form.get_by_role("alert")).not_to_contain_text("cannot be read")


def test_a_draft_is_kept_while_the_user_looks_elsewhere(page: Page, form: Locator):
    form.get_by_label("Commands").fill("python train.py")
    form.get_by_label("Priority").fill("3")

    page.get_by_role("link", name="Now", exact=True).click()
    expect(page.get_by_role("heading", name="New jobs")).to_have_count(0)
    page.get_by_role("link", name="Submit", exact=True).click()

    expect(form.get_by_label("Commands")).to_have_value("python train.py")
    expect(form.get_by_label("Priority")).to_have_value("3")


def test_a_whole_script_is_one_job(page: Page, form: Locator, daemon: DaemonProcess):
    form.get_by_label("Commands").fill("a=1\necho $a")
    form.get_by_label("The whole text is one job").check()

    form.get_by_label("Script").press("Control+Enter")

    form.locator(".submit-added a").click()
    expect(page.locator("h1 + .badge")).to_have_text("succeeded")
    expect(page.locator(".log-scroll")).to_contain_text("1")


def test_a_folder_that_comes_late_does_not_come_between_what_is_typed(
    page: Page, site: Site, daemon: DaemonProcess
):
    like = daemon.add({"command": "true", "workdir": str(daemon.world.folder.parent)})
    held: list[Route] = []
    page.route("**/v1/jobs?limit=100", lambda route: held.append(route))
    go(page, site, "submit")
    form = page.get_by_role("form", name="new jobs")
    folder = form.get_by_label("Folder")
    folder.focus()

    wait_until(lambda: page.evaluate("1") and held)
    held.pop().continue_()
    expect(form.get_by_label("Environment")).to_have_value(str(like))
    folder.press_sequentially("/tmp")

    expect(folder).to_have_value("/tmp")
    folder.clear()
    folder.blur()
    expect(folder).to_have_value(str(daemon.world.folder.parent))


def test_the_environment_and_the_folder_are_those_of_an_earlier_job(page: Page, site: Site, daemon: DaemonProcess):
    like = daemon.add({"command": "true", "name": "pattern", "workdir": str(daemon.world.folder.parent)})
    daemon.wait(like)
    go(page, site, "submit")
    form = page.get_by_role("form", name="new jobs")
    form.get_by_label("Environment").select_option(str(like))
    form.get_by_label("Commands").fill("echo ledger=$LEDGER; pwd")
    expect(form.get_by_label("Folder")).to_have_value(str(daemon.world.folder.parent))

    form.get_by_role("button", name="Add", exact=True).click()

    form.locator(".submit-added a").click()
    expect(page.locator(".log-scroll")).to_contain_text(f"ledger={daemon.world.ledger.path}")
    expect(page.locator(".log-scroll")).to_contain_text(str(daemon.world.folder.parent))
