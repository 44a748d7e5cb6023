"""The system refuses threads: every bulk call goes on with those it got, and its result is the same.

A child process gets stacks of 1 GiB and an address space with room for 0 or 2 of them, so that the first or
the third thread cannot be started (root is not exempt from this, as it is from a limit on processes).
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

STACK = 1 << 30
CHILD = """
import hashlib, resource, sys, threading
import numpy as np
import evenbins as eb
from evenbins import _study

room, folder = int(sys.argv[1]), sys.argv[2]
keys = np.arange(-30_000, 30_000)
table = eb.MultilevelTable(len(keys))
table.insert_many(keys, keys)
chained = eb.ChainedTable(len(keys))
chained.insert_many(keys, keys)
pages = eb.PagedTable.create(folder + "/table", len(keys), durable=False)
filters = {
    "standard": eb.BloomFilter(len(keys)),
    "blocked": eb.BlockedBloomFilter(len(keys)),
    "counting": eb.CountingBloomFilter(len(keys)),
    "two-choice": eb.BalancedBloomFilter(len(keys), policy="two-choice"),
    "fill": eb.BalancedBloomFilter(len(keys), policy="fill"),
}
large = {  # filled part by part
    "large standard": eb.BloomFilter(39_000_000, fpr=1e-3),
    "large counting": eb.CountingBloomFilter(10_000_000, fpr=1e-3),
}
if room >= 0:
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    limit = used + (512 << 20) + room * resource.getrlimit(resource.RLIMIT_STACK)[0]
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    if room == 0:
        try:
            threading.Thread(target=print).start()
        except RuntimeError:
            pass
        else:
            sys.exit("a thread was started")

def show(name, *results):
    digest = hashlib.sha256()
    for each in results:
        digest.update(each if isinstance(each, bytes) else np.ascontiguousarray(each).tobytes())
    print(name, digest.hexdigest())

asked = np.arange(-60_000, 60_000)
for name, filter_ in filters.items():
    filter_.add_many(keys, threads=8)
    show(name, filter_.to_bytes(), filter_.contains_many(asked, threads=8))
for name, filter_ in large.items():
    filter_.add_many(np.arange(300_000), threads=8)
    show(name.replace(" ", "-"), filter_.to_bytes())

# Two calls of several passes each, which take the few threads in turn.
threading.stack_size(1 << 20)
calls = [
    threading.Thread(target=filter_.add_many, args=(np.arange(2_000_000),), kwargs={"threads": 3})
    for filter_ in large.values()
]
for each in calls:
    each.start()
for each in calls:
    each.join()
for name, filter_ in large.items():
    show(name.replace(" ", "-") + "-together", filter_.to_bytes())
show("multilevel", table.get_many(asked, -1, threads=8), table.contains_many(asked, threads=8))
show("chained", chained.get_many(asked, -1, threads=8), chained.contains_many(asked, threads=8))
pages.insert_many(keys, keys, in_flight=8)
show("paged", pages.get_many(asked, -1, in_flight=8), pages.contains_many(asked, in_flight=8))
pages.close()
show("trials", *_study.simulate_hashing("double", 1000, 3, 100, 100, 20, 1, 8))
"""


def results(room: int, folder: Path) -> dict[str, str]:
    """Run the child with room for so many stacks (−1: no limit); return the checksum of each result."""

    def limit_stacks() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (STACK, resource.getrlimit(resource.RLIMIT_STACK)[1]))

    folder = folder / str(room)
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(room), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit_stacks,
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split() for line in done.stdout.splitlines())


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are Linux's")
def test_results_do_not_depend_on_how_many_threads_could_be_started(tmp_path: Path) -> None:
    expected = results(-1, tmp_path)
    assert len(expected) == 13
    for room in (0, 2):
        assert results(room, tmp_path) == expected


MEMORY = """
import resource, sys
import numpy as np
import evenbins as eb

keys = np.random.default_rng(1).permutation(1_100_000)
table, other = (eb.MultilevelTable(1_120_000) for _ in range(2))
other.insert_many(keys, keys, threads=1)
eb.BlockedBloomFilter(10**6).contains_many(keys, threads=64)  # their stacks are there
size = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, (size * 1024 + int(sys.argv[1]), resource.RLIM_INFINITY))
table.insert_many(keys, keys, threads=64)
table.delete_many(keys[:600_000], threads=64)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
other.delete_many(keys[:600_000], threads=1)
print(table.to_bytes() == other.to_bytes())
"""


@pytest.mark.parametrize("room", [3 << 20, 30 << 20, 1 << 30])
def test_tables_change_without_memory_for_rounds_of_many_threads(run_python: Any, room: int) -> None:
    """The rounds of 64 threads took hundreds of megabytes, and without them the call failed."""
    done = run_python(MEMORY, str(room))
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr
