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
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np

from evenbins import BlockedBloomFilter


def own_share() -> int:
    """Return this process's proportional share of memory, in bytes."""
    found = re.search(r"^Pss:\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.M)
    assert found is not None, "this system does not tell"
    return 1024 * int(found[1])


def ask(path: str, together: Barrier, answers: Queue[tuple[int, int]]) -> None:
    """Open the filter, then load it, reading all of it; tell by how much each raised this process's share."""
    together.wait()
    before = own_share()
    together.wait()
    opened = BlockedBloomFilter.open(path)
    opened.stats()
    together.wait()
    with_open = own_share()
    together.wait()
    loaded = BlockedBloomFilter.load(path)
    together.wait()
    answers.put((with_open - before, own_share() - with_open))
    together.wait()
    assert loaded == opened


def shares(path: str, processes: int) -> tuple[int, int]:
    """Return what so many processes together add to the memory in use, by `open` and by `load`."""
    context = multiprocessing.get_context("spawn")
    together, answers = context.Barrier(processes), context.Queue()
    workers = [context.Process(target=ask, args=(path, together, answers)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    told = [answers.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    return sum(opened for opened, _ in told), sum(loaded for _, loaded in told)


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
        for how, total in zip(("open", "load"), shares(path, options.processes), strict=True):
            print(f"{how}: {total / filter_.nbytes:.0f} times the filter")


if __name__ == "__main__":
    main()
