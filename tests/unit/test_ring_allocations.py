"""A ring whose memory runs out at any allocation keeps its invariants (tools/ring_allocations.cpp)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_every_operation_survives_every_failing_allocation(tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("needs a C++ compiler and a linker that wraps mmap")
    program = tmp_path / "ring_allocations"
    subprocess.run(
        [compiler, "-std=c++20", "-O1", "-Wl,--wrap=mmap", f"-I{ROOT / 'cpp' / 'include'}",
         str(ROOT / "tools" / "ring_allocations.cpp"), "-o", str(program)],
        check=True,
    )  # fmt: skip
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    runs, broken = (int(word) for word in done.stdout.split() if word.isdigit())
    assert runs > 5000
    assert broken == 0
