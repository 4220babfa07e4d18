"""The table of jobs as people work in it: its columns, its order, its views, and many jobs at once."""

import csv
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from daemon.daemon_process import DaemonProcess
from stories.outside import wait_until
from web.browsing import NARROW, Site, fits, go, visit
from web.sweeping import BOWL, LOSS, begin, finish, values


@pytest.fixture(scope="module")
def jobs(daemon: DaemonProcess) -> Iterator[list[int]]:
    """Four trials of a sweep (1 to 4), and eight jobs that wait (5 to 12)."""
    finish(daemon, begin(daemon, BOWL, values("lr", "0.1", "0.01"), values("layers", "2", "1"), metrics=LOSS))
    daemon.post("/v1/pause", {})
    daemon.add(
        *(
            {
                "command": f"true {number}",
                "name": f"wait-{number}",
                "project": "ab"[number % 2],
                "tags": ["deep"] if number == 5 else [],
                "priority": number % 3,
            }
            for number in range(5, 13)
        )
    )
    yield list(range(5, 13))
    daemon.post("/v1/jobs/act", {"action": "kill", "filter": {}})


def shown(page: Page) -> list[int]:
    return [int(text) for text in page.locator(".job-rows .job-row a").all_inner_texts()]


def wait_for(page: Page, numbers: list[int]) -> None:
    wait_until(lambda: shown(page) == numbers, show=lambda: shown(page))


def header(page: Page, name: str) -> Locator:
    return page.get_by_role("columnheader", name=name, exact=True)


def heads(page: Page) -> list[str]:
    return [text.rstrip(" ↑↓") for text in page.locator(".job-head [role=columnheader]").all_inner_texts()][1:]


def menu(page: Page, name: str) -> Locator:
    page.locator("summary", has_text=name).click()
    return page.locator(".menu-body")


def box(page: Page, job: int) -> Locator:
    return page.get_by_role("checkbox", name=f"choose job {job}", exact=True)


def test_columns_are_chosen_ordered_and_sorted_by_and_the_address_has_the_view(
    page: Page, site: Site, jobs: list[int]
):
    go(page, site, "jobs")
    wait_for(page, list(range(12, 0, -1)))
    assert heads(page) == ["#", "name", "project", "state", "GPU", "took", "when"]

    columns = menu(page, "Columns")
    for name in ("project", "GPU", "took", "when"):
        columns.get_by_label(name, exact=True).uncheck()
    for name in ("priority", "tags", "parameter lr", "metric loss"):
        columns.get_by_label(name, exact=True).check()
    columns.get_by_role("button", name="move priority left").click()
    page.keyboard.press("Escape")
    expect(columns).to_have_count(0)
    assert heads(page) == ["#", "name", "priority", "state", "tags", "lr", "loss"]
    header(page, "loss").get_by_role("button").click()
    wait_for(page, [4, 3, 2, 1, *range(12, 4, -1)])
    expect(header(page, "loss")).to_have_attribute("aria-sort", "ascending")
    header(page, "loss").get_by_role("button").click()
    wait_for(page, [1, 2, 3, 4, *range(12, 4, -1)])
    expect(page.locator(".job-row").nth(1)).to_contain_text("1.2")

    page.get_by_label("search").fill("wait-")
    header(page, "priority").get_by_role("button").click()
    wait_for(page, [5, 8, 11, 7, 10, 6, 9, 12])

    page.reload()
    wait_for(page, [5, 8, 11, 7, 10, 6, 9, 12])
    assert heads(page) == ["#", "name", "priority", "state", "tags", "lr", "loss"]
    expect(header(page, "priority")).to_have_attribute("aria-sort", "descending")
    expect(page.locator(".job-row").nth(1)).to_contain_text("deep")


