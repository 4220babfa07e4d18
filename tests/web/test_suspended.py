"""Suspended jobs on the page: a real daemon, and a driver that is a fake."""

import os
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from cuda.machine import FAKE_PROGRAM, GB, FakeMachine
from daemon.daemon_process import DaemonProcess
from stories.outside import make_world, wait_until
from web.browsing import NARROW, Site, cut_controls, each_view, findings, fits, go, gpu, small_targets, visit

SENTENCE = (
    r"is suspended by you since [0-9]{2}:[0-9]{2}, with 10G in the machine's memory;"
    r" dibs resume [0-9]+ lets it go on"
)


class Queue:
    """A daemon on one card of 16 GiB, with programs that hold memory of it until they are killed."""

    def __init__(self, daemon: DaemonProcess, machine: FakeMachine) -> None:
        self.daemon = daemon
        self._machine = machine

    def run(self, name: str, *, gigabytes: int = 10, state: str = "running", **wishes: Any) -> int:
        """A program that is called so, once it is in this state and holds what it wants."""
        ledger = self._machine.folder / name
        words = ["python3", "-S", FAKE_PROGRAM, str(ledger), "--bytes", str(gigabytes * GB)]
        environment = {"PATH": "/usr/bin:/bin", **self._machine.environ}
        number = self.daemon.add(
            {"command": shlex.join(words), "name": name, "project": "vision", **wishes}, environment=environment
        )
        self.wait_for(number, state)
        if state == "running":
            wait_until(ledger.exists)
        return number

    def suspend(self, number: int) -> None:
        self.daemon.post("/v1/jobs/act", {"action": "suspend", "ids": [number]})
        self.wait_for(number, "suspended")

    def wait_for(self, number: int, state: str) -> None:
        wait_until(lambda: self.daemon.state(number) == state, show=lambda: self.daemon.job(number))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> FakeMachine:
    return FakeMachine(tmp_path_factory.mktemp("machine") / "driver")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, machine: FakeMachine) -> Iterator[DaemonProcess]:
    world = make_world(tmp_path_factory.mktemp("daemon"))
    one = DaemonProcess(world)
    del world.environ["DIBS_POOL"]
    world.environ |= machine.environ | {"DIBS_READING_SECONDS": "0.1"}
    one.start()
    yield one
    one.end()
    world.clean_up()


@pytest.fixture
def queue(daemon: DaemonProcess, machine: FakeMachine) -> Iterator[Queue]:
    yield Queue(daemon, machine)
    daemon.post("/v1/jobs/act", {"action": "kill", "filter": {}})
    wait_until(lambda: not daemon.get("/v1/jobs?state=running,suspended")["jobs"])
    machine.use(0)  # programs that are killed leave it in the file


def test_a_job_is_suspended_and_resumed_on_its_page(page: Page, site: Site, queue: Queue):
    train = queue.run("train")
    go(page, site, f"job/{train}")
    story = page.locator(".job-story")
    expect(story).to_have_text(re.compile("^Runs on GPU 0 for "))

    page.get_by_role("button", name="Suspend").click()

    expect(page.locator(".job-head-line .badge")).to_have_text("suspended")
    expect(story).to_have_text(re.compile(SENTENCE))
    expect(page.get_by_role("region", name="course")).to_contain_text(re.compile("ran .* → suspended for "))
    expect(page.get_by_role("region", name="facts")).to_contain_text(re.compile("suspended ?once, .* in all"))
    expect(page.get_by_role("region", name="attempts", exact=True)).to_contain_text("suspended")
    expect(page).to_have_title(re.compile(r"train \(suspended\)"))
    expect(page.get_by_role("button", name="Suspend")).to_have_count(0)

    page.get_by_role("button", name="Resume").click()

    expect(story).to_have_text(re.compile("^Runs on GPU 0 for "))
    expect(page.get_by_role("region", name="course")).to_contain_text(re.compile("suspended .* → runs for "))


def test_the_time_of_a_suspended_job_stands_still(page: Page, site: Site, queue: Queue):
    train = queue.run("train-2")
    queue.suspend(train)
    went = queue.daemon.job(train)["ran_seconds"]
    assert went < 9, "so long that its tenths are not shown"
    go(page, site, "jobs?state=suspended&columns=name,state,seconds,why")
    row = page.get_by_role("row", name="train-2")

    expect(row.locator(".job-took")).to_have_text(f"{went:.1f}s")
    page.wait_for_timeout(2500)  # the page's clock goes on meanwhile
    expect(row.locator(".job-took")).to_have_text(f"{went:.1f}s")
    expect(row).to_contain_text(re.compile("is suspended by you since"))


