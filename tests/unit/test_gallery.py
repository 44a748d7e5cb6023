"""The gallery: every experiment has its file, the files are of today's experiments, the pages can be made.

Two cheap experiments run once, `--quick`; nothing is drawn at random that the tests judge.
"""

from __future__ import annotations

import doctest
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from evenbins.study.papers import Row, experiments, plots, row, run
from evenbins.study.papers import table as tables

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import benchmark_page  # noqa: E402
import gallery_pages  # noqa: E402
import make_gallery  # noqa: E402
import pictures.canvas  # noqa: E402

FOLDER = ROOT / "docs" / "gallery"
CHEAP = ("kanizo-fig2", "kirsch-table4.1", "kanizo-fig5", "kanizo-fig4b")


@pytest.fixture(scope="module")
def kept() -> dict[str, dict[str, Any]]:
    return gallery_pages.entries(FOLDER)


def test_every_experiment_has_its_file_and_no_other_lies_there(kept: dict[str, dict[str, Any]]) -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(experiments()) == set(kept)
    for id, entry in kept.items():
        assert entry["id"] == id
        assert entry["source"] == experiments()[id].source
        assert entry["rows"]
        assert entry["seed"] == 1


def test_the_files_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 3_000_000


@pytest.mark.parametrize("id", CHEAP)
def test_the_rows_are_those_of_todays_experiment(id: str, kept: dict[str, dict[str, Any]]) -> None:
    """A quick run has a part of the points; each has its row, and what is exact the same number."""
    before = {
        (json.dumps(each["where"], sort_keys=True), each["quantity"]): each for each in kept[id]["rows"]
    }
    result = run(id, quick=True)
    fresh = make_gallery.entry(result, repetitions=[], threads=1, commit=None)
    assert fresh["rows"]
    for each in fresh["rows"]:
        old = before[json.dumps(each["where"], sort_keys=True), each["quantity"]]
        assert old.get("paper") == each.get("paper")
        assert old["ours"] == pytest.approx(each["ours"], rel=1e-5)


def test_what_is_kept_can_be_read_again() -> None:
    result = run("kirsch-table4.1", quick=True)
    entry = make_gallery.entry(result, repetitions=[7, 3], threads=1, commit="abc")
    read = json.loads(make_gallery.text(entry))
    assert read == entry
    assert read["repetitions"] == [3, 7]
    rebuilt = gallery_pages.rows(read)
    assert [each.quantity for each in rebuilt] == [each.quantity for each in result.rows]
    assert [each.note for each in rebuilt] == [each.note for each in result.rows]
    assert all(a.ours == pytest.approx(b.ours, rel=1e-5) for a, b in zip(rebuilt, result.rows, strict=True))


def test_the_context_that_listens_hears_the_number_of_trials() -> None:
    heard: list[int] = []
    run(make_gallery.listening(experiments()["kanizo-fig3"], heard), quick=True)
    assert heard == [100]


@pytest.mark.parametrize(
    ("ours", "paper", "said"),
    [
        (2.64, 2.6, "="),
        (2.651, 2.6, "≈"),
        (2.8, 2.6, "≠"),
        (0.0049, 0.005, "="),
        (2.1e-7, 2e-7, "="),
        (2.6e-7, 2e-7, "≠"),
        (0.0, 0.0, "="),
        (-0.4, 0.0, "="),
        (1.0, None, ""),
    ],
)
def test_a_number_is_compared_as_it_is_printed(ours: float, paper: float | None, said: str) -> None:
    assert tables.verdict(row("x", ours, paper=paper)) == said


def test_a_page_shows_numbers_notes_and_the_command(kept: dict[str, dict[str, Any]]) -> None:
    id = "kirsch-sec2.1.2"
    page = gallery_pages.page(kept[id], experiments()[id])
    assert page.startswith("# Section 2.1.2: ")
    assert f"evenbins reproduce {id}" in page
    assert f"]({id}.svg)" in page
    assert "| 1.78e-11 | 5.658e-12 | **× 0.318** | ≠ | (" in page
    assert "seed 1" in page
    assert " by the clock" in page


