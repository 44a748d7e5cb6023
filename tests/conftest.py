"""What all suites share: the list of filters, the kernels, keys of every sort.

    KINDS    every filter of the library, in several shapes (kinds.py). A new kind is added there, once; the
             shared suite (unit/test_filters.py), threads, kernels and state machines then run over it.
    kind     a test that takes it runs for each of KINDS
    kernel   a test that takes it runs under each kernel of this machine

No test of this project is skipped: a missing package must show.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import experiments
import pytest
from hypothesis import settings
from kinds import FIRST_OF_CLASS, KINDS, VARIANTS, Kind
from sizes import size

from evenbins import _core

# Machines are busy: an example that takes long is no failure. The same examples every time, three times as
# many in a long run.
settings.register_profile(
    "evenbins", deadline=None, derandomize=True, print_blob=True, max_examples=size(30, 100)
)
settings.load_profile("evenbins")

# A shell lets what it starts in the background ignore Ctrl-C, and children inherit that: tests of it would
# fail.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# anyio imports its parts when they are first used, and pytest parses each anew, since it is a plugin of its:
# in a server's thread beside another one that parses, which Python 3.11 does not survive ("AST constructor
# recursion depth mismatch"). So they are imported here, by one thread.
for _name in ("anyio", "anyio.abc"):
    for _part in dir(import_module(_name)):
        getattr(import_module(_name), _part, None)
import_module("anyio._backends._asyncio")


@pytest.fixture(
    params=[pytest.param(each, marks=[pytest.mark.long] if each.name in VARIANTS else []) for each in KINDS],
    ids=lambda each: each.name,
)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each filter of the library, in each shape; those that differ little from others in long runs only."""
    found: Kind = request.param
    return found


@pytest.fixture(params=FIRST_OF_CLASS, ids=lambda each: each.cls.__name__)
def class_kind(request: pytest.FixtureRequest) -> Kind:
    """Each class of filters once, for what does not depend on the shape."""
    found: Kind = request.param
    return found


@pytest.fixture(scope="session", autouse=True)
def _shared_results(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> None:
    """Let the processes of a test run share the results of the papers' experiments."""
    base = tmp_path_factory.getbasetemp()
    workers = hasattr(request.config, "workerinput")  # each has a folder of its own in that of the run
    experiments.share_results_in((base.parent if workers else base) / "experiments")


@pytest.fixture
def all_kinds() -> list[Kind]:
    """The whole list, for tests that compare kinds with one another."""
    return KINDS


# avx512vbmi differs from avx512 in the lines of fingerprint and window filters alone; their tests name it.
KERNELS = [
    pytest.param(name, marks=[pytest.mark.long] if name == "avx512vbmi" else []) for name in _core.kernels()
]


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    """Put each kernel of this machine in force, for filters made in the test."""
    before = _core.kernel()
    _core.use_kernel(request.param)
    yield request.param
    _core.use_kernel(before)


@pytest.fixture
def mixed_keys() -> list[object]:
    """Keys of every sort, all different; more than one internal batch of them."""
    texts = ["", "a", "é", "ключ", "東京", "𝄞 clef", "x" * 300, *(f"key-{i}" for i in range(800))]
    raw = [b"\0", b"b\0", b"\xff\xfe", bytes(range(256)), *(i.to_bytes(5, "big") for i in range(800))]
    numbers = [0, 1, -1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), *range(10**6, 10**6 + 800)]
    return [key for three in zip(texts, raw, numbers, strict=False) for key in three]


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a piece of Python in a fresh process; one that hangs is killed and fails the test."""

    def run(code: str, *arguments: str, timeout: float = 240, **environment: str) -> Any:
        return subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, **environment},
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip

    return run


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C through in the processes of pytest-xdist, which ignore it: tests send it to themselves.

    And let tests overfill filters on purpose.
    """
    if hasattr(config, "workerinput"):
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("filterwarnings", "ignore::evenbins.OverfilledWarning")


def pytest_xdist_auto_num_workers() -> int:
    """Give one process more than there are cores: a tenth of the time tests wait for servers and browsers."""
    return len(os.sched_getaffinity(0)) + 1


# Those that take longest: a process of pytest-xdist that begins one of them last keeps the others waiting.
LONGEST = (
    *("test_documented_commands.py", "test_docs.py", "test_threads.py", "test_papers.py", "test_aarch64.py"),
    *("test_bench.py", "test_filters.py", "test_growing.py"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exempt the collected tests, hundreds of thousands of objects, from every later garbage collection.

    Tests that call `gc.collect` would spend most of their time on them.
    """
    gc.collect()
    gc.freeze()
