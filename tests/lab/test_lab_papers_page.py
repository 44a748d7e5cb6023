"""The page Papers in a real browser, and the command that serves the lab."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from typing import Any

import pytest
from click.testing import CliRunner

from evenbins.study.commands.lab import lab as command


def test_an_experiment_is_found_run_and_drawn(page: Any) -> None:
    page.open("/papers")
    page.get_by_label("Find").fill("enlarged 4.2")
    links = page.locator(".experiments a")
    page.wait_for_selector("text=The same for a table with an enlarged")
    assert links.count() == 1
    links.first.click()
    page.wait_for_url(re.compile("id=kirsch-table4.2"))
    page.wait_for_selector(".paperfigure.drawn")
    heads = page.locator("thead th").all_inner_texts()
    assert {"paper", "ours", "difference"} <= set(heads)
    assert page.locator("tbody tr").count() == 10
    assert page.locator("tbody .good").count() > 0
    assert page.locator(".notes li").count() >= 1
    assert (
        page.get_by_label("command", exact=True)
        .input_value()
        .startswith("evenbins reproduce kirsch-table4.2")
    )
    page.go_back()  # to the first one, which is Figure 6
    page.wait_for_selector("h2:has-text('Real filters of 1024 blocks')")


def test_seed_and_choice_are_the_address(page: Any) -> None:
    page.open("/papers?id=kanizo-fig5&seed=7&run=full&q=figure")
    page.wait_for_selector("text=press Run")
    assert page.get_by_label("seed").input_value() == "7"
    assert page.get_by_role("radio", name="full run").is_checked()
    assert page.get_by_label("Find").input_value() == "figure"
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_selector(".facts >> text=full run")
    assert "--seed 7" in page.get_by_label("command", exact=True).input_value()
    assert page.locator("tbody tr").count() == 30
    page.get_by_role("button", name=re.compile("Show all")).click()
    assert page.locator("tbody tr").count() == 288


def test_the_papers_own_rows_come_first(page: Any) -> None:
    page.open("/papers?id=kanizo-fig4a")
    page.wait_for_selector(".facts")
    assert page.locator("tbody tr").count() == 2
    page.get_by_role("button", name="All rows").click()
    assert page.locator("tbody tr").count() == 30


def test_wrong_input_is_said_in_words(page: Any) -> None:
    page.open("/papers?id=kanizo-fig99&seed=x")
    alert = page.locator("#notice")
    alert.wait_for()
    page.wait_for_selector("h2:has-text('No such experiment')")
    assert "seed must be a whole number" in alert.inner_text() or "no experiment" in alert.inner_text()
    page.open("/papers?id=kirsch-table4.1")
    page.wait_for_selector(".facts")
    page.get_by_label("seed").fill("minus one")
    page.get_by_role("button", name="Run", exact=True).click()
    assert "seed must be a whole number from 0" in page.locator(".problem:visible").inner_text()


def test_a_run_can_be_cancelled(page: Any) -> None:
    """A full run of simulations, which no other test has made before in this process."""
    page.open("/papers?id=kirsch-fig5.9&run=full&seed=77")
    page.get_by_text("press Run").wait_for()  # the list of experiments is there
    page.get_by_role("button", name="Run", exact=True).click()
    cancel = page.get_by_role("button", name="Cancel")
    cancel.wait_for()
    with page.expect_response(lambda answer: answer.request.method == "DELETE") as answered:
        cancel.click()
    assert answered.value.json()["state"] == "cancelled"
    assert cancel.is_hidden()
    assert page.get_by_role("button", name="Run", exact=True).is_enabled()


def test_a_phone_shows_it_without_scrolling_sideways(phone: Any) -> None:
    phone.open("/papers?id=chen-table10")
    phone.wait_for_selector(".paperfigure.drawn")
    assert not phone.scrolls_sideways()


def test_unknown_pages_are_said(page: Any) -> None:
    page.watch.allowed = ("404",)
    page.open("/nosuch")
    page.wait_for_selector("h1:has-text('There is no such page')")
    page.locator("main").get_by_role("link", name="papers").click()
    page.wait_for_url("**/papers")


# --- the command -----------------------------------------------------------------------------------------


def test_the_command_serves_until_it_is_interrupted() -> None:
    code = "from evenbins.study.commands.lab import lab; lab(['--port', '0', '--no-browser'])"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/filters", url)
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert b"evenbins lab" in answer.read()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode in (0, 130), errors
        assert errors == ""
    finally:
        process.kill()


def test_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    refused = CliRunner().invoke(command, ["--port", "0", "--no-browser"])
    assert refused.exit_code != 0
    assert "pip install 'evenbins[lab]'" in refused.output


def test_the_command_refuses_other_addresses_and_taken_ports() -> None:
    for host in ("0.0.0.0", "192.168.1.5", "::", "example.org"):
        refused = CliRunner().invoke(command, ["--host", host, "--no-browser"])
        assert refused.exit_code != 0
        assert "this machine alone" in refused.output
        assert "ssh -L" in refused.output
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = CliRunner().invoke(command, ["--port", str(taken.getsockname()[1]), "--no-browser"])
    assert refused.exit_code != 0
    assert "--port 0" in refused.output
