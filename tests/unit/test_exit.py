"""The interpreter exits while daemon threads are in bulk calls: the process ends with status 0.

A thread that asks for the GIL during finalisation is ended by CPython with pthread_exit, which unwinds its
stack; C++ frames turn that into an abort (cpp/bindings/gil.hpp). Each call runs in a daemon thread of a
process of its own, again and again, while the main thread returns; what it is doing at that moment varies.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

SETUP = """
    import sys, threading, time
    from itertools import count
    import numpy as np
    import evenbins
    from evenbins import *

    n = 500_000
    keys = np.arange(n)
    texts = [str(i) for i in range(50_000)]
    begun = threading.Event()

    def repeat(call):
        call()  # the first round, so that the second works on a structure that is full
        begun.set()
        while True:
            call()

    class Number:
        def __index__(self):
            return 7

    def collide(*calls):
        for call in calls:
            threading.Thread(target=repeat, args=(call,), daemon=True).start()
        begun.wait()
        time.sleep(0.05)
"""
# What is made, and the calls that run in one daemon thread each.
CALLS = {
    "add_many": ("f = BlockedBloomFilter(n, fpr=0.01)", "lambda: f.add_many(keys)"),
    "add_many with threads": ("f = BloomFilter(n, fpr=0.01)", "lambda: f.add_many(keys, threads=2)"),
    "contains_many": ("f = BloomFilter(n, fpr=0.01)", "lambda: f.contains_many(keys)"),
    "contains_many of a list": ("f = BloomFilter(n, fpr=0.01)", "lambda: f.contains_many(texts)"),
    "a generator": (
        "f = BloomFilter(n, fpr=0.01); begun.set()",
        "lambda: f.add_many(count())",
    ),
    "items with an __index__ of Python": (
        "f = BloomFilter(n, fpr=0.01); many = [Number()] * 100_000",
        "lambda: f.contains_many(many)",
    ),
    "to_bytes": ("f = BloomFilter(n, fpr=0.01)", "lambda: f.to_bytes()", "lambda: f.add_many(keys)"),
    "a growing filter": (
        "g = GrowingFilter(0.01)",
        "lambda: g.add_many(keys)",
        "lambda: g.add_many(texts)",
    ),
    "a growing filter, generator": ("g = GrowingFilter(0.01); begun.set()", "lambda: g.add_many(count())"),
    "a sharded filter": (
        "s = ShardedFilter(n, shards=4, fpr=0.01)",
        "lambda: s.add_many(keys, threads=4)",
    ),
    "a sketch": ("c = CountMinSketch(0.001, 0.01)", "lambda: c.add_many(keys)", "lambda: c.count_many(keys)"),
    "insert_many": ("t = MultilevelTable(2 * n)", "lambda: t.insert_many(keys, keys)"),
    "get_many": ("t = MultilevelTable(2 * n)", "lambda: t.get_many(keys, default=0, threads=2)"),
    "get_many of a generator": (
        "t = MultilevelTable(n); begun.set()",
        "lambda: t.get_many((i for i in count()), default=0)",
    ),
    "tables, readers and writers": (
        "t = ChainedTable(2 * n)",
        "lambda: t.insert_many(keys, keys)",
        "lambda: t.contains_many(keys)",
        "lambda: t.copy()",
    ),
    "a callback": (
        "t = ChainedTable(n); t.insert_many(keys, keys)",
        "lambda: t._each_batch(lambda k, v: sum(range(1000)), 100)",
    ),
    "a ring": (
        "r = HashRing(['a', 'b', 'c'])",
        "lambda: r.locate_many(keys)",
        "lambda: r.assign_many(texts)",
    ),
}


# In a short run one for each structure, and among them each way to the keys: an array, a list, a generator.
SHORT = {
    "add_many", "contains_many of a list", "a growing filter, generator", "a sharded filter", "a sketch",
    "get_many", "a callback", "a ring",
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SHORT else [pytest.mark.long]) for name in CALLS]
)
def test_a_daemon_thread_in_a_bulk_call_does_not_break_the_exit(name: str) -> None:
    made, *calls = CALLS[name]
    code = textwrap.dedent(SETUP) + f"{made}\ncollide({', '.join(calls)})\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]


def test_a_destructor_of_the_exit_does_not_wait_for_a_stopped_thread() -> None:
    """A thread that sleeps for ever may hold the structure's lock: a RuntimeError, which Python prints."""
    code = textwrap.dedent(SETUP) + textwrap.dedent("""
        class Last:
            def __init__(self, table):
                self.table = table
            def __del__(self):
                self.table.insert_many(keys[:10], keys[:10])

        t = MultilevelTable(8 * n)
        many = np.arange(4 * n)
        last = Last(t)
        collide(lambda: t.insert_many(many, many), lambda: t.get_many(many, default=0))
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
