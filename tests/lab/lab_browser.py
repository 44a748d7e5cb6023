"""A real browser on a real server, for the tests of all pages.

    def test_something(page):            # `phone`: the same, 390 wide; conftest.py makes them known
        page.open("/filters?keys=1e6")
        page.get_by_role("button", name="Measure").click()

`page` is a Playwright page that knows the server's address. At its end the test fails if the page wrote an
error to its console, threw, or asked anything of another host. The server runs in a thread, one a module.

The browser is Debian's chromium, or with EVENBINS_BROWSER=firefox Debian's firefox-esr (WebDriver BiDi).
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, sync_playwright

from evenbins.study.commands.lab import listen
from evenbins.study.lab.app import create_app

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
PROGRAMS = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"), "firefox": ("firefox-esr", "firefox"),
}  # fmt: skip
BROWSER = os.environ.get("EVENBINS_BROWSER", "chromium")


def program() -> str:
    """Return where the browser is; a missing one is a failure, not a skip."""
    if BROWSER not in PROGRAMS:
        raise RuntimeError(f"EVENBINS_BROWSER must be chromium or firefox, not {BROWSER!r}")
    for name in PROGRAMS[BROWSER]:
        found = shutil.which(name)
        if found:
            return found
    package = PROGRAMS[BROWSER][0]
    raise RuntimeError(f"the lab's tests need {package}: make system-packages (apt-get install {package})")


def launch(playwright: Playwright) -> Browser:
    """Start the browser."""
    if BROWSER == "firefox":
        calm = {"ui.prefersReducedMotion": 1}
        return playwright.firefox.launch(
            executable_path=program(), channel="moz-firefox", firefox_user_prefs=calm
        )
    return playwright.chromium.launch(executable_path=program(), args=ARGUMENTS)


def start_server(**options: Any) -> tuple[str, Any]:
    """Serve the lab on a free port, with these options; gives the address and a function that ends it."""
    socket = listen("127.0.0.1", 0)
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(**options),
            log_level="warning",
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=1,
        )
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    for _ in range(6000):
        if server.started:
            break
        time.sleep(0.01)
    assert server.started, "the server did not start within a minute"

    def end() -> None:
        server.should_exit = True
        thread.join(10)
        socket.close()

    return f"http://127.0.0.1:{socket.getsockname()[1]}", end


@pytest.fixture(scope="module")
def lab() -> Iterator[str]:
    """The address of a running lab."""
    address, end = start_server()
    yield address
    end()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A running browser."""
    with sync_playwright() as playwright:
        started = launch(playwright)
        yield started
        started.close()


class Watch:
    """What a page did that it should not."""

    def __init__(self, page: Page, address: str) -> None:
        self.problems: list[str] = []
        self.allowed: tuple[str, ...] = ()  # parts of console errors that a test provokes
        page.on("console", lambda message: self._console(message.type, message.text))
        page.on("pageerror", lambda error: self.problems.append(f"threw: {error}"))
        page.on("request", lambda request: self._request(request.url, address))

    def _console(self, kind: str, text: str) -> None:
        if kind == "error":
            self.problems.append(f"console: {text}")

    def _request(self, url: str, address: str) -> None:
        if not url.startswith((address + "/", "data:", "blob:", "about:")):
            self.problems.append(f"asked another host: {url}")

    def check(self) -> None:
        """Fail if there was something that the test did not allow."""
        allowed = (*self.allowed, "429")  # jobs of an earlier test are still ending: the page asks again
        left = [each for each in self.problems if not any(part in each for part in allowed)]
        assert not left, left


def open_page(browser: Browser, address: str, **options: Any) -> tuple[BrowserContext, Any, Watch]:
    """Give a context, a page with `open(path)`, and its watch."""
    media = {"reduced_motion": "reduce"}
    if BROWSER == "firefox":  # WebDriver BiDi cannot change these yet
        media = dict.fromkeys(("reduced_motion", "color_scheme", "forced_colors", "contrast"), "null")
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **media, **options})
    context.set_default_timeout(120_000)
    page: Any = context.new_page()
    watch = Watch(page, address)
    page.watch = watch
    page.open = lambda path: page.goto(address + path)
    page.scrolls_sideways = lambda: page.evaluate(
        "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    )
    return context, page, watch


@pytest.fixture
def page(browser: Browser, lab: str) -> Iterator[Any]:
    """A fresh page 1280 wide; `page.open(path)`, `page.scrolls_sideways()`, `page.watch.allowed`."""
    context, opened, watch = open_page(browser, lab)
    yield opened
    opened.goto("about:blank")  # a page that is left cancels its jobs, one that is closed may not
    context.close()
    watch.check()


@pytest.fixture
def phone(browser: Browser, lab: str) -> Iterator[Any]:
    """The same on a phone, 390 wide."""
    context, opened, watch = open_page(browser, lab, viewport={"width": 390, "height": 844})
    yield opened
    opened.goto("about:blank")  # a page that is left cancels its jobs, one that is closed may not
    context.close()
    watch.check()
