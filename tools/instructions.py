"""Count the instructions of key paths, and compare them with the committed counts: speed without a clock.

    python tools/instructions.py               compare with benchmarks/instructions.json
    python tools/instructions.py --write       write that file anew

All paths run once, so that code and tables are loaded, then once more under valgrind's callgrind, with one
thread and the AVX2 kernel (valgrind knows no AVX-512). Counts vary a little from run to run; by more than 3 %
only if the code has changed.

Exit status 1: a path takes over 3 % more instructions than committed, or fewer: then write the file anew.
Exit status 3: counts of another compiler, Python or kernel cannot be compared.

Instructions are not time: a path that waits for memory may become slower with as many. `make bench` times.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BASELINE = ROOT / "benchmarks/instructions.json"
KERNEL = "avx2"
KEYS = 20_000
ROUNDS = 3  # the least counts: now and then a million instructions are added, at any place
ALLOWED = 0.03
OTHER_MACHINE = 3


def paths() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield each path's name and call; a call may be made twice."""
    import numpy as np

    import evenbins as eb

    rng = np.random.default_rng(7)
    keys, others = rng.integers(0, 2**62, (2, KEYS))
    texts = [f"https://example.org/{number}" for number in range(KEYS)]
    blocked = eb.BlockedBloomFilter(KEYS, fpr=1e-3)
    yield "blocked, add_many", lambda: blocked.add_many(keys)
    yield "blocked, contains_many", lambda: blocked.contains_many(others)
    fill = eb.BalancedBloomFilter(KEYS, bits_per_key=16, policy="fill")
    fill.add_many(keys)
    yield "balanced fill, contains_many", lambda: fill.contains_many(others)
    multilevel = eb.BalancedBloomFilter(KEYS, bits_per_key=16, policy="multilevel")
    multilevel.add_many(keys)
    yield "balanced multilevel, contains_many", lambda: multilevel.contains_many(others)
    standard = eb.BloomFilter(KEYS, fpr=1e-3)
    standard.add_many(keys)
    yield "standard, contains_many", lambda: standard.contains_many(others)
    fingerprints = eb.FingerprintFilter(3 * KEYS, fpr=1e-3)
    yield "fingerprint, add_many", lambda: fingerprints.add_many(keys)
    yield "fingerprint, contains_many", lambda: fingerprints.contains_many(others)
    yield "fingerprint, remove_many", lambda: fingerprints.remove_many(keys)
    table = eb.MultilevelTable(KEYS)
    yield "table, insert_many", lambda: table.insert_many(keys, keys)
    yield "table, get_many", lambda: table.get_many(keys)
    sketch = eb.CountMinSketch(1e-3, 1e-3)
    yield "count-min, add_many", lambda: sketch.add_many(keys)
    ring = eb.HashRing([f"server{number}" for number in range(16)])
    yield "ring, node_many", lambda: ring.node_many(keys, indices=True)
    yield "digest_many of str", lambda: eb.digest_many(texts)

    def single() -> None:
        for text in texts:
            text in blocked  # noqa: B015

    yield "blocked, single `in`", single


def count_inside(library: str) -> None:
    """Run the paths; callgrind writes a file for each."""
    marks = ctypes.CDLL(library)
    calls = list(paths())
    for _, call in calls:
        call()
    gc.disable()
    marks.begin()
    for name, call in ROUNDS * calls:
        marks.mark(b"between")
        call()
        marks.mark(name.encode())


def machine() -> dict[str, str]:
    """Return what counts depend on: the compiler that built the core, the Python, the kernel."""
    from evenbins import _core

    compilers = sorted(
        set(re.findall(rb"(?:GCC: \(|clang version )[^\0]+", Path(_core.__file__).read_bytes()))
    )
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return {"compiler": ", ".join(each.decode() for each in compilers), "python": version, "kernel": KERNEL}


def counted() -> dict[str, float]:
    """Return the instructions per key of each path."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "marks.so")
        source = Path(__file__).with_suffix(".c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
        options = ["--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out"]
        environment = os.environ | {
            "EVENBINS_KERNEL": KERNEL, "EVENBINS_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
        }  # fmt: skip
        done = subprocess.run(
            ["valgrind", *options, sys.executable, __file__, "--inside", library],
            env=environment, text=True, capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode:
            sys.exit(done.stderr)
        found: dict[str, float] = {}
        for file in Path(folder).glob("out.*"):
            text = file.read_text()
            name = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
            total = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
            if name and total and name[1] != "between":
                found[name[1]] = min(int(total[1]) / KEYS, found.get(name[1], math.inf))
        return dict(sorted(found.items()))


def compare(expected: dict[str, float], found: dict[str, float]) -> list[str]:
    """Return the names of paths whose counts differ by more than is allowed, or that only one side has."""
    names = expected.keys() | found.keys()
    return sorted(
        name
        for name in names
        if name not in expected
        or name not in found
        or abs(found[name] / expected[name] - 1.0) > ALLOWED
    )  # fmt: skip


def main() -> None:
    """Count, then write or compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write the file of counts anew")
    parser.add_argument("--inside", metavar="LIBRARY", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        count_inside(arguments.inside)
        return
    here = machine()
    committed = {} if arguments.write else json.loads(BASELINE.read_text())
    different = [name for name in here if not arguments.write and committed[name] != here[name]]
    if different:
        each = "; ".join(f"{name} {here[name]!r}, committed {committed[name]!r}" for name in different)
        print(f"The counts cannot be compared: {each}. Use that one, or write the file anew with --write")
        sys.exit(OTHER_MACHINE)
    found = counted()
    if arguments.write:
        rounded = {name: round(count, 2) for name, count in found.items()}
        BASELINE.write_text(
            json.dumps(here | {"keys": KEYS, "instructions_per_key": rounded}, indent=1) + "\n"
        )
        return
    expected = committed["instructions_per_key"]
    wrong = compare(expected, found)
    for name in sorted(expected.keys() | found.keys()):
        before, now = expected.get(name), found.get(name)
        change = f"{100 * (now / before - 1):+7.2f} %" if before and now else "missing"
        print(f"{name:36} {before or 0:9.2f} {now or 0:9.2f} {change} {'<--' if name in wrong else ''}")
    if wrong:
        sys.exit(f"{len(wrong)} paths differ by more than {100 * ALLOWED:g} %")


if __name__ == "__main__":
    main()
