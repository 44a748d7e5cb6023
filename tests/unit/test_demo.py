"""The demo: every step runs, its claims hold, and a claim that fails is told."""

import io
import re
import subprocess
import sys
from functools import partial

import pytest
from rich.console import Console

from evenbins import demo
from evenbins.demo import STEPS, Demo


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=80, highlight=False)


def test_a_small_run_shows_every_step_and_keeps_its_files(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "evenbins", "demo", "--keys", "2e4", "--out", tmp_path / "new" / "folder"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
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
    assert {"demo.evb", "damaged.evb"} <= {path.name for path in (tmp_path / "new" / "folder").iterdir()}


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
    for word in ("planned", "measured", "counted", "fpr within"):
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
    assert shown.failed[0].startswith("BloomFilter: fpr within")


@pytest.mark.parametrize(("hits", "trials"), [(0, 1000), (7, 1000), (500, 1000), (1000, 1000)])
def test_the_interval_is_the_exact_one(hits, trials):
    """At its ends the counted number, or one more extreme, has a chance of 5e-7 (Clopper and Pearson)."""
    from scipy.stats import binom

    low, high = demo._interval(hits, trials)
    assert 0.0 <= low <= hits / trials <= high <= 1.0
    if hits > 0:
        assert binom.sf(hits - 1, trials, low) == pytest.approx(5e-7, rel=1e-6)
    if hits < trials:
        assert binom.cdf(hits, trials, high) == pytest.approx(5e-7, rel=1e-6)
