"""The demo: every step runs, its claims hold, and a claim that fails is told."""

import html
import io
import re
import subprocess
import sys
from functools import partial

import pytest
from rich.console import Console

from evenbins.study.demo import parts
from evenbins.study.demo import steps as demo
from evenbins.study.demo.report import Report
from evenbins.study.demo.steps import STEPS, Demo


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=80, highlight=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder that was not there before the demo wrote to it."""
    return tmp_path_factory.mktemp("demo") / "new" / "folder"


@pytest.fixture(scope="module")
def done(folder):
    """The demo as a user starts it, with few keys, once for all tests here."""
    return subprocess.run(
        [sys.executable, "-m", "evenbins", "demo", "--keys", "2e4", "--out", folder],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


def test_a_small_run_shows_every_step_and_keeps_its_files(done, folder):
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    titles = [line for line in lines if re.match(r"\d+\. ", line)]
    assert len(titles) == len(STEPS)
    assert "20_000" in titles[0]
    assert "2_000 strings" in titles[2]
    assert sum(line.startswith("  ok ") for line in lines) == 34
    assert "FAILED" not in done.stdout
    assert "…" not in done.stdout  # no table is cut at 80 columns
    assert "FormatError" in done.stdout
    assert "Every claim holds" in lines[-1]
    assert {"demo.evb", "damaged.evb"} <= {path.name for path in folder.iterdir()}
    report = (folder / "report.html").resolve()
    assert str(report) in lines[-3]
    page = report.read_text()
    assert page.count('class="ok"><b>') == 34
    assert page.count("<svg ") == 5
    assert [title for title in titles if html.escape(title) not in page] == []


def test_the_report_needs_nothing_else(done, folder):
    """No script, no address but names of XML dialects; names in the page are unique and lead somewhere."""
    assert done.returncode == 0
    page = (folder / "report.html").read_text()
    outside = set(re.findall(r"[a-z]+://[^\s\"')<]+", page))
    assert outside <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not re.search(r"<script|<link|<iframe|<img|@import|\son\w+=", page)
    names = re.findall(r'\bid="([^"]+)"', page)
    assert len(names) == len(set(names))
    assert set(re.findall(r'href="#([^"]+)"', page) + re.findall(r"url\(#([^)]+)\)", page)) <= set(names)


def test_text_is_not_taken_for_markup():
    report = Report("<b>")
    report.begin("1 < 2")
    report.text("<script>alert(1)</script>")
    report.claim(False, "a & b")
    page = report.html()
    assert "<script>" not in page
    assert "1 &lt; 2" in page
    assert "a &amp; b" in page
    assert "1 claims FAILED" in page


def test_without_matplotlib_the_report_says_how_to_get_figures(tmp_path, console, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(demo, "STEPS", [("Ring", demo.ring)])
    assert demo.run(keys=1_000, console=console, report=tmp_path / "report.html") == 0
    assert "evenbins[plot]" in (tmp_path / "report.html").read_text()


def test_predictions_stand_beside_measurements(tmp_path, console):
    demo.integers(Demo(5_000, tmp_path, console))
    text = console.file.getvalue()
    for word in (
        "keys",
        "fpr",
        "fill",
        "reads",
        "nbytes",
        "BloomFilter",
        "BlockedBloomFilter",
        "no present key",
    ):
        assert word in text
    for word in ("planned", "measured  ", "counted", "measured on", "fpr within"):
        assert text.count(word) == 2


def test_a_claim_that_fails_is_told_and_changes_the_status(monkeypatch, console):
    steps = [
        ("Fine", partial(Demo.claim, holds=True, text="two")),
        ("Wrong", partial(Demo.claim, holds=False, text="three")),
    ]
    monkeypatch.setattr(demo, "STEPS", steps)
    assert demo.run(keys=1_000, console=console) == 1
    text = console.file.getvalue()
    assert "ok     two" in text
    assert "FAILED three" in text
    assert "1 claims FAILED" in text


def test_a_broken_filter_would_fail_the_demo(tmp_path, console, monkeypatch):
    """Power: a filter that overstates its rate by 30 % is found out by a million absent keys."""
    measure = demo.BloomFilter.stats

    class Liar:
        def __init__(self, real: object) -> None:
            self.real = real

        def __getattr__(self, name: str) -> object:
            value = getattr(self.real, name)
            return value * 1.3 if name == "fpr" else value

    monkeypatch.setattr(demo.BloomFilter, "stats", lambda self: Liar(measure(self)))
    shown = Demo(5_000, tmp_path, console)
    demo.integers(shown)
    assert len(shown.failed) == 1
    assert shown.failed[0].startswith("BloomFilter: measured on 1_000_000 absent keys: fpr within")


@pytest.mark.parametrize(("hits", "trials"), [(0, 1000), (7, 1000), (500, 1000), (1000, 1000)])
def test_the_interval_is_the_exact_one(hits, trials):
    """At its ends the counted number, or one more extreme, has a chance of 5e-7 (Clopper and Pearson)."""
    from scipy.stats import binom

    low, high = parts.binomial_interval(hits, trials)
    assert 0.0 <= low <= hits / trials <= high <= 1.0
    if hits > 0:
        assert binom.sf(hits - 1, trials, low) == pytest.approx(5e-7, rel=1e-6)
    if hits < trials:
        assert binom.cdf(hits, trials, high) == pytest.approx(5e-7, rel=1e-6)