def test_one_that_made_room_goes_on_by_itself_and_can_be_kept(page: Page, site: Site, queue: Queue):
    train = queue.run("train-3", preemptible=True)
    urgent = queue.run("urgent", urgent=True, gigabytes=12)
    queue.wait_for(train, "suspended")
    go(page, site, f"job/{train}")
    story = page.locator(".job-story")
    expect(story).to_have_text(re.compile(rf"suspended for job {urgent} since .*; waits to resume on GPU 0"))
    expect(page.get_by_role("region", name="facts")).to_contain_text("may be suspended for an urgent job")
    expect(page.get_by_role("button", name="Resume")).to_have_count(0)

    page.get_by_role("button", name="Keep suspended").click()

    expect(story).to_have_text(re.compile(SENTENCE))
    expect(page.get_by_role("button", name="Resume")).to_be_visible()


def test_now_lists_suspended_jobs_and_cards_tell_who_is_suspended_from_them(page: Page, site: Site, queue: Queue):
    train = queue.run("train-4")
    go(page, site, "now")
    expect(page.get_by_role("region", name="Suspended")).to_have_count(0)
    queue.suspend(train)

    listed = page.get_by_role("region", name="Suspended")
    expect(listed).to_contain_text("train-4")
    expect(listed).to_contain_text(re.compile(SENTENCE))
    expect(page.get_by_role("region", name="Waiting")).not_to_contain_text("is suspended")
    expect(gpu(page, 0).locator(".badge")).to_have_text("free")
    expect(gpu(page, 0)).to_contain_text(re.compile(r"suspended from it: job \d+ \(train-4\) for .*, 10\.0G"))
    gpu(page, 0).get_by_role("link", name="train-4").click()
    expect(page).to_have_url(site.at(f"job/{train}"))


def test_a_row_of_many_cards_has_room_for_who_holds_it_and_who_is_suspended_from_it(
    page: Page, site: Site, queue: Queue
):
    train = queue.run("a-long-name-that-" * 8)
    queue.suspend(train)
    holder = queue.run("holder", gigabytes=1)

    def many(route: Route) -> None:
        found = route.fetch().json()
        found["gpus"] = [{**found["gpus"][0], "key": f"card-{number}"} for number in range(9)]
        route.fulfill(json=found)

    page.route("**/v1/gpus", many)
    go(page, site, "now")
    row = page.get_by_role("region", name="GPUs").locator("tbody tr").first
    expect(row.get_by_role("link", name=f"job {train}")).to_be_visible()

    held = row.get_by_role("link", name=f"job {holder} (holder)").bounding_box()
    suspended = row.locator(".gpu-suspended").bounding_box()

    assert held and suspended
    assert held["width"] > 150
    assert suspended["width"] > 150
    assert held["x"] + held["width"] <= suspended["x"]


def test_chosen_jobs_are_suspended_by_buttons_keys_and_the_palette(page: Page, site: Site, queue: Queue):
    train = queue.run("train-5")
    go(page, site, "jobs?state=running,suspended")
    row = page.get_by_role("row", name="train-5")
    row.get_by_role("checkbox").check()
    chosen = page.get_by_role("toolbar", name="chosen jobs")

    chosen.get_by_role("button", name="Suspend").click()
    expect(row.locator(".badge")).to_have_text("suspended")
    expect(page.locator(".toasts")).to_contain_text(f"Job {train} will be suspended in a moment.")
    page.keyboard.press("R")
    expect(row.locator(".badge")).to_have_text("running")
    page.keyboard.press("S")
    expect(row.locator(".badge")).to_have_text("suspended")
    row.get_by_role("checkbox").check()
    page.keyboard.press("Control+k")
    palette = page.get_by_role("combobox", name="job, view or action")
    palette.fill("resume the chosen job")
    page.keyboard.press("Enter")
    expect(row.locator(".badge")).to_have_text("running")
    queue.suspend(train)
    page.keyboard.press("Control+k")
    palette.fill("resume all")
    page.keyboard.press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Resume 1 job").click()
    expect(row.locator(".badge")).to_have_text("running")


