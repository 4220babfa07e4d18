"""A browser in front of a real daemon, and what must never happen in it."""

import json
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from playwright.sync_api import Browser, BrowserContext, Locator, Page, Request, expect

from daemon.daemon_process import DaemonProcess
from daemon.web_client import open_page

PATIENCE = 60_000  # milliseconds; only a failing test waits for so long
PLACE = {"width": 1280, "height": 800}
NARROW = {"width": 380, "height": 800}
REBOUND = "rebound.example"

expect.set_options(timeout=PATIENCE)


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0


# Of its own for each daemon, and below those that the kernel hands out: one that begins anew finds its own again.
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_ports = (port for port in range(20_000 + 500 * _worker, 20_500 + 500 * _worker) if _is_free(port))
_taken: WeakKeyDictionary[DaemonProcess, int] = WeakKeyDictionary()


def _port_of(daemon: DaemonProcess) -> int:
    if daemon not in _taken:
        _taken[daemon] = next(_ports)
    return _taken[daemon]


class Watch:
    """Records what a page must not do: errors in the console, and requests to other hosts."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self._forgiven: list[str] = []

    def forgive(self, pattern: str) -> None:
        """Something that this test brings about, such as a connection that is refused."""
        self._forgiven.append(pattern)

    def follow(self, page: Page) -> None:
        page.on("console", lambda said: said.type == "error" and self._note(f"console: {said.text}"))
        page.on("pageerror", lambda error: self._note(f"error: {error}"))
        page.on("dialog", lambda dialog: (self._note(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", self._check)

    def assert_quiet(self) -> None:
        loud = [one for one in self.complaints if not any(re.search(wish, one) for wish in self._forgiven)]
        assert not loud, "\n".join(loud)

    def _note(self, complaint: str) -> None:
        self.complaints.append(complaint)

    def _check(self, request: Request) -> None:
        place = urlsplit(request.url)
        if place.scheme not in ("data", "blob") and place.hostname != "127.0.0.1":
            self._note(f"request: {request.url}")
        if "code=" in place.query or "token" in place.query:
            self._note(f"secret in an address: {request.url}")


class Site:
    """The page of a daemon: where it is, and the token that lets a browser in."""

    def __init__(self, daemon: DaemonProcess, **wishes: Any) -> None:
        web_client = open_page(daemon, **{"port": _port_of(daemon), **wishes})
        self.daemon = daemon
        self.address = f"http://{web_client.name}/"
        answer = web_client.get("/v1/status")
        self.session = {
            "token": web_client.token,
            "read_only": bool(wishes.get("read_only")),
            "user": answer.json["user"],
            "version": answer.json["version"],
        }

    def context(self, browser: Browser, *, address: str | None = None, **more: Any) -> BrowserContext:
        """A browser that is signed in already."""
        place = urlsplit(address or self.address)
        kept = [{"name": "dibs-session", "value": json.dumps(self.session)}]
        state = {"cookies": [], "origins": [{"origin": f"{place.scheme}://{place.netloc}", "localStorage": kept}]}
        context = browser.new_context(storage_state=state, **{"viewport": PLACE, **more})  # type: ignore[arg-type]
        context.set_default_timeout(PATIENCE)
        return context

    def at(self, path: str) -> str:
        return f"{self.address}#/{path}"


@contextmanager
def visit(site: Site, browser: Browser, **more: Any) -> Iterator[tuple[Page, Watch]]:
    """A tab for as long as the block lasts; it must have kept quiet."""
    context = site.context(browser, **more)
    watch = Watch()
    page = context.new_page()
    watch.follow(page)
    try:
        yield page, watch
    finally:
        context.close()
    watch.assert_quiet()


def go(page: Page, site: Site, path: str) -> None:
    """To a view, and wait until the stream of events flows: from then on nothing is missed."""
    page.goto(site.at(path))
    expect(page.locator(".connection")).to_have_text("live")


def each_view(page: Page, site: Site, paths: Iterable[str]) -> Iterator[str]:
    """One view after the other in one page, which costs far less than loading it for each of them.

    Neighbours must be views of different kinds: a view that is shown already is changed, not made anew.
    """
    for path in paths:
        page.evaluate("() => document.querySelector('main > *')?.setAttribute('data-earlier', '')")
        go(page, site, path)
        expect(page.locator("[data-earlier]")).to_have_count(0)
        yield path


def gpu(page: Page, number: int) -> Any:
    return page.get_by_role("article", name=f"GPU {number}", exact=True)


def fits(page: Page) -> Mapping[str, int]:
    """How wide the document is, and how wide the window."""
    found = page.evaluate(
        "() => ({content: document.documentElement.scrollWidth, window: document.documentElement.clientWidth})"
    )
    return dict(found)


def findings(page: Page, axe: str, theme: str = "light") -> list[str]:
    """What axe objects to on a page whose policy for scripts is off. In the dark only the colours are others."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(axe)
    rules = {"runOnly": ["color-contrast"]} if theme == "dark" else {}
    found = page.evaluate("async rules => (await axe.run(document, rules)).violations", rules)
    return [
        f"{one['id']} ({one['impact']}): {node['html'][:160]} {node.get('failureSummary', '')[:300]}"
        for one in found
        for node in one["nodes"]
    ]


def cut_controls(page: Page) -> list[str]:
    """Buttons whose words have no room."""
    found = page.evaluate(
        """() => [...document.querySelectorAll("button, .button, summary, nav a")]
            .filter(one => one.checkVisibility({visibilityProperty: true}))
            .map(one => [one, getComputedStyle(one)])
            .filter(([_, {display, textOverflow}]) => display !== "inline" && textOverflow !== "ellipsis")
            .filter(([{scrollWidth, clientWidth}]) => scrollWidth > clientWidth + 1)
            .map(([one]) => one.outerHTML.slice(0, 140))"""
    )
    return list(found)


def overlapping(place: Locator) -> list[str]:
    """Words and controls that lie upon each other."""
    found = place.evaluate(
        """place => {
            const all = [...place.querySelectorAll("h2, p, label > span, input, textarea, select, button")]
                .filter(one => one.checkVisibility({visibilityProperty: true}))
                .filter(one => one.getBoundingClientRect().height > 0);
            const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
                && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
            return all.flatMap((one, number) => all.slice(number + 1)
                .filter(other => meet(one.getBoundingClientRect(), other.getBoundingClientRect()))
                .map(other => `${one.outerHTML.slice(0, 100)} and ${other.outerHTML.slice(0, 100)}`));
        }"""
    )
    return list(found)


def small_targets(page: Page) -> list[str]:
    """What a finger would miss: less than 44 pixels high or wide. Links within a text are as high as its lines."""
    found = page.evaluate(
        """() => [...document.querySelectorAll("a[href], button, select, summary, input, textarea")]
            .filter(one => one.checkVisibility({visibilityProperty: true}) && one.tabIndex >= 0)
            .map(one => one.matches("[type=checkbox], [type=radio]") ? one.closest("label") ?? one : one)
            .filter(one => getComputedStyle(one).display !== "inline")
            .map(one => [one, one.getBoundingClientRect()])
            .filter(([one, {width, height}]) => width > 1 && (width < 43.5 || height < 43.5))
            .map(([one, {width, height}]) => `${width} x ${height} ${one.outerHTML.slice(0, 140)}`)"""
    )
    return list(found)
