"""Sweeps: what was tried, what came of it, and where the good values are."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from daemon.daemon_process import DaemonProcess
from stories.outside import wait_until
from web.browsing import NARROW, PLACE, Site, Watch, each_view, findings, fits, go, visit
from web.sweeping import BOWL, LOSS, begin, finish, span, sweep, values

PHONE = {"width": 360, "height": 800}


def rows(page: Page) -> Locator:
    return page.locator(".sweep-rows .sweep-row")


def total(page: Page) -> Locator:
    return page.locator(".sweep-board h2 .faint")


def drag(page: Page, axis: int, begin: float, end: float) -> None:
    """Along an axis, from one part of its height to another; 0 is its lower end."""
    chart = page.locator(".sweep-parallel svg").bounding_box()
    line = page.locator(".sweep-axis line").nth(axis).bounding_box()
    assert chart is not None
    assert line is not None
    x, foot = line["x"] + line["width"] / 2, line["y"] + line["height"]
    page.mouse.move(x, foot - begin * line["height"])
    page.mouse.down()
    page.mouse.move(x, foot - (begin + end) / 2 * line["height"])
    page.mouse.move(x, foot - end * line["height"])
    page.mouse.up()


@pytest.fixture(scope="module")
def bowl(daemon: DaemonProcess) -> int:
    """A grid of nine points, whose best one is known."""
    rates, layers = values("lr", "0.001", "0.01", "0.1"), values("layers", "1", "2", "4")
    number = begin(daemon, BOWL, rates, layers, name="bowl", metrics=LOSS)
    finish(daemon, number)
    return number


def test_a_page_without_sweeps_says_how_to_begin_one(page: Page, site: Site):
    go(page, site, "now")
    page.get_by_role("link", name="Sweeps").click()

    expect(page.get_by_text("There is no sweep yet.")).to_be_visible()
    expect(page.locator("main code")).to_contain_text("dibs sweep")


def test_the_list_shows_state_progress_and_the_best(page: Page, site: Site, bowl: int):
    go(page, site, "sweeps")
    row = page.get_by_role("row", name=re.compile(r"\bbowl\b"))

    expect(row.locator(".badge")).to_have_text("finished")
    expect(row).to_contain_text("9 of 9")
    expect(row).to_contain_text("loss 0.1")
    row.locator(".sweeps-state").click()
    expect(page).to_have_url(site.at(f"sweeps/{bowl}"))


def test_the_best_trial_comes_first_and_its_command_is_there_to_copy(
    page: Page, site: Site, bowl: int, daemon: DaemonProcess
):
    best = sweep(daemon, bowl)["best"][0]

    go(page, site, f"sweeps/{bowl}")

    expect(rows(page)).to_have_count(9)
    expect(rows(page).first).to_contain_text("★")
    expect(rows(page).first.get_by_role("cell").nth(3)).to_have_text("0.01")
    expect(page.get_by_label(f"the command of trial {best['number']}", exact=True)).to_have_text(best["command"])
    expect(page.get_by_role("button", name=f"copy the command of trial {best['number']}")).to_be_visible()


def test_rows_are_sorted_by_any_column_and_the_address_says_so(page: Page, site: Site, bowl: int):
    go(page, site, f"sweeps/{bowl}")
    lr = page.get_by_role("columnheader", name=re.compile("^lr"))

    lr.get_by_role("button").click()
    expect(lr).to_have_attribute("aria-sort", "ascending")
    expect(rows(page).first.get_by_role("cell").nth(3)).to_have_text("0.001")
    lr.get_by_role("button").click()
    expect(lr).to_have_attribute("aria-sort", "descending")
    page.reload()

    expect(rows(page).first.get_by_role("cell").nth(3)).to_have_text("0.1")
    expect(lr).to_have_attribute("aria-sort", "descending")


def test_a_row_leads_to_the_job_and_the_job_back_to_the_sweep(
    page: Page, site: Site, bowl: int, daemon: DaemonProcess
):
    best = sweep(daemon, bowl)["best"][0]
    go(page, site, f"sweeps/{bowl}")

    rows(page).first.get_by_role("cell").nth(3).click()

    expect(page).to_have_url(site.at(f"job/{best['job']}"))
    facts = page.get_by_role("region", name="facts")
    expect(facts).to_contain_text(f"trial {best['number']}")
    facts.get_by_role("link", name=str(bowl), exact=True).click()
    expect(page).to_have_url(site.at(f"sweeps/{bowl}"))


def test_the_keyboard_goes_through_the_rows(page: Page, site: Site, bowl: int):
    go(page, site, f"sweeps/{bowl}")
    expect(rows(page)).to_have_count(9)
    second = rows(page).nth(1).get_by_role("link").inner_text()

    page.keyboard.press("j")
    expect(rows(page).nth(1)).to_have_class(re.compile("is-current"))
    expect(page.locator(".sweep-pointed")).to_have_count(1)
    page.keyboard.press("Enter")

    expect(page).to_have_url(site.at(f"job/{second}"))


def test_a_drag_along_an_axis_leaves_the_trials_that_stand_there(page: Page, site: Site, bowl: int):
    go(page, site, f"sweeps/{bowl}")
    expect(total(page)).to_have_text("9 trials")

    drag(page, 0, 0.35, 0.65)
    expect(total(page)).to_have_text("3 trials of 9")
    for cell in rows(page).get_by_role("cell").filter(has_text=re.compile("^0.01$")).all():
        expect(cell).to_be_visible()
    drag(page, 1, -0.05, 0.1)
    expect(total(page)).to_have_text("1 trial of 9")
    brushes = page.get_by_role("group", name="brushes")
    brushes.get_by_role("button", name=re.compile("^layers")).click()
    expect(total(page)).to_have_text("3 trials of 9")
    brushes.get_by_role("button", name="clear all").click()

    expect(total(page)).to_have_text("9 trials")


def test_a_brush_is_moved_and_a_click_clears_it(page: Page, site: Site, bowl: int):
    go(page, site, f"sweeps/{bowl}")
    drag(page, 0, 0.35, 0.65)
    chip = page.get_by_role("group", name="brushes").get_by_role("button").first
    expect(chip).to_have_text(re.compile("^lr 0.01 "))

    drag(page, 0, 0.5, 1.0)
    expect(chip).to_have_text(re.compile(r"^lr (from )?0.1 "))
    drag(page, 0, 1.0, 1.0)

    expect(total(page)).to_have_text("9 trials")


def test_the_same_is_chosen_by_typing(page: Page, site: Site, bowl: int):
    go(page, site, f"sweeps/{bowl}")
    page.get_by_text("Choose by typing").click()

    loss = page.get_by_role("group", name="loss")
    loss.get_by_label("to").fill("0.25")
    loss.get_by_label("to").press("Enter")
    expect(total(page)).to_have_text("2 trials of 9")
    page.get_by_role("group", name="layers").get_by_label("from").select_option("2")

    expect(total(page)).to_have_text("1 trial of 9")
    page.get_by_role("group", name="layers").get_by_label("from").select_option("4")
    expect(page.get_by_text("No trial is in all of the chosen ranges.")).to_be_visible()


def test_trials_appear_as_they_end_without_a_reload(page: Page, site: Site, daemon: DaemonProcess, tmp_path: Path):
    command = f'until [ -e {tmp_path}/{{x}} ]; do sleep 0.05; done; echo loss={{x}} >> "$DIBS_METRICS"'
    number = begin(daemon, command, values("x", "1", "2", "3"), metrics=LOSS, parallel=3)
    go(page, site, f"sweeps/{number}")
    expect(rows(page)).to_have_count(3)
    expect(page.get_by_text("No trial has reported loss yet.")).to_be_visible()
    page.evaluate("window.isTheSamePage = true")

    (tmp_path / "2").touch()
    expect(rows(page).filter(has=page.get_by_text("complete"))).to_have_count(1)
    expect(page.get_by_role("img", name=re.compile("^loss by the number"))).to_be_visible()
    (tmp_path / "1").touch()
    expect(rows(page).filter(has=page.get_by_text("complete"))).to_have_count(2)
    expect(rows(page).first.get_by_role("cell").nth(2)).to_have_text("1")
    (tmp_path / "3").touch()

    expect(page.locator("h1 + .badge")).to_have_text("finished")
    expect(page.locator(".sweep-facts")).to_contain_text("3 of 3")
    assert page.evaluate("window.isTheSamePage")


def test_a_sweep_is_held_released_stopped_and_resumed(page: Page, site: Site, daemon: DaemonProcess):
    number = begin(daemon, "sleep 600 {x}", values("x", "1", "2"), metrics=LOSS, parallel=1)
    go(page, site, f"sweeps/{number}")
    badge = page.locator("h1 + .badge")
    expect(badge).to_have_text("running")

    page.get_by_role("button", name="Hold").click()
    expect(badge).to_have_text("held")
    page.get_by_role("button", name="Release").click()
    expect(badge).to_have_text("running")
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name=f"Stop sweep {number}").click()
    expect(badge).to_have_text("stopped")
    assert sweep(daemon, number)["state"] == "stopped"
    page.get_by_role("button", name="Resume").click()

    expect(badge).to_have_text("running")
    daemon.post(f"/v1/sweeps/{number}/act", {"action": "stop"})


def test_what_has_failed_is_tried_again(page: Page, site: Site, daemon: DaemonProcess, tmp_path: Path):
    number = begin(daemon, f'cat {tmp_path}/late >> "$DIBS_METRICS" # {{x}}', values("x", "1", "2"), metrics=LOSS)
    wait_until(lambda: sweep(daemon, number)["counts"]["failed"] == 2, show=lambda: sweep(daemon, number))
    go(page, site, f"sweeps/{number}")
    expect(rows(page).get_by_text("failed")).to_have_count(2)

    (tmp_path / "late").write_text("loss=1\n")
    page.get_by_role("button", name="Retry failed").click()

    expect(rows(page).get_by_text("complete")).to_have_count(2)
    expect(page.get_by_role("button", name="Retry failed")).to_have_count(0)


def test_a_finished_search_goes_on_with_more_samples(page: Page, site: Site, daemon: DaemonProcess):
    number = begin(
        daemon, BOWL.replace("{layers}", "1"), span("lr", 1e-4, 1, "log"), method="random", samples=3, metrics=LOSS
    )
    finish(daemon, number)
    go(page, site, f"sweeps/{number}")

    page.get_by_role("button", name="More samples").click()
    page.get_by_label("Samples in all").fill("5")
    page.get_by_role("button", name="Go on").click()

    expect(page.locator(".sweep-facts")).to_contain_text("5 of 5")
    expect(rows(page)).to_have_count(5)


def test_more_samples_that_are_refused_are_told_in_the_dialog_beside_the_field(
    page: Page, site: Site, watch: Watch, daemon: DaemonProcess
):
    watch.forgive("4[0-9][0-9]")
    number = begin(
        daemon, BOWL.replace("{layers}", "1"), span("lr", 1e-4, 1, "log"), method="random", samples=2, metrics=LOSS
    )
    finish(daemon, number)
    go(page, site, f"sweeps/{number}")
    page.get_by_role("button", name="More samples").click()
    dialog = page.get_by_role("dialog")
    field = dialog.get_by_label("Samples in all")
    for text, sentence in (("many", "whole number"), ("1", "from 3")):
        field.fill(text)
        dialog.get_by_role("button", name="Go on").click()
        expect(field).to_be_focused()
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(field).to_have_accessible_description(re.compile(sentence))
        expect(field).to_have_value(text)


def test_an_adaptive_search_shows_which_parameter_matters(page: Page, site: Site, daemon: DaemonProcess):
    where = {"lr": span("lr", 1e-4, 1, "log"), "layers": span("layers", 1, 8) | {"integer": True}}
    number = begin(
        daemon, BOWL, *where.values(), method="adaptive", samples=12, seed=3, metrics=LOSS, name="search"
    )
    finish(daemon, number)
    go(page, site, f"sweeps/{number}")

    bars = page.get_by_role("region", name="importance")
    expect(bars.get_by_role("term")).to_have_count(2)
    expect(bars).to_contain_text(re.compile(r"\d+ %"))
    expect(page.locator(".sweep-axis text").get_by_text("0.01", exact=True)).to_have_count(1)  # a log axis
    expect(rows(page)).to_have_count(12)


def test_without_a_metric_there_are_the_trials_by_number_and_no_charts(
    page: Page, site: Site, daemon: DaemonProcess
):
    number = begin(daemon, "true {x}", values("x", "b", "a", None))
    finish(daemon, number)
    go(page, site, f"sweeps/{number}")

    expect(page.get_by_text("No metric was named")).to_be_visible()
    expect(page.locator("figure")).to_have_count(0)
    expect(rows(page)).to_have_count(3)
    assert [row.get_by_role("cell").first.inner_text() for row in rows(page).all()] == ["1", "2", "3"]
    expect(rows(page).nth(2)).to_contain_text("none")


def test_of_two_metrics_the_front_is_marked_and_a_table(
    site: Site, browser: Browser, daemon: DaemonProcess, axe: str
):
    both = [*LOSS, {"name": "size", "goal": "min"}]
    command = 'echo loss={x} size=$((10 - {x} + {y})) >> "$DIBS_METRICS"'
    number = begin(daemon, command, values("x", "1", "2", "3"), values("y", "0", "5"), metrics=both)
    front = sorted(finish(daemon, number)["best"], key=lambda one: one["values"][0])
    assert [one["values"] for one in front] == [[1, 9], [2, 8], [3, 7]]
    with visit(site, browser, bypass_csp=True) as (page, _):
        go(page, site, f"sweeps/{number}")

        expect(rows(page).filter(has_text="★")).to_have_count(3)
        scatter = page.locator("figure").filter(has=page.get_by_role("heading", name="Scatter"))
        expect(scatter.get_by_label("across")).to_have_value("m loss")
        expect(scatter.get_by_label("up")).to_have_value("m size")
        expect(scatter.get_by_role("list", name="legend")).to_contain_text(
            re.compile("Pareto front.*reached by the front")
        )
        table = page.get_by_role("region", name="Pareto front")
        jobs = [str(one["job"]) for one in front]
        expect(table.get_by_role("link")).to_have_text(jobs)
        expect(table.get_by_role("row").nth(2)).to_have_text(re.compile(rf"{jobs[1]}\s*2\s*8"))

        # The same with the keyboard: a link of the table points at the mark, and so do arrow keys in the chart.
        table.get_by_role("link").nth(1).focus()
        ring, second = scatter.locator(".sweep-ring"), table.get_by_role("row").nth(2)
        expect(ring).to_be_visible()
        of_the_link = ring.get_attribute("style") or ""
        chart = scatter.get_by_role("img", name="size against loss")
        chart.focus()
        expect(ring).to_be_hidden()
        for _ in range(3):  # past the first of the front, and one above it
            page.keyboard.press("ArrowRight")
        expect(second).to_have_class("is-pointed")
        expect(ring).to_have_attribute("style", of_the_link)
        expect(scatter.get_by_role("status")).to_contain_text("loss 2")
        page.keyboard.press("Enter")
        expect(page).to_have_url(site.at(f"job/{jobs[1]}"))
        page.go_back()

        expect(table.get_by_role("link")).to_have_text(jobs)
        themes: tuple[Any, ...] = ("light", "dark")
        for theme in themes:
            page.emulate_media(color_scheme=theme)
            assert findings(page, axe, theme) == []
        table.get_by_role("link").last.focus()  # its ring goes with the mark
        page.set_viewport_size(NARROW)
        wait_until(lambda: fits(page)["content"] <= NARROW["width"], show=lambda: fits(page))

        scatter.get_by_label("across").select_option("x")
        expect(scatter.get_by_role("img", name="size against x")).to_be_visible()
        expect(scatter.get_by_role("list", name="legend")).not_to_contain_text("reached by the front")


def test_a_parameter_that_is_not_there_stands_below_its_axis(page: Page, site: Site, daemon: DaemonProcess):
    command = 'tell() { echo "loss=$#"; }; tell a {x} >> "$DIBS_METRICS"'
    number = begin(daemon, command, values("x", "1", "2", None), metrics=LOSS)
    finish(daemon, number)
    go(page, site, f"sweeps/{number}")
    expect(page.locator(".sweep-axis").first).to_contain_text("none")

    drag(page, 0, 0.3, -0.2)

    expect(page.get_by_role("group", name="brushes")).to_contain_text("or none")
    expect(total(page)).to_have_text("2 trials of 3")


def test_a_point_of_a_chart_leads_to_its_job(page: Page, site: Site, bowl: int, daemon: DaemonProcess):
    go(page, site, f"sweeps/{bowl}")
    plot = page.get_by_role("img", name=re.compile("^loss by the number"))
    plot.scroll_into_view_if_needed()
    box = plot.locator(".u-over").bounding_box()
    assert box is not None

    tip = page.locator(".sweep-plot-box:hover .sweep-tip")

    def is_pointed_at() -> bool:
        for across in range(2, 100, 3):
            for up in range(4, 100, 4):
                page.mouse.move(box["x"] + box["width"] * across / 100, box["y"] + box["height"] * up / 100)
                if tip.is_visible():
                    return True
        return False

    wait_until(is_pointed_at)
    page.mouse.down()
    page.mouse.up()

    expect(page).to_have_url(re.compile(r"#/job/\d+"))


def test_who_may_only_look_is_offered_no_act(browser: Browser, daemon: DaemonProcess, bowl: int):
    site = Site(daemon, read_only=True)
    number = begin(daemon, "sleep 600 {x}", values("x", "1"), metrics=LOSS)
    with visit(site, browser) as (page, _):
        go(page, site, f"sweeps/{number}")
        expect(rows(page)).to_have_count(1)

        for name in ("Hold", "Release", "Stop", "Resume", "Retry failed", "More samples"):
            expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
    daemon.post(f"/v1/sweeps/{number}/act", {"action": "stop"})


def test_a_phone_needs_no_sideways_scrolling(site: Site, browser: Browser, bowl: int):
    with visit(site, browser, viewport=PHONE, has_touch=True) as (page, _):
        for path in each_view(page, site, ("sweeps", f"sweeps/{bowl}")):
            expect(page.locator("main h1")).to_be_visible()
            expect(page.locator(".sweeps tbody tr, .sweep-rows .sweep-row").first).to_be_visible()

            found = fits(page)
            assert found["content"] <= found["window"], path


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("place", [PLACE, PHONE])
def test_axe_finds_nothing(place: dict[str, int], theme: Any, site: Site, browser: Browser, bowl: int, axe: str):
    with visit(site, browser, viewport=place, color_scheme=theme, bypass_csp=True) as (page, _):
        go(page, site, "sweeps")
        expect(page.locator(".sweeps tbody tr").first).to_be_visible()
        assert findings(page, axe) == []

        go(page, site, f"sweeps/{bowl}")
        expect(total(page)).to_have_text("9 trials")
        page.get_by_text("Choose by typing").click()
        page.get_by_role("group", name="layers").get_by_label("from").select_option("2")
        expect(total(page)).to_have_text("6 trials of 9")
        expect(page.get_by_role("region", name="importance").get_by_role("term")).to_have_count(2)
        assert findings(page, axe) == []
