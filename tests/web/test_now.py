"""Now: what the machine does at this moment."""

import json
import re
import resource
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from daemon.daemon_process import DaemonProcess
from stories.outside import wait_until
from web.browsing import Site, go, gpu, overlapping, visit


def test_an_empty_queue_says_what_to_type(page: Page, site: Site):
    go(page, site, "now")

    expect(page.get_by_role("heading", name="Nothing has been added yet")).to_be_visible()
    expect(page.get_by_text("dibs add -f commands.txt", exact=True)).to_be_visible()
    page.get_by_role("link", name="fill in the form").click()
    expect(page.get_by_role("heading", name="New jobs")).to_be_visible()


def test_a_card_tells_its_load_memory_heat_and_power_and_their_course(page: Page, site: Site):
    go(page, site, "now")

    tile = gpu(page, 0)
    expect(tile).to_contain_text("NVIDIA H200")
    expect(tile).to_contain_text("97 %")
    expect(tile).to_contain_text("9.0G of 140G")
    expect(tile).to_contain_text("61 °C · 512 W")
    expect(tile.get_by_role("img", name="load of the last ten minutes").locator("path")).to_have_attribute(
        "d", re.compile(r"^M.*L")
    )


def test_a_stranger_on_a_card_is_named_and_a_card_that_tells_nothing_has_question_marks(page: Page, site: Site):
    go(page, site, "now")

    expect(gpu(page, 0)).to_contain_text("python of ann")
    expect(gpu(page, 0)).not_to_contain_text("Xorg")
    expect(gpu(page, 3)).to_contain_text("memory ?")


def test_the_tiles_follow_the_cards(page: Page, site: Site, cards: Path):
    go(page, site, "now")
    expect(gpu(page, 1)).to_contain_text("30 °C")

    world = json.loads(cards.read_text())
    world["gpus"][1]["temperature"] = 83
    _write(cards, world)

    expect(gpu(page, 1)).to_contain_text("83 °C")


def test_a_card_is_drained_and_used_again_from_its_tile(page: Page, site: Site, daemon: DaemonProcess):
    go(page, site, "now")
    tile = gpu(page, 2)

    tile.get_by_role("button", name="Drain").click()
    page.get_by_label("Reason").fill("loud fan")
    page.get_by_role("button", name="Drain it").click()
    expect(tile.locator("header .badge")).to_have_text("drained")
    expect(tile).to_contain_text("loud fan")
    drained = [card["number"] for card in daemon.get("/v1/gpus")["gpus"] if card["state"] == "drained"]
    tile.get_by_role("button", name="Use it again").click()
    expect(tile.get_by_role("button", name="Drain")).to_be_visible()

    assert drained == ["2"]
    assert [card["state"] for card in daemon.get("/v1/gpus")["gpus"] if card["number"] == "2"] == ["free"]


@pytest.mark.parametrize("width", [1440, 1280, 390])
def test_nothing_overlaps_in_the_dialog_that_drains_a_card(site: Site, browser: Browser, width: int):
    error = {"code": "conflict", "message": "the daemon is about to end " * 4, "remedy": "try again in a moment"}
    with visit(site, browser, viewport={"width": width, "height": 800}) as (page, watch):
        page.route("**/v1/gpus/act", lambda route: route.fulfill(status=409, json={"error": error}))
        watch.forgive("409")
        go(page, site, "now")
        gpu(page, 2).get_by_role("button", name="Drain").click()
        dialog = page.get_by_role("dialog", name="Drain GPU 2?")
        found = overlapping(dialog)
        dialog.get_by_role("button", name="Drain it").click()
        expect(dialog.get_by_role("alert")).to_contain_text("about to end")

        assert found + overlapping(dialog) == []
        box, field = dialog.bounding_box(), dialog.get_by_label("Reason").bounding_box()
        assert box and field and field["x"] + field["width"] <= box["x"] + box["width"] <= width