def test_a_project_is_suspended_and_resumed_on_manage(page: Page, site: Site, queue: Queue):
    train = queue.run("train-6")
    other = queue.daemon.add({"command": "sleep 600", "project": "speech", "num_gpus": 0})
    queue.wait_for(other, "running")
    go(page, site, "manage")

    page.get_by_role("button", name="Suspend 1 job of vision").click()
    page.get_by_role("dialog").get_by_role("button", name="Suspend 1 job").click()

    queue.wait_for(train, "suspended")
    expect(page.get_by_role("region", name="the queue")).to_contain_text("0 run, 1 suspended")
    assert queue.daemon.state(other) == "running"
    page.get_by_role("button", name="Resume 1 job", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Resume 1 job").click()
    queue.wait_for(train, "running")


def test_the_page_says_why_a_job_was_not_suspended(page: Page, site: Site, queue: Queue):
    train = queue.run("train-8")
    pid = queue.daemon.job(train)["attempts_list"][0]["pid"]
    (program,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split() or [pid]
    os.kill(int(program), signal.SIGSTOP)
    go(page, site, f"job/{train}")

    page.get_by_role("button", name="Suspend").click()

    expect(page.locator(".toasts")).to_contain_text(f"Job {train} runs on: its CUDA process")
    expect(page.locator(".job-story")).to_contain_text("it could not be suspended by you at")
    expect(page.get_by_role("button", name="Suspend")).to_be_visible()


def test_a_new_job_and_one_that_waits_are_made_urgent_or_preemptible(page: Page, site: Site, queue: Queue):
    go(page, site, "submit")
    page.get_by_label("Folder").fill(str(queue.daemon.world.folder.parent))
    page.get_by_label("Commands").fill("true")
    page.get_by_text("More wishes").click()
    page.get_by_label("Suspended for urgent jobs").select_option("it may be")
    page.get_by_label("Suspend preemptible jobs if no GPU is free").check()
    page.get_by_label("Hold it until it is released").check()
    page.get_by_role("button", name="Add", exact=True).click()
    page.locator(".submit-added a").click()
    expect(page).to_have_url(re.compile("#/job/"))
    number = int(page.url.rpartition("/")[2])
    job = queue.daemon.job(number)
    assert (job["urgent"], job["preemptible"]) == (True, True)

    page.get_by_role("button", name="Edit", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("If no GPU is free")).to_have_value("yes")
    dialog.get_by_label("If no GPU is free").select_option("it waits")
    dialog.get_by_label("Suspended for urgent jobs").select_option("never")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)

    job = queue.daemon.job(number)
    assert (job["urgent"], job["preemptible"]) == (False, False)


def test_the_timeline_draws_and_tells_suspended_times(page: Page, site: Site, queue: Queue):
    train = queue.run("train-7")
    queue.suspend(train)
    page.add_init_script(
        """window.stripes = new Set(); const fill = CanvasRenderingContext2D.prototype.fillRect;
        CanvasRenderingContext2D.prototype.fillRect = function (left, top, width, height) {
            if (this.fillStyle instanceof CanvasPattern) stripes.add(Math.round(left + width));
            return fill.call(this, left, top, width, height); };"""
    )
    go(page, site, "timeline?hours=0.02&by=job")
    page.wait_for_function("() => stripes.size > 0")
    page.get_by_text("The same in words").click()
    table = page.get_by_role("table")

    row = table.get_by_role("row", name="train-7")
    expect(table.get_by_role("columnheader", name="suspended")).to_be_visible()
    expect(page.get_by_role("list", name="colours")).to_contain_text("suspended")
    ran = seconds(row.locator("td").nth(2).inner_text())
    page.wait_for_timeout(2000)  # the page's clock goes on meanwhile
    assert [seconds(row.locator("td").nth(column).inner_text()) for column in (2, 3)] == [ran, ran]
    assert seconds(row.locator("td").nth(4).inner_text()) >= 2
    with page.expect_request("**/v1/timeline*", timeout=10_000):  # sooner than it looks by itself
        queue.daemon.post("/v1/jobs/act", {"action": "resume", "ids": [train]})
    queue.wait_for(train, "running")
    wait_until(lambda: seconds(row.locator("td").nth(2).inner_text()) > ran + 1)


def seconds(text: str) -> float:
    found = re.fullmatch(r"(?:(\d+)m ?)?(?:([\d.]+)s)?", text)
    assert found, text
    return 60 * int(found[1] or 0) + float(found[2] or 0)


def test_everybody_can_use_what_is_shown_of_suspended_jobs(site: Site, browser: Browser, axe: str, queue: Queue):
    train = queue.run("train-9")
    queue.suspend(train)
    views = ["now", f"job/{train}", "jobs?columns=name,state,seconds,why", "timeline?hours=0.02", "manage"]
    with visit(site, browser, bypass_csp=True) as (page, _):
        for view in each_view(page, site, views):
            expect(page.locator("main")).to_contain_text("uspended")
            for theme in ("light", "dark"):
                page.emulate_media(color_scheme=theme)
                assert findings(page, axe, theme) == [], view
            page.emulate_media(color_scheme="light")
    with visit(site, browser, viewport=NARROW) as (page, _):
        for view in each_view(page, site, views):
            expect(page.locator("main")).to_contain_text("uspended")
            assert fits(page)["content"] <= fits(page)["window"], view
            assert (small_targets(page), cut_controls(page)) == ([], []), view
