"""The page Filters in a real browser."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from lab_browser import BROWSER, open_page, start_server
from playwright.sync_api import TimeoutError

import evenbins
from evenbins.study.lab.jobs import Jobs

SMALL = "/filters?keys=20000&fpr=0.001&real=20000"


def test_a_request_is_drawn_planned_built_and_written(page: Any, tmp_path: Path) -> None:
    page.open(SMALL + "&policy=fill")
    page.wait_for_selector(".plot .line")
    page.wait_for_selector("tr.chosen")
    assert page.locator("tr.chosen th").inner_text() == "fill"
    assert page.locator("thead th", has_text="miss reads").count() == 1
    page.wait_for_selector(".plot .bar")
    assert page.locator(".plot .outline").count() >= 1
    compared = page.locator(".tabled", has_text="predicted").inner_text()
    asked = re.search(r"([\d.]+) expected\s+(\d+) of ([\d,]+)\s+([\d.]+) … ([\d.]+)\s+(.*)", compared)
    assert asked, compared  # counts and an interval, not a percentage
    assert float(asked[1]) == pytest.approx(1e-3 * int(asked[3].replace(",", "")), rel=0.05)
    assert float(asked[1]) >= 99
    assert float(asked[4]) <= int(asked[2]) <= float(asked[5])
    assert asked[6] == "as expected"
    page.wait_for_selector("text=measured on this machine: bulk look-ups")
    cells = page.locator("tr.chosen td").all_inner_texts()
    heads = page.locator("table.pick thead th").all_inner_texts()[1:]
    times = [float(cell) for head, cell in zip(heads, cells, strict=True) if head == "ns"]
    assert len(times) == 2
    assert all(0.1 < each < 1e5 for each in times)

    # the texts do what they say
    python = page.get_by_label("Python", exact=True).input_value()
    ran = subprocess.run([sys.executable, "-c", python], capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("[ True False]")
    command = page.get_by_label("command", exact=True).input_value().split()
    assert command[:2] == ["evenbins", "build"]
    (tmp_path / "keys.txt").write_text("".join(f"key {i}\n" for i in range(20000)))
    ran = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, timeout=240, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    assert evenbins.load(tmp_path / "keys.evb").plan.policy == "fill"

    # copying says so, with a clipboard or without
    page.get_by_role("button", name="Copy as Python").click()
    page.wait_for_selector("text=/Copied\\.|Selected: press Ctrl-C\\./")
    selected = page.evaluate("document.activeElement.selectionEnd - document.activeElement.selectionStart")
    assert selected == len(python)


def test_a_slider_and_the_table_by_keyboard_change_the_view(page: Any) -> None:
    page.open(SMALL)
    page.wait_for_selector("tr.chosen")
    slider = page.get_by_role("slider", name="Keys", exact=True)
    slider.focus()
    before = slider.get_attribute("aria-valuetext")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") != before
    page.wait_for_url(re.compile(r"keys=2\d000"))
    page.get_by_role("button", name="two-choice").first.focus()
    pick = page.locator("table.pick").get_by_role("button", name="standard")
    pick.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("text=A standard filter has no blocks")
    page.wait_for_url(re.compile("policy=standard"))
    assert page.locator("tr.chosen th").inner_text() == "standard"
    chart = page.get_by_role("img", name=re.compile("False-positive rate over"))
    chart.focus()
    page.keyboard.press("ArrowRight")
    assert "bits per key 4" in page.locator(".tooltip").first.inner_text()
    assert "standard" in page.locator("figure [role=status]").first.inner_text()


def test_the_keyboard_reaches_the_content_and_the_pages(page: Any) -> None:
    page.open(SMALL)
    page.wait_for_selector("h1")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Filters"
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Papers":
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/papers")
    assert page.locator("nav a[aria-current]").inner_text() == "Papers"
    page.evaluate("setTimeout(() => history.back())")  # Firefox shows the old page without loading it
    page.wait_for_url("**/filters?*", wait_until="commit")
    page.wait_for_selector(".plot .line")


def test_a_view_is_its_address(page: Any) -> None:
    page.open("/filters?keys=50000&bits=12&block_bits=256&policy=blocked&reads=1.5&view=factor&real=5000")
    page.wait_for_selector("tr.chosen")
    assert page.get_by_label("Keys, as a number", exact=True).input_value() == "50000"
    assert page.get_by_label("Bits per key, as a number").input_value() == "12"
    assert page.get_by_label("False-positive rate, as a number").is_hidden()
    assert page.get_by_role("radio", name="256 bits").is_checked()
    assert page.get_by_role("radio", name="× standard").is_checked()
    assert (
        page.get_by_role("slider", name="Reads, present key").get_attribute("aria-valuetext") == "at most 1.5"
    )
    assert page.locator("tr.chosen th").inner_text() == "blocked"


def test_wrong_input_is_said_in_words(page: Any) -> None:
    page.watch.allowed = ("400",)
    page.open("/filters?keys=banana&policy=nosuch&fpr=0.001&real=2000")
    alert = page.locator("#notice")
    alert.wait_for()
    assert "keys must be a whole number from 1 to 1e12, not “banana”" in alert.inner_text()
    assert "policy must be one of best, standard" in alert.inner_text()
    box = page.get_by_label("Keys, as a number", exact=True)
    box.fill("-5")
    box.press("Enter")
    problem = page.locator(".field .problem:visible")
    assert "Keys must be a whole number from 1 to 1e12" in problem.inner_text()
    assert box.get_attribute("aria-invalid") == "true"
    box.fill("20 thousand")
    box.press("Enter")
    assert problem.count() == 0
    page.wait_for_url(re.compile("keys=20000|keys=2e4"))

    page.open("/filters?keys=1000&fpr=1e-15&reads=1&miss_reads=1&real=1000")  # what the server refuses
    page.locator(".card .problem:visible").wait_for()
    assert page.locator("#notice").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_without_scrolling_sideways(phone: Any, scheme: str) -> None:
    if BROWSER == "firefox" and scheme == "dark":
        pytest.skip("WebDriver BiDi cannot choose the colour scheme yet")
    phone.emulate_media(color_scheme=scheme)
    phone.open(SMALL + "&policy=multilevel")
    phone.wait_for_selector(".plot .bar")
    assert not phone.scrolls_sideways()
    light = phone.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    phone.get_by_role("button", name="Theme").click()  # system, light, dark
    phone.get_by_role("button", name="Theme").click()
    dark = phone.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (light == dark) == (scheme == "dark")
    phone.reload()
    phone.wait_for_selector("h1")
    assert phone.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_page_waits_for_a_place_among_the_jobs(browser: Any) -> None:
    """Those of pages that were closed end after half a minute; it gave up after five seconds."""
    jobs = Jobs(at_once=3)
    free = threading.Event()
    for _ in range(3):
        jobs.start("another page's", lambda progress: free.wait(120))
    address, end = start_server(jobs=jobs)
    context, page, watch = open_page(browser, address)
    try:
        refused: list[float] = []
        page.on("response", lambda answer: answer.status == 429 and refused.append(time.monotonic()))
        page.open(SMALL + "&policy=blocked")
        while not refused or refused[-1] - refused[0] < 7:
            page.wait_for_timeout(100)
        assert page.locator(".plot .bar").count() == 0
        free.set()
        page.wait_for_selector(".plot .bar")
        assert page.locator("#notice").is_hidden()
    finally:
        free.set()
        context.close()
        end()
    watch.check()


def test_a_build_can_be_cancelled(page: Any) -> None:
    """Tried again while jobs of other tests take all places, or the build is over before the click."""
    page.watch.allowed += ("429",)
    cancel = page.get_by_role("button", name="Cancel")
    for _ in range(40):
        with page.expect_response(lambda answer: "jobs/filters/measure" in answer.url) as started:
            page.open("/filters?keys=2e7&bits=10&real=2e7&policy=standard")
        if started.value.status == 429:
            page.wait_for_timeout(500)
            continue
        with contextlib.suppress(TimeoutError):
            with page.expect_response(is_delete, timeout=10_000) as answered:
                cancel.click(timeout=5_000)
            break
    assert answered.value.json()["state"] == "cancelled"
    assert cancel.is_hidden()


def is_delete(answer: Any) -> bool:
    return bool(answer.request.method == "DELETE")
