"""tools/show_build.py: counts while a build runs, everything if it fails."""

from __future__ import annotations

import io
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import show_build

SCRIPT = "import sys\nfor i in range(1, 21): print(f'  [{i}/20] Building CXX object {i}')\nsys.exit(%d)"


def test_a_build_shows_every_tenth() -> None:
    out = io.StringIO()
    assert show_build.main([sys.executable, "-c", SCRIPT % 0], out) == 0
    lines = out.getvalue().splitlines()[1:]
    assert lines == [f"  {done} of 20 files" for done in (1, *range(2, 21, 2))]


def test_a_build_that_fails_shows_everything() -> None:
    out = io.StringIO()
    assert show_build.main([sys.executable, "-c", SCRIPT % 3], out) == 3
    assert "[17/20] Building CXX object 17" in out.getvalue()
