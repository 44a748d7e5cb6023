"""The examples of README and docs work as printed."""

from __future__ import annotations

import doctest
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_print_what_it_says(page: Path) -> None:
    failed, _ = doctest.testfile(str(page), module_relative=False)
    assert failed == 0


def test_the_pages_have_examples() -> None:
    parser = doctest.DocTestParser()
    assert sum(len(parser.get_examples(page.read_text())) for page in PAGES) >= 20


def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    assert blocks
    for block in blocks:
        done = subprocess.run(
            [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_every_make_target_of_the_readme_exists() -> None:
    """`make demo` and the others, in README, CONTRIBUTING and docs, are targets of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]:
        named = set(re.findall(r"(?:`|^    )make ([a-z-]+)", page.read_text(), re.M))
        assert named <= targets, f"{page.name}: {named - targets}"


def test_the_readmes_benchmark_is_the_newest_one_that_was_measured() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "write_readme.py"))
    assert tool["readme_with_benchmark"]() == (ROOT / "README.md").read_text(), "run make readme"