def test_each_column_shows_what_the_job_has(page: Page, site: Site, jobs: list[int]):
    columns = "user,priority,tags,why,params,metrics,metric.loss,param.lr"
    go(page, site, f"jobs?columns={columns}&order=oldest")
    wait_for(page, list(range(1, 13)))

    def cell(job: int, column: str) -> Locator:
        row = page.locator(".job-rows .job-row").filter(has=box(page, job))
        return row.get_by_role("cell").nth(2 + columns.split(",").index(column))

    for job, column, text in (
        (1, "user", site.session["user"]),
        (1, "params", re.compile(r"lr=0\.1\b.*layers=2|layers=2.*lr=0\.1")),
        (1, "metrics", "loss=1.2"),
        (1, "metric.loss", "1.2"),
        (1, "param.lr", "0.1"),
        (1, "why", ""),
        (5, "priority", "2"),
        (5, "tags", "deep"),
        (5, "why", "waits: the queue is paused"),
        (5, "metrics", ""),
    ):
        expect(cell(job, column)).to_have_text(text)


def test_a_view_has_a_name_in_this_browser(page: Page, site: Site, jobs: list[int]):
    go(page, site, "jobs?columns=name,tags&order=name&text=wait-1")
    wait_for(page, [10, 11, 12])

    views = menu(page, "Views")
    views.get_by_role("button", name="Save").click()
    expect(views).to_contain_text("Give the view a name.")
    views.get_by_label("This view, by name").fill("  tens  ")
    views.get_by_role("button", name="Save").click()
    expect(views.get_by_role("link", name="tens")).to_have_attribute("aria-current", "true")

    go(page, site, "jobs")
    page.reload()
    wait_for(page, list(range(12, 0, -1)))
    menu(page, "Views").get_by_role("link", name="tens").click()
    wait_for(page, [10, 11, 12])
    assert heads(page) == ["#", "name", "tags"]
    page.get_by_role("button", name="forget the view tens").click()
    expect(page.get_by_role("link", name="tens")).to_have_count(0)


def test_what_is_shown_is_had_as_csv(page: Page, site: Site, jobs: list[int]):
    go(page, site, "jobs?columns=state,param.lr,metric.loss&order=metric.loss&state=succeeded")
    wait_for(page, [4, 3, 2, 1])

    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV").click()

    assert saved.value.suggested_filename == "jobs.csv"
    with open(saved.value.path(), newline="") as file:
        assert list(csv.reader(file)) == [
            ["id", "state", "param.lr", "metric.loss"],
            ["4", "succeeded", "0.01", "0.1"],
            ["3", "succeeded", "0.01", "0.2"],
            ["2", "succeeded", "0.1", "1.1"],
            ["1", "succeeded", "0.1", "1.2"],
        ]


def test_a_range_is_chosen_with_shift_and_all_that_match_are_changed_in_one_call(
    page: Page, site: Site, daemon: DaemonProcess, jobs: list[int]
):
    go(page, site, "jobs")
    wait_for(page, list(range(12, 0, -1)))
    toolbar = page.get_by_role("toolbar")
    calls: list[str] = []
    page.on("request", lambda one: calls.append(one.post_data or "") if one.url.endswith("/act") else None)

    box(page, 11).click()
    box(page, 8).click(modifiers=["Shift"])
    expect(toolbar).to_contain_text("4 jobs chosen")
    page.get_by_label("Priority").fill("soon")
    toolbar.get_by_role("button", name="Set").click()
    expect(toolbar).to_contain_text("It is a whole number")
    page.get_by_label("Priority").fill("7")
    toolbar.get_by_role("button", name="Set").click()
    wait_until(lambda: [daemon.job(job)["priority"] for job in range(7, 13)] == [1, 7, 7, 7, 7, 0])
    assert len(calls) == 1

    page.get_by_role("checkbox", name="choose all that match").check()
    expect(toolbar).to_contain_text("All 12 jobs that match")
    box(page, 12).click()
    expect(toolbar).to_contain_text("All 11 jobs that match")
    late = daemon.add({"command": "true", "name": "late", "project": "late"})
    toolbar.get_by_role("button", name="Hold").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Hold 7 jobs?")
    expect(dialog).to_contain_text("4 succeeded")
    dialog.get_by_role("button", name="Hold 7 jobs").click()

    expect(page.locator(".toasts")).to_contain_text("7 jobs held.")
    expect(page.locator(".toasts")).to_contain_text("Left alone: 4 succeeded.")
    assert [daemon.state(job) for job in (*jobs, late)] == [*["held"] * 7, "queued", "queued"]
    assert len(calls) == 3  # a dry run, and the act
    daemon.post("/v1/jobs/act", {"action": "release", "filter": {}})
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [late]})
    daemon.post("/v1/clean", {"project": "late"})


