"""What advice to the system (madvise) does for a mapped filter that is not cached: a table of seconds.

    python tools/mapped_study.py [--megabytes 600] [--rounds 3] [--folder FOLDER]

A blocked filter is written to a file; before each measurement its pages are dropped from the page cache.
Columns: opening it and looking that many random keys up in one call; opening it with verify=True. The rows
take turns in each round; the median of the rounds is printed. docs/howto/mmap_processes.md shows the table.
"""

from __future__ import annotations

import argparse
import mmap
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from evenbins import BlockedBloomFilter, _mapped_files

_KEYS = (1_000, 10_000, 100_000)
_WAYS = ("NORMAL", "RANDOM", "SEQUENTIAL", "preload=True")


def drop_pages(path: Path) -> None:
    """Ask the system to drop the file's pages, which must be on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def seconds(path: Path, way: str, keys: int, seed: int) -> float:
    """Measure opening and asking for random keys, or, of no keys, opening with verify=True."""
    asked = np.random.default_rng(seed).integers(0, 2**62, keys)
    drop_pages(path)
    start = time.perf_counter()
    data = _mapped_files.map_file(path)
    if way == "preload=True":
        with _mapped_files.advised(data, path, whole=False, preload=True):
            pass
    else:
        data.madvise(getattr(mmap, f"MADV_{way}"))
    found = BlockedBloomFilter._from_data(data, mapped=True, verify=keys == 0)
    found.contains_many(asked)
    return time.perf_counter() - start


def main(arguments: list[str]) -> None:
    """Build the file, measure, print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--megabytes", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="on the disk to measure; by default a temporary one")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "filter.evb"
        BlockedBloomFilter(options.megabytes * 500_000, bits_per_key=16).save(path)
        print(f"{path.stat().st_size / 1e6:.0f} MB, not cached; seconds")
        print("".join(f"{name:>16}" for name in ("", *(f"{n:,} keys" for n in _KEYS), "verify=True")))
        times: dict[tuple[str, int], list[float]] = {(way, n): [] for way in _WAYS for n in (*_KEYS, 0)}
        for seed in range(options.rounds):
            for (way, n), measured in times.items():
                measured.append(seconds(path, way, n, seed))
        for way in _WAYS:
            row = [statistics.median(times[way, n]) for n in (*_KEYS, 0)]
            print(f"{way:>16}" + "".join(f"{value:16.2f}" for value in row))


if __name__ == "__main__":
    main(sys.argv[1:])
