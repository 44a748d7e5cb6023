"""The examples of README and docs work as printed.

Pages that tell a story with commands in it (blocks fenced as `console`) are run whole, doctests included, by
test_documented_commands.py; the doctests of all other pages are run here.
"""

from __future__ import annotations

import ast
import doctest
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import search_docs  # noqa: E402

PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if not {"_build", "_generated"} & {*page.parts})
STORIES = [page for page in PAGES if "```console" in page.read_text()]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in STORIES], ids=lambda page: str(page.relative_to(ROOT))
)
def test_the_examples_of_a_page_print_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # what a page writes goes there
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.setattr(sys, "path", sys.path.copy())
    failed, _ = doctest.testfile(str(page), module_relative=False)
    assert failed == 0


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as MyST and GitHub make them."""
    titles = re.findall(
        r"^#+ +(.+?) *$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M
    )
    targets = re.findall(r"^\(([\w-]+)\)=$", page.read_text(), re.M)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles)
    return {*targets, *(re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain)}


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_the_pages_pictures_and_sections_that_a_page_links_to_exist(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text()):
        there = page.parent / target if target else page
        if "_generated" not in there.parts:
            assert there.exists(), target
            assert anchor == "" or anchor in anchors(there), f"{target}#{anchor}"


def test_the_readme_is_short() -> None:
    """At most 900 words, the benchmark's table included; the first answer on the first screen."""
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 900
    first = text[: text.index("## ")]
    assert "pip install evenbins" in first
    assert "dedup([" in first


def test_every_page_is_in_the_sidebar_once() -> None:
    """The sections of the sidebar are five; every other page is below one of them."""
    listed = [
        (page.parent / name).resolve().relative_to(ROOT / "docs").as_posix()
        for page in PAGES
        for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(), re.S)
        for name in block.split()
        if not name.startswith((":", "_generated"))
    ]
    pages = {page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in PAGES}
    assert sorted(listed) == sorted(pages - {"index"})
    home = re.findall(r"```\{toctree\}\n(.*?)```", (ROOT / "docs/index.md").read_text(), re.S)
    assert len(home) == 1
    assert home[0].split()[1:] == ["quickstart", "howto/index", "guides", "theory", "reference"]


@pytest.mark.parametrize("word", search_docs.SEARCHES)
def test_one_page_has_the_index_entry_of_a_search(word: str) -> None:
    """A main entry that is the query itself has the search's highest score; `make docs` looks it up, too."""
    holders = [
        page.relative_to(ROOT / "docs").with_suffix("").as_posix()
        for page in PAGES
        if re.search(rf"^```\{{index\}} (?:.*, )?! {re.escape(word)}(?:,|$)", page.read_text(), re.M)
    ]
    assert holders == [search_docs.SEARCHES[word]]


def test_the_pages_of_a_search_are_ranked_as_sphinx_does() -> None:
    index = {
        "docnames": ["a", "b", "c", "d"],
        "titles": ["Keys", "Dedup", "Other", "API"],
        "indexentries": {"dedup": [[2, "", True]], "dedup() (in module evenbins)": [[3, "", False]]},
        "alltitles": {"Dedup": [[1, None]]},
        "objects": {"evenbins": [[3, 0, 1, "", "dedup"]]},
        "terms": {"dedup": [0, 1]},
        "titleterms": {"dedup": 1},
    }
    assert search_docs.rank(index, "dedup") == [("c", 100), ("b", 16), ("d", 16), ("a", 5)]
    assert search_docs.rank(index, "nothing") == []


def test_the_pages_have_examples() -> None:
    parser = doctest.DocTestParser()
    assert sum(len(parser.get_examples(page.read_text())) for page in PAGES) >= 20


def test_what_is_shown_as_python_is_python() -> None:
    """Blocks without prompts need a server, or a name from the text; they are compiled."""
    for page in [ROOT / "CONTRIBUTING.md", *PAGES]:
        for block in re.findall(r"^ *```python\n(.*?)^ *```", page.read_text(), re.M | re.S):
            if ">>>" not in block:
                compile(textwrap.dedent(block), str(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    assert blocks
    for block in blocks:
        done = subprocess.run(
            [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_the_readmes_numbers_are_the_newest_that_were_measured() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "write_readme.py"))
    assert tool["readme_with_benchmark"]() == (ROOT / "README.md").read_text(), "run make readme"
