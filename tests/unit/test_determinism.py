"""The same keys give the same bytes: tools/fixed_files.py with every kernel, threads and batch sizes.

`make determinism` does the same in fresh processes, for more of them and for every Python of the machine, and
tests/packaging/test_aarch64.py for ARM. Here too: what the module says to a free-threaded Python.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import fixed_files

from evenbins import _core

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def alone() -> dict[str, str]:
    """The files of one thread and whole batches, with the generic kernel."""
    before = _core.kernel()
    _core.use_kernel("generic")
    found = fixed_files.digests(threads=1, batch=fixed_files.KEYS)
    _core.use_kernel(before)
    return found


@pytest.mark.parametrize(("threads", "batch"), [(3, 4001)])
def test_kernels_threads_and_batches_leave_the_same_bytes(
    kernel: str, threads: int, batch: int, alone: dict[str, str]
) -> None:
    """Forty-two files of every kind that is written, 20,000 keys each."""
    assert _core.kernel() == kernel
    assert fixed_files.digests(threads=threads, batch=batch) == alone


def test_the_files_are_of_every_kind(alone: dict[str, str]) -> None:
    assert len(set(alone.values())) == len(alone)  # no two are the same by accident
    words = {name.split("-")[0] for name in alone}
    assert words >= {
        "standard", "blocked", "counting", "single", "sequential", "multilevel", "fill", "two", "growing",
        "sharded", "count", "table", "chained", "summary", "ring", "pages",
    }  # fmt: skip


def test_a_fresh_process_prints_the_same(alone: dict[str, str], run_python: Any) -> None:
    script = f"import runpy, sys; sys.argv = ['x', '--batch', '5000']; runpy.run_path({str(ROOT / 'tools/fixed_files.py')!r}, run_name='__main__')"  # noqa: E501
    done = run_python(script, PYTHONHASHSEED="123")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"] == alone


def test_the_modules_claim_the_gil() -> None:
    """No FREE_THREADED in their build: a free-threaded Python turns the GIL on when it imports one of them.

    The locks of cpp/bindings/access.hpp rest on it: `busy` is set and read under the GIL.
    """
    built = (ROOT / "CMakeLists.txt").read_text()
    assert re.findall(r"nanobind_add_module\((\w+) NB_STATIC NOMINSIZE\n", built) == ["_core", "_study"]
    assert "FREE_THREADED" not in built
    enabled = getattr(sys, "_is_gil_enabled", lambda: True)
    assert enabled()  # with the module imported