def test_a_quick_run_says_so(kept: dict[str, dict[str, Any]]) -> None:
    entry = kept["kanizo-fig2"] | {"quick": True, "full_seconds": 240.0}
    page = gallery_pages.page(entry, experiments()["kanizo-fig2"])
    assert "**A quick run, with fewer trials.** A full run takes about 4 minutes of a core." in page
    assert "kanizo-fig2 --quick" in page


def test_long_tables_fold_what_the_paper_has_no_number_for() -> None:
    rows = [{"where": {"i": i}, "quantity": "x", "ours": 1.0} for i in range(200)]
    rows[3]["paper"] = 1.0
    entry = {"rows": rows, "quick": False, "seed": 1, "repetitions": [], "seconds": 1.0, "version": "0",
             "commit": "c", "date": "d"}  # fmt: skip
    page = gallery_pages.page(entry, experiments()["kanizo-fig2"])
    assert "199 more rows" in page
    assert page.index("| 3 | `x` | 1 | 1 |") < page.index("<details>")


def test_the_overview_has_every_experiment_once(kept: dict[str, dict[str, Any]]) -> None:
    text = gallery_pages.overview(kept)
    for id in experiments():
        assert f"| [{experiments()[id].source.partition(', ')[2]}](_generated/gallery/{id}.md) |" in text
        assert f"(_generated/gallery/{id}.svg)" in text


def test_text_that_markdown_would_read_is_guarded() -> None:
    shown = Row({"a_b": "x|y*"}, "q", None, 1.0, None, "a $ <b>")
    text = gallery_pages.table([shown], ["a $ <b>"])
    assert "a\\_b" in text
    assert "x\\|y\\*" in text


def test_pages_and_figures_are_written(tmp_path: Path) -> None:
    source = tmp_path / "kept"
    source.mkdir()
    (source / "kanizo-fig2.json").write_bytes((FOLDER / "kanizo-fig2.json").read_bytes())
    (tmp_path / "gallery").mkdir()
    (tmp_path / "gallery" / "gone.md").write_text("an experiment that is no more")
    gallery_pages.write(source, tmp_path)
    assert {path.name for path in (tmp_path / "gallery").iterdir()} == {"kanizo-fig2.md", "kanizo-fig2.svg"}
    assert (tmp_path / "gallery_overview.md").exists()
    before = (tmp_path / "gallery" / "kanizo-fig2.md").stat().st_mtime_ns
    gallery_pages.write(source, tmp_path)
    assert (tmp_path / "gallery" / "kanizo-fig2.md").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "module", [make_gallery, pictures.canvas, plots, tables], ids=lambda each: each.__name__
)
def test_the_examples_of_the_tools_work(module: ModuleType) -> None:
    failed, tried = doctest.testmod(module)
    assert failed == 0
    assert tried


# --- the benchmark page ----------------------------------------------------------------------------------


def test_the_benchmark_page_has_every_suite_with_where_it_was_measured(tmp_path: Path) -> None:
    results = ROOT / "benchmarks" / "results"
    benchmark_page.write(results, tmp_path)
    page = (tmp_path / "benchmarks.md").read_text()
    for suite, report in benchmark_page.newest(results).items():
        assert f"## {benchmark_page.TITLES[suite]}\n" in page
        assert report.date in page
        drawn = benchmark_page.chart(suite, report) is not None  # a suite without peers has no chart
        assert (tmp_path / f"benchmarks-{suite}.svg").exists() == drawn == (f"benchmarks-{suite}.svg" in page)
        assert drawn or suite == "cores"
    assert "abloom needs less" in page, "what is better elsewhere is said"
    assert "| missed |" not in page or ": missed, " in page


def test_a_chart_compares_with_the_best_peer() -> None:
    report = benchmark_page.newest(ROOT / "benchmarks" / "results")["sketches"]
    assert [benchmark_page.fastest_peer(each)[0] for each in report.results] == ["datasketches"] * 2
    drawn = benchmark_page.chart("sketches", report)
    assert drawn is not None
    assert "datasketches" in drawn.svg()
