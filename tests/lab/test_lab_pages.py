"""The pages Inspect and Dedup in a real browser, and what all pages share: history, phones, documentation."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from playwright.sync_api import expect

from evenbins import BlockedBloomFilter
from evenbins.cli.inspect import inspect as inspect_command
from evenbins.study.lab.app import PAGES

DROP = """(files) => {
  const transfer = new DataTransfer();
  for (const [text, name] of files) {
    transfer.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name));
  }
  return transfer;
}"""
TOO_LARGE = """() => {
  const event = new Event("drop", { bubbles: true, cancelable: true });
  const files = [{ name: "big.evb", size: 2 ** 28 + 1 }];
  Object.defineProperty(event, "dataTransfer", { value: { items: [], files } });
  document.querySelector(".drop").dispatchEvent(event);
}"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a filter of 2000 keys."""
    path = tmp_path_factory.mktemp("inspected") / "keys.evb"
    made = BlockedBloomFilter(2000, fpr=1e-3)
    made.add_many(range(2000))
    made.save(path)
    return path


def drop(page: Any, *files: tuple[bytes, str]) -> None:
    """Drop files on the page."""
    encoded = [(base64.b64encode(data).decode(), name) for data, name in files]
    transfer = page.evaluate_handle(DROP, encoded)
    for event in ("dragover", "drop"):
        page.dispatch_event(".drop", event, {"dataTransfer": transfer})


# --- inspect -----------------------------------------------------------------------------------------------


def test_a_file_that_is_chosen_is_shown_as_by_the_command(page: Any, saved: Path) -> None:
    page.open("/inspect")
    page.get_by_label("Choose a file").set_input_files(saved)
    page.wait_for_selector("h2:has-text('keys.evb: a blocked filter')")
    assert page.evaluate("document.activeElement.tagName") == "H2"  # where a screen reader goes on
    printed = CliRunner().invoke(inspect_command, [str(saved)]).output
    compared = page.locator("section:has-text('Planned beside measured') tbody tr").all_inner_texts()
    loads = page.locator("section:has-text('Blocks with this many set bits') tbody tr").all_inner_texts()
    assert len(compared) == 8
    assert len(loads) > 10
    for row in compared + loads:
        name, planned, measured = row.split("\t")[:3]
        name = name.replace(" ", "_") if row in compared else name
        assert re.search(rf" {name} +{re.escape(planned)} +{re.escape(measured)}( |\n)", printed), row
    facts = page.locator("table.about").inner_text()
    assert "every byte verified" in facts
    assert page.locator(".loadbar i").count() == len(loads)
    assert page.get_by_label("command", exact=True).input_value() == "evenbins inspect keys.evb"


def test_a_file_is_dropped_and_damage_is_named(page: Any, saved: Path) -> None:
    page.watch.allowed = ("400",)
    page.open("/inspect")
    page.wait_for_selector(".drop")
    data = saved.read_bytes()
    drop(page, (data, "<img src=x onerror=alert(1)>.evb"))
    page.wait_for_selector("h2:has-text('<img src=x onerror=alert(1)>.evb: a blocked filter')")
    problem = page.locator(".problem:visible")
    drop(page, (data[:-1] + bytes([data[-1] ^ 1]), "bent.evb"))
    page.wait_for_selector("text=bent.evb: the payload's checksum is wrong: the file is damaged")
    assert page.locator("table.about").count() == 0
    drop(page, (b"\x80\x04cposix\nsystem\n.", "list.pickle"))
    page.wait_for_selector("text=list.pickle: this is not an evenbins file")
    drop(page, (data, "a.evb"), (data, "b.evb"))
    assert problem.inner_text() == "2 files were dropped: drop one at a time."
    page.evaluate(TOO_LARGE)
    assert "the lab takes at most 256 MiB: run “evenbins inspect FILE”" in problem.inner_text()


# --- dedup -------------------------------------------------------------------------------------------------


def test_a_deduplication_is_sized_and_timed(page: Any) -> None:
    page.open("/dedup?keys=20000&fpr=1e-3&memory=2e8")
    page.wait_for_selector("tr.chosen")
    assert page.locator("tr.chosen th").inner_text() == "filter"
    facts = page.locator(".facts").first.inner_text()
    assert "of 20,000; at most 20.0 on average" in facts
    assert float(re.search(r"([\d.]+) expected", facts)[1]) < 10  # type: ignore[index]
    page.wait_for_selector("text=Measured on this machine just now")
    page.wait_for_selector("text=for 40,000 rows")
    page.wait_for_selector(".plot .line.focus")
    page.locator("table.pick").get_by_role("button", name="exact").click()
    page.wait_for_selector("tr.chosen:has-text('exact')")
    page.wait_for_url(re.compile("design=exact"))
    assert "--exact --capacity 20000" in page.get_by_label("command", exact=True).input_value()
    page.go_back()
    page.wait_for_selector("tr.chosen:has-text('filter')")
    assert "design" not in page.url


# --- all pages ---------------------------------------------------------------------------------------------


def test_the_back_button_undoes_what_was_changed(page: Any) -> None:
    page.open("/fingerprints?seed=5")
    page.wait_for_selector(".fingerprints .over")
    slider = page.get_by_role("slider", name="Keys in the filter")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")  # in one go: one step
    page.wait_for_url(re.compile("keys=1890"))
    page.get_by_label("Line to look at, as a number").fill("7")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("line=7"))
    page.go_back()
    page.wait_for_url(re.compile("keys=1890$"))
    box = page.get_by_label("Line to look at, as a number")
    expect(box).to_have_value("1", timeout=120_000)  # whichever element it is: the page is made anew
    page.go_back()
    page.wait_for_url(re.compile("fingerprints.seed=5$"))
    page.wait_for_selector("text=1900 keys are in the filter")
    page.go_forward()
    page.wait_for_selector("text=1890 keys are in the filter")


def test_on_a_phone_the_picture_is_first_and_every_page_names_its_documentation(phone: Any) -> None:
    for name in PAGES:
        phone.open(f"/{name}")
        phone.wait_for_selector(f"a.docs[href='/docs/{name}']")
        assert not phone.scrolls_sideways(), name
        if name != "inspect":  # it has no controls
            picture, controls = phone.locator(".split .card").first, phone.locator(".split > .controls")
            assert picture.bounding_box()["y"] < controls.bounding_box()["y"], name
