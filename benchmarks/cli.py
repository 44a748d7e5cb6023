"""The command line against what one would use instead: grep, Python's set; and against its own library.

    query       evenbins query FILE LINES > OUT          grep -F -x -f LIST LINES > OUT
    answers     query's time beyond its start-up         contains_many on the same lines in memory
    build       evenbins build LINES -o FILE             set(map(str.strip, open(LINES))) in a new Python
    memory      the peak of that build beyond the filter, all of Python and NumPy counted
    start-up    query of one line, --version             python -c 'import numpy'

Every run is a process of its own, from its start to its end; files lie in a temporary folder and are in the
page cache. grep writes to a file too: it stops at the first match if its output is /dev/null. It runs with
LC_ALL=C, in which it is fastest.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import evenbins
from benchmarks.harness import Case, Contender, Limit, Target, Within
from benchmarks.shared import FULL, Sizes, count_text, main_of
from evenbins._bulk import Lines

__all__ = ["cli_cases", "main_cli"]

_COMMAND = [sys.executable, "-m", "evenbins"]
_SET = "import sys; len(set(map(str.strip, open(sys.argv[1]))))"
_QUERY, _GREP, _BULK = "evenbins query", "grep -F -x -f", "contains_many, in memory"
_BUILD, _PYTHON = "evenbins build", "set(map(str.strip, f))"
_ONE, _VERSION, _NUMPY = "evenbins query, one line", "evenbins --version", "python -c 'import numpy'"


# Of the process itself: what the system tells of a child includes this process' own size at the fork.
_PEAK = """
import re, runpy, sys
try:
    runpy.run_module(sys.argv.pop(1), run_name="__main__")
except SystemExit:
    pass
print(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1])
"""


def _environment() -> dict[str, str]:
    """Let Python keep byte code, as it does for an installed package, NumPy's included."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _run(command: list[str], output: Path | None = None) -> float:
    """Run a process to its end, and give its seconds; only 0 and grep's 1 are taken for success."""
    with open(output or os.devnull, "wb") as file:
        began = time.perf_counter()
        environment = {**_environment(), "LC_ALL": "C"}
        done = subprocess.run(
            command, stdout=file, stderr=subprocess.DEVNULL, env=environment, check=False
        )  # fmt: skip
        seconds = time.perf_counter() - began
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)} ended with status {done.returncode}")
    return seconds


def _peak_bytes(module: str, *args: str) -> int:
    """Run a module in a process of its own, and give the largest resident size (Linux)."""
    command = [sys.executable, "-c", _PEAK, module, *args]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment(), check=True
    )
    return 1024 * int(done.stdout)


def _key(i: int) -> bytes:
    return b"https://example.org/%09d\n" % (i * 7919 % 100_000_007)  # a prime: no two are equal


def _write_lines(folder: Path, listed: int, asked: int) -> None:
    """Write a list, and lines of which every second one is in it."""
    with open(folder / "list", "wb") as file:
        file.writelines(map(_key, range(listed)))
    with open(folder / "lines", "wb") as file:
        for i in range(0, asked, 2):
            file.write(_key(i * 13 % listed) + b"https://example.com/%09d\n" % i)


def _seconds(command: list[str], output: Path | None = None) -> Callable[[], float]:
    return lambda: _run(command, output)


def cli_cases(sizes: Sizes = FULL) -> Iterator[Case]:
    """Return the cases of this module, one at a time."""
    asked = sizes.string_keys
    listed = asked // 10
    with tempfile.TemporaryDirectory(prefix="evenbins-bench-") as name:
        folder = Path(name)
        _write_lines(folder, listed, asked)
        (folder / "one").write_bytes(_key(0))
        _run([*_COMMAND, "build", str(folder / "list"), "-o", str(folder / "list.evb")])
        yield _starting(folder)
        yield _against_grep(folder, listed, asked)
        yield _against_bulk(folder, asked)
        yield _building(folder, asked)
        yield _memory(folder, asked)


def _starting(folder: Path) -> Case:
    def contender(command: list[str]) -> Contender:
        return Contender(run=lambda: 1000 * _run(command))

    return Case(
        name="command line, start-up",
        contenders={
            _ONE: contender([*_COMMAND, "query", str(folder / "list.evb"), str(folder / "one")]),
            _VERSION: contender([*_COMMAND, "--version"]),
            _NUMPY: contender([sys.executable, "-c", "import numpy"]),
        },
        unit="ms",
        targets=[
            Within(text=f"{label}: ≤ 1.5 × importing NumPy", of=label, against=_NUMPY, at_most=1.5)
            for label in (_ONE, _VERSION)
        ],
        notes="Whole processes, whose byte code is kept from one run to the next.",
    )


