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


def test_the_readmes_benchmark_is_the_newest_one_that_was_measured() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "write_readme.py"))
    assert tool["readme_with_benchmark"]() == (ROOT / "README.md").read_text(), "run make readme"