def test_jobs_come_run_wait_with_a_reason_and_fail_without_a_reload(page: Page, site: Site, daemon: DaemonProcess):
    go(page, site, "now")
    expect(page.get_by_role("heading", name="Nothing has been added yet")).to_be_visible()

    first = daemon.add({"command": "sleep 600", "name": "baseline"})
    bad = daemon.add({"command": "exit 3", "name": "typo"})
    daemon.wait(bad)
    wide = daemon.add({"command": "true", "name": "too wide", "num_gpus": 3})

    expect(page.get_by_role("region", name="Running")).to_contain_text("baseline")
    holder = page.get_by_role("article").get_by_role("link", name=f"job {first} (baseline)")
    expect(holder).to_have_attribute("href", f"#/job/{first}")
    waiting = page.get_by_role("region", name="Waiting")
    expect(waiting).to_contain_text("too wide")
    expect(waiting.locator(".job-note")).to_contain_text("3 GPUs")
    later = daemon.add({"command": "true", "name": "later", "hold": True})
    expect(waiting.get_by_role("link", name="later")).to_contain_text("held")
    failed = page.get_by_role("region", name="Failed")
    expect(failed).to_contain_text("typo")
    expect(failed).to_contain_text("exit 3")

    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [first, wide, later]})

    expect(page.get_by_role("region", name="Running")).to_contain_text("Nothing runs.")
    expect(waiting).to_contain_text("Nothing waits.")
    failed.get_by_role("link", name="typo").click()
    expect(page).to_have_url(site.at(f"job/{bad}"))


def test_each_holder_of_a_card_leads_to_its_own_job(page: Page, site: Site, daemon: DaemonProcess):
    task = {"command": "sleep 600", "name": "packed", "share": "1/4", "only": ["1"]}
    first = daemon.add(*({**task, "array": {"task": number}} for number in (1, 2, 3, 4)))
    go(page, site, "now")

    holders = gpu(page, 1).locator(".parts a")

    expect(holders).to_have_text([f"{first}_{number}" for number in (1, 2, 3, 4)])
    for place in range(4):
        expect(holders.nth(place)).to_have_attribute("href", f"#/job/{first + place}")
        expect(holders.nth(place)).to_have_accessible_name(
            re.compile(rf"job {first}_{place + 1} \(packed\) · 1/4 · ")
        )
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [first + place for place in range(4)]})


def test_two_holders_of_a_card_have_a_line_each_that_leads_to_their_own_job(
    page: Page, site: Site, daemon: DaemonProcess
):
    task = {"command": "sleep 600", "name": "halves", "share": "1/2", "only": ["2"]}
    first = daemon.add(*({**task, "array": {"task": number}} for number in (1, 2)))
    go(page, site, "now")

    holders = gpu(page, 2).locator(".holders a")

    expect(holders).to_have_text([f"job {first}_{number} (halves)" for number in (1, 2)])
    for place in range(2):
        expect(holders.nth(place)).to_have_attribute("href", f"#/job/{first + place}")
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [first, first + 1]})


def test_the_queue_is_paused_and_goes_on(page: Page, site: Site, daemon: DaemonProcess):
    daemon.add("true")  # a queue that was never used has no button
    go(page, site, "now")

    page.get_by_role("button", name="Pause the queue").click()
    expect(page.get_by_text("the queue is paused", exact=True)).to_be_visible()
    was_paused = daemon.get("/v1/status")["paused"]
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("button", name="Pause the queue")).to_be_visible()

    assert (was_paused, daemon.get("/v1/status")["paused"]) == (True, False)


def test_what_cannot_be_recorded_is_said_on_every_view_until_it_is_over(
    page: Page, site: Site, daemon: DaemonProcess, tmp_path: Path
):
    number = daemon.add({"command": f"until test -e {tmp_path}/go; do sleep 0.05; done", "num_gpus": 0})
    wait_until(lambda: daemon.state(number) == "running")
    go(page, site, "now")
    banner = page.get_by_role("alert").filter(has_text="Nothing starts and no end is recorded at the moment: ")
    assert daemon.running is not None
    before = resource.prlimit(daemon.running.pid, resource.RLIMIT_FSIZE)

    resource.prlimit(daemon.running.pid, resource.RLIMIT_FSIZE, (0, before[1]))  # as on a full disk
    (tmp_path / "go").touch()
    expect(banner).to_contain_text("File too large")
    page.get_by_role("link", name="Manage").click()
    expect(page.get_by_role("heading", name="Manage")).to_be_visible()
    expect(banner).to_contain_text("File too large")
    resource.prlimit(daemon.running.pid, resource.RLIMIT_FSIZE, before)

    expect(banner).to_have_count(0)
    assert daemon.state(number) == "succeeded"


def _write(cards: Path, world: object) -> None:
    """As a whole: the daemon reads the file at any moment."""
    new = cards.with_suffix(".new")
    new.write_text(json.dumps(world))
    new.rename(cards)
