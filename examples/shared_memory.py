"""How much memory do several processes take that ask one filter? Mapped (`open`) against loaded (`load`).

    python examples/shared_memory.py [--keys 5000000] [--processes 4]

Every process opens the same file, reads all of it, and waits until all have done so; then each tells its
share of the memory: of a page that four processes map Linux counts a quarter for each (Pss, in
/proc/self/smaps_rollup). Linux only.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import tempfile
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np

from evenbins import BlockedBloomFilter


def own_share() -> int:
    """Give this process's proportional share of memory, in bytes."""
    found = re.search(r"^Pss:\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.M)
    assert found is not None, "this system does not tell"
    return 1024 * int(found[1])


def ask(how: str, path: str, together: Barrier) -> int:
    """Open or load the filter, read all of it, and give by how much that raised this process's share."""
    together.wait()
    before = own_share()
    together.wait()
    filter_ = BlockedBloomFilter.open(path) if how == "open" else BlockedBloomFilter.load(path)
    filter_.stats()
    together.wait()
    after = own_share()
    together.wait()
    return after - before


def shares(how: str, path: str, processes: int) -> list[int]:
    """Give what each of so many processes adds to the memory in use."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(processes) as pool:
        together = manager.Barrier(processes)
        asked = [pool.apply_async(ask, (how, path, together)) for _ in range(processes)]
        return [each.get(timeout=120) for each in asked]


def main() -> None:
    """Print the memory of both ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument("--processes", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "filter.evb")
        filter_ = BlockedBloomFilter(options.keys, fpr=1e-4)
        filter_.add_many(np.arange(options.keys), threads=2)
        filter_.save(path)
        print(f"{options.processes} processes, a filter of {filter_.nbytes / 1e6:.0f} MB")
        for how in ("open", "load"):
            total = sum(shares(how, path, options.processes))
            print(f"{how}: {total / filter_.nbytes:.0f} times the filter")


if __name__ == "__main__":
    main()