def test_the_keyboard_chooses_a_range_too(page: Page, site: Site, jobs: list[int]):
    go(page, site, "jobs?text=wait-&order=oldest")
    wait_for(page, jobs)

    for key in ("j", "x", "j", "j", "X"):
        page.keyboard.press(key)

    expect(page.get_by_role("toolbar")).to_contain_text("3 jobs chosen")
    for job in (6, 7, 8):
        expect(box(page, job)).to_be_checked()


SAID = """() => {
  window.said = [];
  window.Notification = class { constructor(text) { window.said.push(text) } close() {} };
  window.Notification.permission = "default";
  window.Notification.requestPermission = async () => (window.Notification.permission = PERMISSION);
}"""


@pytest.mark.parametrize("permission", ["granted", "denied"])
def test_the_end_of_chosen_jobs_is_told_by_the_browser_or_in_the_page(
    page: Page, site: Site, daemon: DaemonProcess, jobs: list[int], permission: str
):
    go(page, site, "jobs?text=told&order=oldest")
    first = daemon.add(*({"command": "true", "name": "told", "num_gpus": 0} for _ in range(2)))
    wait_for(page, [first, first + 1])
    page.evaluate(SAID.replace("PERMISSION", f"'{permission}'"))

    box(page, first).click()
    page.get_by_role("button", name="Tell me").click()
    toasts = page.locator(".toasts")
    expect(toasts).to_contain_text("The browser tells you" if permission == "granted" else "This page says it")
    # A tab in the background still hears of it.
    page.evaluate("""() => {
      Object.defineProperty(document, 'hidden', {get: () => true, configurable: true});
      document.dispatchEvent(new Event('visibilitychange'));
    }""")
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [first, first + 1]})

    sentence = f"Job {first} (told) was cancelled."
    if permission == "granted":
        wait_until(lambda: page.evaluate("window.said") == [sentence], show=lambda: page.evaluate("window.said"))
    else:
        expect(toasts).to_contain_text(sentence)
        assert page.evaluate("window.said") == []
    daemon.post("/v1/clean", {"state": ["cancelled"]})


def test_on_a_phone_a_job_has_two_lines_and_chosen_columns_scroll_sideways(
    browser: Browser, site: Site, jobs: list[int]
):
    with visit(site, browser, viewport=NARROW) as (page, _):
        go(page, site, "jobs")
        wait_until(lambda: shown(page)[:1] == [12])
        assert page.locator(".job-head").count() == 0
        page.get_by_role("checkbox", name="choose all that match").check()
        expect(page.get_by_role("toolbar")).to_contain_text("All 12 jobs")
        columns = menu(page, "Columns")
        columns.get_by_label("folder", exact=True).check()
        expect(columns).to_be_in_viewport()
        page.keyboard.press("Escape")
        expect(page.locator(".job-head")).to_have_count(1)
        page.locator(".job-scroll").evaluate("one => { one.scrollLeft = 150 }")
        wait_until(lambda: page.locator(".job-head").evaluate("one => one.scrollLeft") == 150)
        assert fits(page)["content"] <= fits(page)["window"]
        expect(page).to_have_url(re.compile("columns="))
