"""Jobs: the table, its filters, and what can be done to many at once."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import APIResponse, Locator, Page, Route, expect

from daemon.daemon_process import DaemonProcess
from stories.outside import wait_until
from web.browsing import Site, go


@pytest.fixture(scope="module")
def ended(daemon: DaemonProcess) -> dict[str, int]:
    """Jobs that are over, by name."""
    first = daemon.add(
        {"command": "true", "name": "alpha", "project": "vision"},
        {"command": "echo hello", "name": "beta", "project": "language"},
        {"command": "exit 1", "name": "gamma", "project": "vision"},
    )
    daemon.wait(first, first + 1, first + 2)
    return {"alpha": first, "beta": first + 1, "gamma": first + 2}


@pytest.fixture
def waiting(daemon: DaemonProcess) -> Iterator[list[int]]:
    """Three jobs that wait, for as long as a test lasts."""
    daemon.post("/v1/pause", {})
    first = daemon.add(*({"command": "true", "name": f"wait-{number}"} for number in range(3)))
    yield [first, first + 1, first + 2]
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [first, first + 1, first + 2]})
    daemon.post("/v1/unpause", {})


@pytest.fixture
def states(daemon: DaemonProcess, waiting: list[int]) -> Callable[[], list[str]]:
    return lambda: [daemon.state(number) for number in waiting]


def rows(page: Page) -> Locator:
    return page.locator(".job-rows .job-row")


def shown(page: Page) -> list[str]:
    """The numbers in the table, from the top."""
    return [row.split("\n")[0] for row in page.locator(".job-rows .job-row a").all_inner_texts()]


def chips(page: Page) -> Locator:
    return page.get_by_role("group", name="state")


def choose(page: Page, *jobs: int) -> None:
    for job in jobs:
        page.get_by_role("checkbox", name=f"choose job {job}", exact=True).check()


def test_jobs_are_filtered_by_state_project_and_text(page: Page, site: Site, ended: dict[str, int]):
    go(page, site, "jobs")
    expect(rows(page)).to_have_count(3)

    chips(page).get_by_role("button", name="Failed").click()
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("gamma")
    expect(rows(page)).to_contain_text("failed")
    chips(page).get_by_role("button", name="All").click()
    page.get_by_label("project").select_option("vision")
    expect(rows(page)).to_have_count(2)
    page.get_by_label("project").select_option("every project")
    page.get_by_label("user").select_option("every user")
    expect(rows(page)).to_have_count(3)
    go(page, site, "jobs?user=nobody-else")
    expect(rows(page)).to_have_count(0)
    go(page, site, "jobs")
    page.get_by_label("search").fill("HELLO")
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("beta")

    page.reload()
    expect(page.get_by_label("search")).to_have_value("HELLO")
    expect(rows(page)).to_have_count(1)
    page.get_by_label("search").fill("nothing like it")
    expect(page.get_by_text("No job matches.")).to_be_visible()


def test_jobs_are_sorted(page: Page, site: Site, ended: dict[str, int]):
    go(page, site, "jobs")
    newest = [str(ended[name]) for name in ("gamma", "beta", "alpha")]
    expect(rows(page)).to_have_count(3)
    wait_until(lambda: shown(page) == newest, show=lambda: shown(page))

    page.get_by_label("order").select_option("oldest first")

    wait_until(lambda: shown(page) == newest[::-1], show=lambda: shown(page))
    page.get_by_label("order").select_option("by name")
    wait_until(lambda: shown(page) == newest[::-1], show=lambda: shown(page))


def test_many_are_held_released_prioritised_and_killed_at_once(
    page: Page, site: Site, daemon: DaemonProcess, waiting: list[int], states: Callable[[], list[str]]
):
    first, second, third = waiting
    go(page, site, "jobs?state=queued,held")
    toolbar = page.get_by_role("toolbar", name="chosen jobs")
    choose(page, first, second)
    expect(toolbar).to_contain_text("2 jobs chosen")

    toolbar.get_by_role("button", name="Hold").click()
    wait_until(lambda: states() == ["held", "held", "queued"], show=states)
    expect(rows(page).filter(has_text="held")).to_have_count(2)

    choose(page, first, second)
    toolbar.get_by_role("button", name="Release").click()
    wait_until(lambda: states() == ["queued"] * 3, show=states)

    expect(toolbar).to_have_count(0)
    choose(page, third)
    toolbar.get_by_label("Priority").fill("7")
    toolbar.get_by_role("button", name="Set").click()
    wait_until(lambda: daemon.job(third)["priority"] == 7)
    page.get_by_label("order").select_option("in their turn")
    wait_until(lambda: shown(page) == [str(third), str(first), str(second)], show=lambda: shown(page))

    choose(page, first, third)
    toolbar.get_by_role("button", name="Kill").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert states() == ["queued"] * 3
    toolbar.get_by_role("button", name="Kill").click()
    page.get_by_role("dialog").get_by_role("button", name="Kill 2 jobs").click()
    wait_until(lambda: states() == ["cancelled", "queued", "cancelled"], show=states)
    expect(page.get_by_text("2 jobs killed.")).to_be_visible()


def test_failed_jobs_are_tried_again_and_what_cannot_be_is_said(
    page: Page, site: Site, daemon: DaemonProcess, ended: dict[str, int]
):
    go(page, site, "jobs")
    choose(page, ended["gamma"])

    page.get_by_role("toolbar").get_by_role("button", name="Retry").click()
    expect(page.get_by_text(f"Job {ended['gamma']} queued again.")).to_be_visible()
    wait_until(lambda: daemon.job(ended["gamma"])["attempts"] == 2)
    choose(page, ended["alpha"])
    page.get_by_role("toolbar").get_by_role("button", name="Hold").click()

    expect(page.locator(".toast-error")).to_contain_text(re.compile("over|ended|succeeded"))


def test_a_job_is_dragged_to_another_place_in_the_queue(
    page: Page, site: Site, daemon: DaemonProcess, waiting: list[int]
):
    first, second, third = waiting
    go(page, site, "jobs?state=queued&order=turn")
    expect(rows(page)).to_have_count(3)

    rows(page).filter(has_text="wait-2").drag_to(
        rows(page).filter(has_text="wait-0"), target_position={"x": 300, "y": 5}
    )

    wait_until(
        lambda: shown(page) == [str(third), str(first), str(second)],
        show=lambda: shown(page),
    )
    turn = [job["id"] for job in daemon.get("/v1/jobs?state=queued&order=turn")["jobs"]]
    assert turn == [third, first, second]


def turn(daemon: DaemonProcess) -> list[int]:
    return [job["id"] for job in daemon.get("/v1/jobs?state=queued&order=turn")["jobs"]]


def test_a_job_is_dragged_before_and_behind_the_next_row_and_to_the_end(
    page: Page, site: Site, daemon: DaemonProcess, waiting: list[int]
):
    first, second, third = waiting
    go(page, site, "jobs?state=queued&order=turn")
    expect(rows(page)).to_have_count(3)
    row = rows(page).filter(has_text="wait-0")

    row.drag_to(rows(page).filter(has_text="wait-1"), target_position={"x": 300, "y": 35})
    wait_until(lambda: turn(daemon) == [second, first, third], show=lambda: turn(daemon))
    wait_until(lambda: shown(page) == [str(second), str(first), str(third)], show=lambda: shown(page))
    row.drag_to(rows(page).filter(has_text="wait-2"), target_position={"x": 300, "y": 35})
    wait_until(lambda: turn(daemon) == [second, third, first], show=lambda: turn(daemon))


def test_a_job_is_dragged_above_a_more_urgent_one_only_after_the_change_was_told(
    page: Page, site: Site, daemon: DaemonProcess, waiting: list[int]
):
    first, second, third = waiting
    daemon.call("PATCH", f"/v1/jobs/{first}", {"priority": 5})
    go(page, site, "jobs?state=queued&order=turn")
    expect(rows(page)).to_have_count(3)
    row = rows(page).filter(has_text="wait-2")
    dialog = page.get_by_role("dialog")

    row.drag_to(rows(page).filter(has_text="wait-0"), target_position={"x": 300, "y": 5})
    expect(dialog).to_contain_text("its priority becomes 5 instead of 0")
    dialog.get_by_role("button", name="Cancel").click()
    assert (turn(daemon), daemon.job(third)["priority"]) == ([first, second, third], 0)
    row.drag_to(rows(page).filter(has_text="wait-0"), target_position={"x": 300, "y": 5})
    dialog.get_by_role("button", name="Move").click()

    wait_until(lambda: turn(daemon) == [third, first, second], show=lambda: turn(daemon))
    assert daemon.job(third)["priority"] == 5


def test_a_drag_is_given_up_with_escape_and_a_click_still_opens_the_job(
    page: Page, site: Site, daemon: DaemonProcess, waiting: list[int]
):
    first, second, third = waiting
    go(page, site, "jobs?state=queued&order=turn")
    expect(rows(page)).to_have_count(3)
    boxes = [row.bounding_box() for row in rows(page).all()]
    assert boxes[0] and boxes[2]

    page.mouse.move(boxes[0]["x"] + 300, boxes[0]["y"] + 10)
    page.mouse.down()
    page.mouse.move(boxes[2]["x"] + 300, boxes[2]["y"] + 30, steps=4)
    expect(rows(page).nth(2)).to_have_class(re.compile("is-over-behind"))
    page.keyboard.press("Escape")
    expect(page.locator(".is-over-behind")).to_have_count(0)
    page.mouse.up()
    page.wait_for_timeout(300)

    expect(page).to_have_url(re.compile("#/jobs"))
    assert turn(daemon) == [first, second, third]
    page.mouse.click(boxes[0]["x"] + 300, boxes[0]["y"] + 10)
    expect(page).to_have_url(site.at(f"job/{first}"))


def test_a_drag_to_the_edge_scrolls_to_places_that_were_not_in_sight(
    page: Page, site: Site, daemon: DaemonProcess, waiting: list[int]
):
    more = daemon.add(*({"command": "true", "name": f"more-{number}"} for number in range(60)))
    go(page, site, "jobs?state=queued&order=turn")
    expect(rows(page).first).to_contain_text("wait-0")
    place = page.locator(".job-scroll").bounding_box()
    assert place

    page.mouse.move(place["x"] + 300, place["y"] + 10)
    page.mouse.down()
    page.mouse.move(place["x"] + 300, place["y"] + place["height"] - 4, steps=4)
    expect(rows(page).filter(has_text="more-59")).to_have_class(re.compile("is-over-behind"))
    page.mouse.up()

    wait_until(lambda: turn(daemon)[-1] == waiting[0], show=lambda: turn(daemon))
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": list(range(more, more + 60))})


def test_a_job_is_moved_by_keys_and_buttons_and_a_change_of_its_priority_is_asked_for(
    page: Page, site: Site, daemon: DaemonProcess, waiting: list[int]
):
    first, second, third = waiting
    daemon.call("PATCH", f"/v1/jobs/{first}", {"priority": 5})
    go(page, site, "jobs?state=queued&order=turn")
    expect(rows(page)).to_have_count(3)

    page.keyboard.press("j")
    page.keyboard.press("J")
    wait_until(lambda: turn(daemon) == [first, third, second], show=lambda: turn(daemon))
    wait_until(lambda: shown(page) == [str(first), str(third), str(second)], show=lambda: shown(page))
    expect(page.locator(".job-row.is-current")).to_contain_text("wait-1")
    choose(page, second)
    bar = page.get_by_role("toolbar", name="chosen jobs")
    bar.get_by_role("button", name="To the top").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("its priority becomes 5 instead of 0")
    dialog.get_by_role("button", name="Cancel").click()
    assert turn(daemon) == [first, third, second]
    bar.get_by_role("button", name="To the top").click()
    dialog.get_by_role("button", name="Move").click()
    wait_until(lambda: turn(daemon) == [second, first, third], show=lambda: turn(daemon))
    assert daemon.job(second)["priority"] == 5
    wait_until(lambda: shown(page) == [str(second), str(first), str(third)], show=lambda: shown(page))
    bar.get_by_role("button", name="To the bottom").click()
    dialog.get_by_role("button", name="Move").click()
    wait_until(lambda: turn(daemon) == [first, third, second], show=lambda: turn(daemon))


def test_a_new_job_appears_without_a_reload(page: Page, site: Site, daemon: DaemonProcess):
    go(page, site, "jobs?text=newcomer")
    expect(page.get_by_text("No job matches.")).to_be_visible()

    number = daemon.add({"command": "true", "name": "newcomer"})

    expect(rows(page)).to_contain_text("newcomer")
    expect(rows(page)).to_contain_text("succeeded")
    daemon.wait(number)


def test_the_cursor_belongs_to_a_job_and_new_jobs_wait_at_the_top(
    page: Page, site: Site, daemon: DaemonProcess, waiting: list[int]
):
    go(page, site, "jobs?text=wait-")
    expect(rows(page).first).to_contain_text("wait-2")
    page.keyboard.press("j")
    current = page.locator(".job-row.is-current")
    expect(current).to_contain_text("wait-1")
    before = current.bounding_box()

    late = daemon.add(*({"command": "true", "name": f"wait-late-{number}"} for number in range(3)))

    button = page.get_by_role("button", name="3 new jobs")
    expect(button).to_be_visible()
    page.keyboard.press("x")
    expect(page.get_by_role("checkbox", name=f"choose job {waiting[1]}", exact=True)).to_be_checked()
    expect(current).to_contain_text("wait-1")
    assert before is not None
    button.click()
    expect(rows(page).first).to_contain_text("wait-late-2")
    expect(current).to_contain_text("wait-1")
    page.get_by_role("link", name=str(waiting[1]), exact=True).click()
    expect(page.locator(".job-story")).to_be_visible()
    page.go_back()
    expect(current).to_contain_text("wait-1")
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [late, late + 1, late + 2]})


def test_rows_stay_where_they_are_when_a_job_comes_above_them(page: Page, site: Site, daemon: DaemonProcess):
    first = daemon.add(*({"command": "true", "name": f"stays-{number:02}", "hold": True} for number in range(60)))
    go(page, site, "jobs?order=name&text=stays-")
    expect(page.locator(".job-table")).to_have_attribute("aria-rowcount", "61")
    page.locator(".job-scroll").evaluate("one => { one.scrollTop = 900 }")
    row = page.get_by_role("row", name="stays-30")
    expect(row).to_be_visible()
    before = row.bounding_box()

    daemon.add({"command": "true", "name": "stays-", "hold": True})

    expect(page.locator(".job-table")).to_have_attribute("aria-rowcount", "62")
    assert row.bounding_box() == before
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": list(range(first, first + 61))})


def test_the_cursor_belongs_to_the_first_job_also_before_a_key_was_pressed(
    page: Page, site: Site, daemon: DaemonProcess, waiting: list[int]
):
    go(page, site, "jobs?state=queued&order=turn")
    expect(page.locator(".job-row.is-current")).to_contain_text("wait-0")

    urgent = daemon.add({"command": "true", "name": "urgent", "priority": 9})
    expect(rows(page).first).to_contain_text("urgent")
    page.keyboard.press("x")

    expect(page.get_by_role("checkbox", name=f"choose job {waiting[0]}", exact=True)).to_be_checked()
    expect(page.get_by_role("toolbar")).to_contain_text("1 job chosen")
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [urgent]})


def test_an_answer_that_comes_late_does_not_replace_a_newer_one(
    page: Page, site: Site, daemon: DaemonProcess, waiting: list[int]
):
    first, second, third = waiting
    go(page, site, "jobs?state=queued&order=turn")
    expect(rows(page)).to_have_count(3)
    late: list[tuple[Route, APIResponse]] = []

    def keep_the_first(route: Route) -> None:
        if late:
            route.continue_()
        else:
            late.append((route, route.fetch()))

    page.route("**/v1/jobs?*", keep_the_first)
    daemon.call("PATCH", f"/v1/jobs/{third}", {"name": "a newer name"})
    wait_until(lambda: page.wait_for_timeout(20) or late)
    choose(page, third)
    page.get_by_role("button", name="To the top").click()
    wait_until(lambda: shown(page) == [str(third), str(first), str(second)], show=lambda: shown(page))

    route, answer = late[0]
    with page.expect_request_finished(lambda request: request == route.request):
        route.fulfill(response=answer)
    page.evaluate("() => new Promise(requestAnimationFrame)")

    assert shown(page) == [str(third), str(first), str(second)]


def test_orders_in_which_only_some_jobs_have_a_place_say_so(page: Page, site: Site, ended: dict[str, int]):
    go(page, site, "jobs")
    page.get_by_label("order").select_option("in their turn")
    expect(page.get_by_text("Only queued jobs have a turn")).to_be_visible()
    page.get_by_label("order").select_option("last ended first")
    expect(page.get_by_text("Only jobs that have ended")).to_be_visible()
    chips(page).get_by_role("button", name="Failed").click()
    expect(page.get_by_text("Only jobs that have ended")).to_have_count(0)


def test_a_tag_is_found_and_a_click_anywhere_in_a_row_opens_its_job(page: Page, site: Site, daemon: DaemonProcess):
    tagged = {"command": "true", "name": "delta", "tags": ["ablation"], "project": "tagged"}
    number = daemon.add(tagged, {"command": "true", "name": "epsilon"})
    daemon.wait(number, number + 1)
    go(page, site, "jobs")
    expect(rows(page).first).to_contain_text("epsilon")
    page.get_by_label("search").fill("ABLATION")
    expect(rows(page)).to_have_count(1)

    rows(page).locator(".job-when").click()

    expect(page).to_have_url(site.at(f"job/{number}"))
    expect(page).to_have_title(re.compile(rf"{number} delta"))


def test_jobs_that_succeeded_are_tried_again_only_if_the_user_says_so(
    page: Page, site: Site, daemon: DaemonProcess, ended: dict[str, int]
):
    go(page, site, "jobs?state=succeeded,failed")  # others are cancelled, and so many that these are out of sight
    attempts = daemon.job(ended["gamma"])["attempts"]
    choose(page, ended["beta"], ended["gamma"])

    page.get_by_role("toolbar").get_by_role("button", name="Retry").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 of them has succeeded")
    dialog.get_by_role("button", name="Retry the other").click()

    wait_until(lambda: daemon.job(ended["gamma"])["attempts"] == attempts + 1)
    assert daemon.job(ended["beta"])["attempts"] == 1


def test_a_paused_queue_is_told_in_every_view(page: Page, site: Site, daemon: DaemonProcess):
    go(page, site, "jobs")
    expect(page).to_have_title("Jobs · dibs")
    daemon.post("/v1/pause", {})

    expect(page.get_by_role("status").filter(has_text="The queue is paused")).to_be_visible()

    daemon.post("/v1/unpause", {})
    expect(page.get_by_text("The queue is paused")).to_have_count(0)


def test_the_keyboard_moves_chooses_searches_and_opens(page: Page, site: Site, ended: dict[str, int]):
    go(page, site, "jobs?state=succeeded,failed&order=oldest")
    current = page.locator(".job-row.is-current")
    expect(current).to_contain_text("alpha")

    page.keyboard.press("j")
    expect(current).to_contain_text("beta")
    page.keyboard.press("x")
    expect(page.get_by_role("toolbar")).to_contain_text("1 job chosen")
    page.keyboard.press("k")
    expect(current).to_contain_text("alpha")
    page.keyboard.press("/")
    expect(page.get_by_label("search")).to_be_focused()
    page.keyboard.type("gjk")
    expect(page.get_by_label("search")).to_have_value("gjk")
    page.get_by_label("search").fill("alpha")
    expect(rows(page)).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    expect(page).to_have_url(site.at(f"job/{ended['alpha']}"))


def test_keys_belong_to_the_control_or_dialog_that_has_the_focus(
    page: Page, site: Site, daemon: DaemonProcess, waiting: list[int], states: Callable[[], list[str]]
):
    go(page, site, "jobs?state=queued,held&order=oldest")
    expect(page.locator(".job-row.is-current")).to_contain_text("wait-0")
    failed = chips(page).get_by_role("button", name="Failed")

    for _ in range(20):
        page.keyboard.press("Tab")
        if failed.evaluate("one => one === document.activeElement"):
            break
    page.keyboard.press("x")
    expect(page.get_by_role("toolbar")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("state=failed"))
    chips(page).get_by_role("button", name="Waiting").click()
    expect(page.locator(".job-row.is-current")).to_contain_text("wait-0")
    page.keyboard.press("x")  # a filter that was clicked leaves the letters to the table
    page.get_by_role("toolbar").get_by_role("button", name="Kill").click()
    kill = page.get_by_role("dialog").get_by_role("button", name="Kill job")
    page.keyboard.press("j")
    kill.focus()
    page.keyboard.press("Enter")

    wait_until(lambda: states() == ["cancelled", "queued", "queued"], show=states)
    expect(page).to_have_url(re.compile("#/jobs"))


def test_two_keys_lead_to_every_view_and_a_question_mark_lists_all_keys(page: Page, site: Site):
    go(page, site, "now")

    for letter, view in (("j", "jobs"), ("t", "timeline"), ("h", "history"), ("s", "submit"), ("n", "now")):
        page.keyboard.press("g")
        page.keyboard.press(letter)
        expect(page).to_have_url(site.at(view) if view != "timeline" else re.compile(r"#/timeline"))
        expect(page.get_by_role("navigation", name="views").locator("[aria-current=page]")).to_have_text(
            view.capitalize()
        )

    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("go to the Timeline")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