def _against_grep(folder: Path, listed: int, asked: int) -> Case:
    ours, theirs = folder / "ours", folder / "theirs"
    facts: dict[str, float] = {}

    def check(_: object) -> bool:
        facts["lines found"] = ours.read_bytes().count(b"\n")
        return asked / 2 <= facts["lines found"] <= 0.505 * asked

    return Case(
        name=f"command line, query of {count_text(asked)} lines, half in a list of {count_text(listed)}",
        contenders={
            _QUERY: Contender(
                run=_seconds([*_COMMAND, "query", str(folder / "list.evb"), str(folder / "lines")], ours),
                check=check,
                facts=facts,
            ),
            _GREP: Contender(
                run=_seconds(["grep", "-F", "-x", "-f", str(folder / "list"), str(folder / "lines")], theirs),
                check=lambda _: theirs.read_bytes().count(b"\n") == asked // 2,
            ),
        },
        unit="s",
        targets=[Target(text="≥ 30 × faster than grep", against=(_GREP,), at_least=30.0)],
        notes="Output to a file. The filter has a false-positive rate of 1e-3; it was built before.",
    )


def _against_bulk(folder: Path, asked: int) -> Case:
    query = [*_COMMAND, "query", str(folder / "list.evb")]
    lines = Lines((folder / "lines").read_bytes(), b"\n")
    filter_ = evenbins.open(folder / "list.evb")

    def beyond_start() -> float:
        whole = _run([*query, str(folder / "lines")], folder / "ours")
        return whole - _run([*query, str(folder / "one")], folder / "one.out")

    def in_memory() -> float:
        began = time.perf_counter()
        filter_.contains_many(lines)
        return time.perf_counter() - began

    return Case(
        name=f"command line, query of {count_text(asked)} lines beyond start-up",
        contenders={_QUERY: Contender(run=beyond_start), _BULK: Contender(run=in_memory)},
        unit="s",
        targets=[Within(text="≤ 3 × contains_many", of=_QUERY, against=_BULK, at_most=3.0)],
        notes="The time of query less that of a query of one line, run next to it; reading and writing "
        "count. contains_many reads the lines of one block of memory, without a Python object for each.",
    )


def _building(folder: Path, asked: int) -> Case:
    source = str(folder / "lines")
    return Case(
        name=f"command line, build from {count_text(asked)} lines",
        contenders={
            _BUILD: Contender(run=_seconds([*_COMMAND, "build", source, "-o", str(folder / "built.evb")])),
            _PYTHON: Contender(run=_seconds([sys.executable, "-c", _SET, source])),
        },
        unit="s",
        targets=[Target(text="≥ 5 × faster than a set", against=(_PYTHON,), at_least=5.0)],
        notes="Lines are counted, then added; the file is synced to disk.",
    )


def _memory(folder: Path, asked: int) -> Case:
    facts: dict[str, float] = {}

    def beyond_filter() -> float:
        used = _peak_bytes("evenbins", "build", str(folder / "lines"), "-o", str(folder / "built.evb"))
        size = (folder / "built.evb").stat().st_size
        facts["peak MB"], facts["filter MB"] = used / 1e6, size / 1e6
        numpy = _peak_bytes("numpy.version")
        facts["beyond filter and NumPy, MB"] = (used - size - numpy) / 1e6
        return (used - size) / 1e6

    return Case(
        name=f"command line, memory of a build from {count_text(asked)} lines beyond its filter",
        contenders={_BUILD: Contender(run=beyond_filter, facts=facts)},
        unit="MB",
        targets=[Limit(text="≤ 100 MB beyond the filter", at_most=100.0)],
        notes="The largest resident size, Python and NumPy included.",
        once=True,
    )


def main_cli(
    quick: bool = False, rounds: int | None = None, json_path: str | None = None, markdown: bool = False
) -> int:
    """Run the cases, print the tables, write the JSON; the exit status: 0, or 2 if it cannot run."""
    return main_of("cli", cli_cases, {}, quick, rounds, json_path, markdown)
